// The catalog of a file store: the part of FileStore that writes it while the store serves, and reads it when the store starts.
// The catalog is the file `catalog`, which has one record for each slot: which block the slot holds, and the checksum of its
// data. The record format is in storage/format/format.hpp. The offline reader of a catalog is storage/format/catalog_scan.hpp.

#include "base/check.hpp"
#include "storage/file/file_store.hpp"

#include <algorithm>
#include <cstring>

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
    // The image is a copy, because the page may change again while the engine writes it.
    write.records = encode_page(*write.page, write.image.span());
    records_on_disk_[*write.page] |= write.records;
    batch_.push_back({.kind = IoOperation::Kind::write,
                      .token = page_token | n,
                      .file = files_.catalog(),
                      .offset = files_.layout().page_offset(*write.page),
                      .from = write.image.span(),
                      .ahead = true});
  }
  submit_batch();
}

void FileStore::page_ended(const IoCompletion& completion) {
  PageWrite& write = page_writes_[completion.token & ~page_token];
  TERRACE_CHECK(write.page.has_value());
  const bool whole = completion.error == 0 && completion.bytes == catalog_page_bytes;
  if (!whole) operations_.count_io_error();
  catalog_unsynced_ = true;
  // Writes do not wait for a page that cannot be written. If an old record stays, it does not match the new data, and the block
  // fails verification.
  records_on_disk_[*write.page] = whole ? write.records : 0;
  pages_.ended(*write.page, whole ? DirtyPages::Outcome::written : DirtyPages::Outcome::failed);
  write.page.reset();
}

void FileStore::submit_held() {
  if (held_.empty()) return;
  std::erase_if(held_, [this](const IoOperation& write) {
    const bool waits = has_record(operations_.slot_of(StoreOperations::Id{static_cast<std::uint32_t>(write.token)}));
    if (!waits) batch_.push_back(write);
    return !waits;
  });
  submit_batch();
}

std::uint32_t FileStore::encode_page(std::uint32_t page, std::span<std::byte> into) const {
  static_assert(records_per_page <= 32, "a bit for each");
  std::uint32_t records = 0;
  const StoreIndex& index = operations_.index();
  std::memset(into.data(), 0, into.size());
  for (std::uint32_t n = 0; n < records_per_page; ++n) {
    const std::uint32_t slot = page * records_per_page + n;
    if (slot >= index.slots()) break;
    if (index.at(SlotId{slot}).state != StoreIndex::State::ready) continue;
    CatalogRecord record{.block = index.block(SlotId{slot}),
                         .length = static_cast<std::uint32_t>(files_.layout().block_bytes),
                         .checksum = records_[slot].checksum,
                         .fingerprint_prefix = fingerprint_prefix(fingerprint_),
                         .generation = records_[slot].generation,
                         .slot = slot};
    if (record.block.tenant == TenantId{}) record.block.tenant = label_tenant_;
    encode(record, into.subspan(std::size_t{n} * record_bytes, record_bytes));
    records |= 1U << n;
  }
  return records;
}

/// Reads the catalog. Records are handled as their pieces arrive, in any order, so that device and processor work at the same
/// time.
void FileStore::restore() {
  const std::uint32_t slots = files_.recorded_slots();
  if (slots == 0) return;

  constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;
  constexpr std::uint64_t pieces_under_way = 8;
  const std::uint64_t bytes = (slots + records_per_page - 1) / records_per_page * catalog_page_bytes;
  AlignedBuffer buffers{std::min(bytes, piece_bytes * pieces_under_way)};
  std::uint64_t next = 0;
  const auto begin_piece = [&](std::uint64_t buffer) {
    if (next >= bytes) return;
    const std::uint64_t length = std::min(piece_bytes, bytes - next);
    batch_.push_back({.kind = IoOperation::Kind::read,
                      .token = next | buffer,  // pieces begin at multiples of a page, so the low bits are free for the buffer
                      .file = files_.catalog(),
                      .offset = files_.layout().page_offset(0) + next,
                      .into = buffers.span(buffer * piece_bytes, length)});
    next += length;
  };
  for (std::uint64_t buffer = 0; buffer < pieces_under_way; ++buffer) begin_piece(buffer);
  for (;;) {
    submit_batch();
    if (engine_.in_flight() == 0) break;
    engine_.wait();
    completed_.clear();
    engine_.poll(completed_);
    for (const IoCompletion& completion : completed_) {
      const std::uint64_t buffer = completion.token % catalog_page_bytes;
      const std::uint64_t at = completion.token - buffer;
      const std::uint64_t asked = std::min(piece_bytes, bytes - at);
      // An unreadable record loses only a cached block, which is no reason to refuse the start. Its slot becomes free.
      if (completion.error != 0 || completion.bytes != asked) operations_.count_io_error();
      const std::uint64_t arrived = completion.error != 0 ? 0 : completion.bytes;
      restore_records(static_cast<std::uint32_t>(at / record_bytes), buffers.span(buffer * piece_bytes, arrived));
      begin_piece(buffer);
    }
  }
  // A crash between the writes of two pages can leave two records with the same key, or a block without its parent.
  std::vector<SlotId> dropped;
  operations_.index().finish_restore(dropped);
  for (const SlotId slot : dropped) pages_.mark(slot.value() / records_per_page);
}

void FileStore::restore_records(std::uint32_t first, std::span<const std::byte> records) {
  const std::uint64_t of_this_store = fingerprint_prefix(fingerprint_);
  const auto count = static_cast<std::uint32_t>(records.size() / record_bytes);
  const auto at = [&](std::uint32_t n) { return records.subspan(std::size_t{n} * record_bytes, record_bytes); };
  constexpr std::uint32_t ahead = 16;
  for (std::uint32_t slot = first; slot < first + count && slot < files_.recorded_slots(); ++slot) {
    if (slot - first + ahead < count) operations_.index().expect(key_of_record(at(slot - first + ahead)));
    auto record = decode_record(at(slot - first));
    if (!record || record->slot != slot || record->length != files_.layout().block_bytes || !files_.had_data(SlotId{slot}) ||
        record->fingerprint_prefix != of_this_store) {
      continue;
    }
    if (record->block.tenant == label_tenant_) record->block.tenant = {};
    records_[slot] = {record->checksum, record->generation};
    files_.note_data(SlotId{slot});
    records_on_disk_[slot / records_per_page] |= 1U << slot % records_per_page;
    const std::optional<SlotId> dropped = operations_.index().restore(SlotId{slot}, record->block, record->generation);
    if (dropped) pages_.mark(dropped->value() / records_per_page);
  }
}

}  // namespace terrace
