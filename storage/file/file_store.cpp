#include "storage/file/file_store.hpp"

#include "base/check.hpp"

#include <cerrno>

namespace terrace {

FileStore::FileStore(const FileStoreConfig& config, IoEngine& engine)
    : engine_{engine},
      fingerprint_{config.fingerprint},
      directory_{config, engine},
      operations_{directory_.layout().slots, config.block_bytes, config.writes_max},
      health_{directory_.layout().directories},
      space_{config, operations_, directory_, health_, engine},
      seals_(directory_.layout().slots),
      pages_{directory_.layout().catalog_pages(), pages_under_way_max},
      page_writes_(pages_under_way_max),
      records_on_disk_(directory_.layout().catalog_pages()),
      superblock_page_{catalog_page_bytes},
      data_ends_(directory_.data_files().size()),
      unsynced_(directory_.data_files().size(), true) {
  for (PageWrite& write : page_writes_) write.image = AlignedBuffer{catalog_page_bytes};
  for (std::uint32_t n = 0; n < directory_.layout().directories; ++n) {
    if (directory_.missing(n)) (void)health_.lose(n);
  }
  if (directory_.restored()) operations_.count_io_error();
  restore();
  sweep_lost(Sweep::all);
  std::vector<SlotId> gone;
  space_.start(gone);
  for (const SlotId slot : gone) pages_.mark(slot.value() / records_per_page);
  directory_.commit();
  pump_space();
  write_pages();
}

FileStore::~FileStore() { (void)close(); }

IoOperation FileStore::operation_on(const StoreOperations::Started& started, IoOperation::Kind kind) {
  if (started.id.value() >= moving_.size()) moving_.resize(started.id.value() + std::size_t{1});
  moving_[started.id.value()] = {kind, started.slot, seals_[started.slot.value()].checksum};
  return {.kind = kind,
          .token = started.id.value(),
          .file = directory_.data(started.slot),
          .offset = directory_.layout().offset_of(started.slot),
          .seal = &fingerprint_};
}

void FileStore::read(std::span<const StoreRead> batch) {
  TERRACE_CHECK(!closed_);
  operations_.begin_call();
  for (const StoreRead& read : batch) {
    TERRACE_CHECK(read.into.size() == directory_.layout().block_bytes);
    const auto started = operations_.start_read(read);
    if (!started) continue;
    if (is_lost(started->slot)) {
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
    TERRACE_CHECK(write.from.size() == directory_.layout().block_bytes);
    const auto started = operations_.start_write(write);
    if (!started) continue;
    if (is_lost(started->slot)) {
      operations_.end_write(started->id, StoreOperations::WriteOutcome::lost);
      continue;
    }
    seals_[started->slot.value()] = {0, operations_.index().now()};
    IoOperation operation = operation_on(*started, IoOperation::Kind::write);
    operation.from = write.from;
    operation.key = write.block.key;
    if (has_record(started->slot)) {
      held_.push_back({started->slot, operation});
      pages_.mark(started->slot.value() / records_per_page);
    } else {
      batch_.push_back(operation);
    }
  }
  submit();
  write_pages();
}

void FileStore::submit() {
  engine_.submit(batch_);
  batch_.clear();
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

Result<void> FileStore::resize(std::uint32_t blocks) {
  TERRACE_CHECK(!closed_);
  operations_.begin_call();
  const Result<void> resized = space_.resize(blocks);
  pump_space();
  wake_for_events();
  return resized;
}

void FileStore::pump_space() {
  space_.pump();
  const StoreLayout& layout = directory_.layout();
  if (seals_.size() == layout.slots) return;
  seals_.resize(layout.slots);
  pages_.grow(layout.catalog_pages());
  records_on_disk_.resize(layout.catalog_pages());
  data_ends_.resize(directory_.data_files().size());
  unsynced_.resize(directory_.data_files().size(), true);
}

StoreStat FileStore::stat() const { return completed(operations_.stat()); }

StoreStat FileStore::completed(StoreStat stat) const {
  space_.add_to(stat);
  stat.directories = directory_.layout().directories;
  stat.directories_lost = health_.lost();
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
    } else if ((completion.token & check_token) != 0) {
      if (check_ended(completion)) flush_.operation_ended();
    } else if ((completion.token & CapacityManager::token) != 0) {
      space_.ended(completion);
      catalog_unsynced_ = true;  // the superblock, perhaps
    } else {
      block_ended(completion);
    }
  }
  sweep_lost(Sweep::some);
  pump_space();
  mark_changed();
  submit_held();
  write_pages();
  go_on_with_flush();
}

void FileStore::block_ended(const IoCompletion& completion) {
  const StoreOperations::Id id{static_cast<std::uint32_t>(completion.token)};
  const Moving& moved = moving_[id.value()];
  const bool whole = completion.error == 0 && completion.bytes == directory_.layout().block_bytes;
  const bool no_space = completion.error == ENOSPC || completion.error == EDQUOT;
  note_outcome(moved.slot, !whole && !no_space);
  if (moved.kind == IoOperation::Kind::read) {
    using Outcome = StoreOperations::ReadOutcome;
    const Outcome of_whole = completion.checksum == moved.checksum ? Outcome::verified : Outcome::corrupt;
    operations_.end_read(id, whole ? of_whole : Outcome::io_failed);
    return;
  }
  unsynced_[directory_.layout().file_of(moved.slot)] = true;
  using Outcome = StoreOperations::WriteOutcome;
  if (whole) {
    seals_[moved.slot.value()].checksum = completion.checksum;
    space_.wrote(moved.slot);
    note_data(moved.slot);
  }
  operations_.end_write(id, whole ? Outcome::done : no_space ? Outcome::no_space : Outcome::io_failed);
}

void FileStore::for_each(const std::function<void(const StoredBlock&)>& visit) const { operations_.for_each(visit); }

std::optional<FileStore::Location> FileStore::location(const BlockKey& key) const {
  const StoreIndex& index = operations_.index();
  const std::optional<SlotId> slot = index.find(key);
  if (!slot || index.at(*slot).state != StoreIndex::State::ready) return std::nullopt;
  const StoreLayout& layout = directory_.layout();
  return Location{directory_.data_path(layout.file_of(*slot)), layout.offset_of(*slot)};
}

bool FileStore::is_direct() const {
  const std::vector<FileId>& files = directory_.data_files();
  for (std::size_t file = 0; file < files.size(); ++file) {
    if (directory_.missing(static_cast<std::uint32_t>(file % directory_.layout().directories))) continue;
    if (engine_.files().direct(files[file]) == Direct::no) return false;
  }
  return true;
}

void FileStore::check_invariants() const {
  operations_.check_invariants();
  space_.check_invariants();
  TERRACE_CHECK(seals_.size() == directory_.layout().slots);
  std::uint32_t under_way = 0;
  for (const PageWrite& write : page_writes_) under_way += write.page.has_value();
  TERRACE_CHECK(under_way == pages_.under_way());
  // Else nobody would hand those writes over.
  TERRACE_CHECK(held_.empty() || under_way > 0);
}

}  // namespace terrace
