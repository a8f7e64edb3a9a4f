// The part of FileStore that writes its catalog down, and reads it when it starts.

#include "base/check.hpp"
#include "storage/file_store.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace terrace {

void FileStore::mark_changed() {
  operations_.take_changed(changed_);
  for (const SlotId slot : changed_) pages_.mark(slot.value() / records_per_page);
}

void FileStore::write_pages() {
  for (std::uint64_t n = 0; n < page_writes_.size(); ++n) {
    PageWrite& write = page_writes_[n];
    if (write.page) continue;
    write.page = pages_.take();
    if (!write.page) break;
    // The image is a copy: the page may change again while the engine's thread reads this one.
    encode_page(*write.page, write.image.span());
    batch_.push_back({.kind = IoOperation::Kind::write,
                      .token = page_token | n,
                      .file = directory_.catalog(),
                      .offset = directory_.layout().page_offset(*write.page),
                      .from = write.image.span(),
                      .ahead = true});
  }
  engine_.submit(batch_);
  batch_.clear();
}

void FileStore::page_ended(const IoCompletion& completion) {
  PageWrite& write = page_writes_[completion.token & ~page_token];
  TERRACE_CHECK(write.page.has_value());
  const bool whole = completion.error == 0 && completion.bytes == catalog_page_bytes;
  if (!whole) operations_.count_io_error();
  catalog_unsynced_ = true;
  pages_.ended(*write.page, whole ? DirtyPages::Outcome::written : DirtyPages::Outcome::failed);
  write.page.reset();
}

void FileStore::encode_page(std::uint32_t page, std::span<std::byte> into) const {
  const StoreIndex& index = operations_.index();
  std::memset(into.data(), 0, into.size());
  for (std::uint32_t n = 0; n < records_per_page; ++n) {
    const std::uint32_t slot = page * records_per_page + n;
    if (slot >= index.slots()) break;
    const StoreIndex::Entry& entry = index.at(SlotId{slot});
    if (entry.state != StoreIndex::State::ready) continue;
    const CatalogRecord record{.block = entry.block,
                               .length = static_cast<std::uint32_t>(directory_.layout().block_bytes),
                               .checksum = seals_[slot].checksum,
                               .fingerprint_prefix = fingerprint_prefix(fingerprint_),
                               .generation = seals_[slot].generation,
                               .slot = slot};
    encode(record, into.subspan(std::size_t{n} * record_bytes, record_bytes));
  }
}

void FileStore::restore() {
  const StoreLayout& layout = directory_.layout();
  const std::uint32_t slots = directory_.recorded_slots();
  if (slots == 0) return;

  constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;
  const std::uint64_t bytes = (slots + records_per_page - 1) / records_per_page * catalog_page_bytes;
  AlignedBuffer records{bytes};
  for (std::uint64_t at = 0; at < bytes; at += piece_bytes) {
    batch_.push_back({.kind = IoOperation::Kind::read,
                      .token = at,
                      .file = directory_.catalog(),
                      .offset = layout.page_offset(0) + at,
                      .into = records.span(at, std::min(piece_bytes, bytes - at))});
  }
  engine_.submit(batch_);
  batch_.clear();
  while (engine_.in_flight() > 0) {
    engine_.wait();
    engine_.poll(completed_);
  }
  for (const IoCompletion& completion : completed_) {
    const std::uint64_t asked = std::min(piece_bytes, bytes - completion.token);
    if (completion.error == 0 && completion.bytes == asked) continue;
    // A cache's loss, and no reason to refuse to start: what did not arrive does not check itself, and is free slots.
    operations_.count_io_error();
  }

  struct Candidate {
    std::uint32_t depth;
    std::uint32_t slot;
    std::uint64_t generation;
  };
  const auto record_at = [&](std::uint32_t slot) {
    return decode_record(records.span(std::size_t{slot} * record_bytes, record_bytes));
  };
  std::vector<Candidate> candidates;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const std::optional<CatalogRecord> record = record_at(slot);
    if (!record || record->slot != slot || record->length != layout.block_bytes || !directory_.had_data(SlotId{slot}) ||
        record->fingerprint_prefix != fingerprint_prefix(fingerprint_)) {
      continue;
    }
    candidates.push_back({record->block.depth, slot, record->generation});
  }
  // Parents first; and of two records of a key, which a crash between the two pages can leave, the newer one first.
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple{a.depth, b.generation, a.slot} < std::tuple{b.depth, a.generation, b.slot};
  });
  for (const Candidate& candidate : candidates) {
    const std::optional<CatalogRecord> record = record_at(candidate.slot);
    operations_.index().advance_past(candidate.generation);
    if (operations_.index().restore(SlotId{candidate.slot}, record->block, candidate.generation)) {
      seals_[candidate.slot] = {record->checksum, record->generation};
    } else {
      pages_.mark(candidate.slot / records_per_page);
    }
  }
}

}  // namespace terrace
