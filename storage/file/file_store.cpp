#include "storage/file/file_store.hpp"

#include "base/check.hpp"
#include "storage/file/store_owner.hpp"
#include "storage/format/store_label.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace terrace {

FileStore::FileStore(const FileStoreConfig& config, IoEngine& engine)
    : engine_{engine},
      fingerprint_{config.fingerprint},
      label_tenant_{tenant_of(config.label)},
      files_{config, engine},
      operations_{files_.layout().slots, config.block_bytes, config.writes_max},
      capacity_{config, operations_, files_, engine},
      records_(files_.layout().slots),
      pages_{files_.layout().catalog_pages(), pages_under_way_max},
      page_writes_(pages_under_way_max),
      records_on_disk_(files_.layout().catalog_pages()),
      superblock_page_{catalog_page_bytes} {
  for (PageWrite& write : page_writes_) write.image = AlignedBuffer{catalog_page_bytes};
  if (files_.restored()) operations_.count_io_error();
  restore();
  sweep_lost(Sweep::all);
  std::vector<SlotId> gone;
  capacity_.start(gone);
  for (const SlotId slot : gone) pages_.mark(slot.value() / records_per_page);
  files_.commit();
  if (!config.label.empty()) record_label(engine, files_.superblock_copy(), config.label);
  pump_capacity();
  write_pages();
}

IoOperation FileStore::operation_on(const StoreOperations::Started& started, IoOperation::Kind kind) {
  IoOperation operation = files_.operation(kind, started.slot);
  operation.token = started.id.value();
  operation.fingerprint = &fingerprint_;
  return operation;
}

void FileStore::read(std::span<const StoreRead> batch) {
  TERRACE_CHECK(!closed_);
  operations_.begin_call();
  for (const StoreRead& read : batch) {
    TERRACE_CHECK(read.into.size() == files_.layout().block_bytes);
    const auto started = operations_.start_read(read);
    if (!started) continue;
    if (files_.is_lost(started->slot)) {
      operations_.end_read(started->id, StoreOperations::ReadOutcome::lost);
      continue;
    }
    batch_.push_back(operation_on(*started, IoOperation::Kind::read));
    batch_.back().into = read.into;
    batch_.back().key = read.key;
  }
  submit();
}

void FileStore::write(std::span<const StoreWrite> batch) {
  TERRACE_CHECK(!closed_);
  operations_.begin_call();
  for (const StoreWrite& write : batch) {
    TERRACE_CHECK(write.from.size() == files_.layout().block_bytes);
    const auto started = operations_.start_write(write);
    if (!started) continue;
    if (files_.is_lost(started->slot)) {
      operations_.end_write(started->id, StoreOperations::WriteOutcome::lost);
      continue;
    }
    records_[started->slot.value()] = {0, operations_.index().now()};
    IoOperation operation = operation_on(*started, IoOperation::Kind::write);
    operation.from = write.from;
    operation.key = write.block.key;
    if (has_record(started->slot)) {
      held_.push_back(operation);
      pages_.mark(started->slot.value() / records_per_page);
    } else {
      batch_.push_back(operation);
    }
  }
  submit();
  write_pages();
}

void FileStore::submit_batch() {
  engine_.submit(batch_);
  batch_.clear();
}

void FileStore::submit() {
  submit_batch();
  wake_for_events();
}

void FileStore::remove(std::span<const BlockKey> keys, std::uint64_t token) {
  TERRACE_CHECK(!closed_);
  operations_.begin_call();
  operations_.remove(keys, token);
  wake_for_events();
}

void FileStore::touch(std::span<const BlockKey> keys) {
  TERRACE_CHECK(!closed_);
  operations_.begin_call();
  operations_.touch(keys);
}

Result<void> FileStore::resize(Blocks blocks) {
  TERRACE_CHECK(!closed_);
  operations_.begin_call();
  const Result<void> resized = capacity_.resize(blocks.value());
  pump_capacity();
  wake_for_events();
  return resized;
}

void FileStore::pump_capacity() {
  capacity_.pump();
  if (records_.size() == files_.layout().slots) return;
  records_.resize(files_.layout().slots);
  pages_.grow(files_.layout().catalog_pages());
  records_on_disk_.resize(files_.layout().catalog_pages());
}

StoreStat FileStore::completed(StoreStat stat) const {
  capacity_.add_to(stat);
  files_.add_to(stat);
  return stat;
}

void FileStore::wake_for_events() {
  if (operations_.has_events()) engine_.waker().wake();
}

std::size_t FileStore::poll(std::vector<StoreEvent>& out) {
  if (!closed_) collect();
  return operations_.poll(out);
}

