// The part of FileStore that makes durable what it has: while serving, and when it closes.

#include "base/check.hpp"
#include "storage/file_store.hpp"

namespace terrace {

void FileStore::flush(std::uint64_t token) {
  TERRACE_CHECK(!closed_);
  flush_.ask(token);
  go_on_with_flush();
  wake_for_events();
}

void FileStore::go_on_with_flush() {
  if (flush_.wants_to_begin()) begin_flush();
  if (!flush_.data_are_synced() || pages_.owed() > 0) return;
  flush_.begin_catalog();
  if (!catalog_unsynced_) return end_flush();
  catalog_unsynced_ = false;
  batch_.push_back({.kind = IoOperation::Kind::sync,
                    .token = catalog_sync_token,
                    .file = directory_.catalog(),
                    .ahead = true});
  engine_.submit(batch_);
  batch_.clear();
}

void FileStore::begin_flush() {
  mark_changed();
  pages_.retry_failed();
  pages_.begin_owing();
  for (std::size_t file = 0; file < unsynced_.size(); ++file) {
    if (!unsynced_[file]) continue;
    // A write that ends from now on may be missed by this sync, and says so again.
    unsynced_[file] = false;
    batch_.push_back({.kind = IoOperation::Kind::sync,
                      .token = sync_token,
                      .file = directory_.data_files()[file],
                      .ahead = true});
  }
  flush_.begin(static_cast<std::uint32_t>(batch_.size()));
  engine_.submit(batch_);
  batch_.clear();
  write_pages();
}

void FileStore::sync_ended(const IoCompletion& completion) {
  if (completion.error != 0) {
    operations_.count_io_error();
    if (!doubt_) doubt_ = errno_code(completion.error);
  }
  if (completion.token == catalog_sync_token) {
    end_flush();
  } else {
    flush_.data_synced();
  }
}

void FileStore::end_flush() {
  const ErrorCode error = doubt_ ? doubt_ : pages_.owed_failed() ? ErrorCode{Errc::io_failed} : ErrorCode{};
  for (const std::uint64_t token : flush_.end()) operations_.end_flush(token, error);
  // For who asked meanwhile.
  go_on_with_flush();
}

Result<void> FileStore::close() {
  if (closed_) return {};
  space_.stop();
  const auto finish = [this] {
    while (engine_.in_flight() > 0) {
      engine_.wait();
      collect();
    }
  };
  finish();
  // Data before the records that speak of them.
  for (const FileId file : directory_.data_files()) sync(file);
  pages_.retry_failed();
  collect();
  finish();
  sync(directory_.catalog());
  directory_.close();
  closed_ = true;
  if (doubt_) return doubt_;
  if (pages_.failed() > 0) return Errc::io_failed;
  return {};
}

void FileStore::sync(FileId file) {
  const IoCompletion synced = run_alone(engine_, {.kind = IoOperation::Kind::sync, .file = file});
  if (synced.error == 0) return;
  operations_.count_io_error();
  if (!doubt_) doubt_ = errno_code(synced.error);
}

}  // namespace terrace