void FileStore::collect() {
  completed_.clear();
  engine_.poll(completed_);
  for (const IoCompletion& completion : completed_) {
    if ((completion.token & page_token) != 0) {
      page_ended(completion);
    } else if ((completion.token & sync_token) != 0) {
      sync_ended(completion);
      --phase_operations_;
    } else if ((completion.token & check_token) != 0) {
      if (check_ended(completion)) --phase_operations_;
    } else if ((completion.token & CapacityManager::token) != 0) {
      capacity_.ended(completion);
      catalog_unsynced_ = true;  // it may have been a write of the superblock
    } else {
      block_ended(completion);
    }
  }
  // The ends above have changed the index. First mark its pages; then start the writes that waited for a page; then write pages;
  // last, see whether the flush still waits for one.
  sweep_lost(Sweep::some);
  pump_capacity();
  mark_changed();
  submit_held();
  write_pages();
  go_on_with_flush();
}

void FileStore::block_ended(const IoCompletion& completion) {
  const StoreOperations::Id id{static_cast<std::uint32_t>(completion.token)};
  const SlotId slot = operations_.slot_of(id);
  const bool whole = completion.error == 0 && completion.bytes == files_.layout().block_bytes;
  const bool no_space = is_no_space(completion.error);
  files_.note_outcome(slot, !whole && !no_space);
  if (!operations_.is_write(id)) {
    using Outcome = StoreOperations::ReadOutcome;
    // The verification of a block: the I/O worker has computed the checksum of the bytes that it has read, together with the key
    // that was asked for. The record has the checksum of the write.
    const Outcome of_whole = completion.checksum == records_[slot.value()].checksum ? Outcome::verified : Outcome::corrupt;
    operations_.end_read(id, whole ? of_whole : Outcome::io_failed);
    return;
  }
  files_.note_unsynced(slot);
  using Outcome = StoreOperations::WriteOutcome;
  if (whole) {
    records_[slot.value()].checksum = completion.checksum;
    capacity_.wrote(slot);
    files_.note_data(slot);
  }
  operations_.end_write(id, whole ? Outcome::done : no_space ? Outcome::no_space : Outcome::io_failed);
}

/// Drops the blocks in lost slots. It must be called until is_swept(), because slots that an operation uses, or that are closing,
/// can be handled only later.
void FileStore::sweep_lost(Sweep extent) {
  using State = StoreIndex::State;
  if (is_swept()) return;
  const StoreIndex& index = operations_.index();
  const std::uint32_t before = index.count(State::lost);
  std::uint32_t looks = extent == Sweep::all ? files_.layout().slots : std::min(sweep_looks_max, files_.layout().slots);
  while (looks > 0) {
    const SlotId slot{sweep_at_ < files_.layout().slots ? sweep_at_ : 0};
    if (!files_.is_lost(slot)) {
      const std::uint32_t end = files_.end_of_run(slot);
      looks -= std::min(looks, end - slot.value());
      sweep_at_ = end;
      continue;
    }
    const bool was_closed = index.at(slot).state == State::closed || index.at(slot).state == State::lost;
    if (operations_.lose(slot) && !was_closed) capacity_.lost(slot);
    sweep_at_ = slot.value() + 1;
    --looks;
  }
  // Wake the owner, so that it polls the events and calls again.
  if (index.count(State::lost) > before) engine_.waker().wake();
}

std::optional<FileStore::Location> FileStore::location(const BlockKey& key) const {
  const StoreIndex& index = operations_.index();
  const std::optional<SlotId> slot = index.find(key);
  if (!slot || index.at(*slot).state != StoreIndex::State::ready) return std::nullopt;
  return Location{files_.path(*slot), files_.layout().offset_of(*slot)};
}

void FileStore::check_invariants() const {
  operations_.check_invariants();
  capacity_.check_invariants();
  TERRACE_CHECK(records_.size() == files_.layout().slots);
  std::uint32_t under_way = 0;
  for (const PageWrite& write : page_writes_) under_way += write.page.has_value();
  TERRACE_CHECK(under_way == pages_.under_way());
  // Without a page write under way, no completion would submit these writes.
  TERRACE_CHECK(held_.empty() || under_way > 0);
}

void add_health_of(const FileStore& files, StoreHealth& health) {
  health.lost_directories = files.lost_directories();
  if (!health.used_in_full) return;
  std::string reason = files.durability_lost();
  if (reason.empty() && !health.lost_directories.empty()) {
    reason = fmt::format("{} of the directories that it is striped over are lost until the next start, {} among them",
                         health.lost_directories.size(), health.lost_directories.front().string());
  }
  if (reason.empty()) return;
  health.state = StoreState::degraded;
  health.used_in_full = false;
  health.reason = std::move(reason);
}

}  // namespace terrace
