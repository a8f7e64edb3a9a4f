// The part of FileStore that makes durable what it has: while serving, and when it closes.

#include "base/check.hpp"
#include "storage/file_store.hpp"

#include <optional>
#include <utility>

namespace terrace {

void FileStore::flush(std::uint64_t token) {
  TERRACE_CHECK(!closed_);
  flush_.ask(token);
  go_on_with_flush();
  wake_for_events();
}

void FileStore::go_on_with_flush() {
  if (flush_.wants_to_begin()) begin_flush();
  if (!flush_.data_are_synced() || pages_.owed() > 0 || space_.note() == StoreSpace::Note::waiting) return;
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
  space_.retry_note();
  pages_.retry_failed();
  pages_.begin_owing();
  for (std::size_t file = 0; file < unsynced_.size(); ++file) {
    if (!unsynced_[file] || health_.lost(static_cast<std::uint32_t>(file % directory_.layout().directories))) continue;
    // A write that ends from now on may be missed by this sync, and says so again.
    unsynced_[file] = false;
    batch_.push_back({.kind = IoOperation::Kind::sync,
                      .token = sync_token | file,
                      .file = directory_.data_files()[file],
                      .ahead = true});
  }
  flush_.begin(static_cast<std::uint32_t>(batch_.size()));
  engine_.submit(batch_);
  batch_.clear();
  write_pages();
}

void FileStore::sync_ended(const IoCompletion& completion) {
  const bool of_catalog = completion.token == catalog_sync_token;
  if (completion.error != 0) {
    operations_.count_io_error();
    const auto file = static_cast<std::uint32_t>(completion.token & ~sync_token);
    doubt(completion.error, of_catalog ? std::nullopt : std::optional{file % directory_.layout().directories});
  }
  if (of_catalog) {
    end_flush();
  } else {
    flush_.data_synced();
  }
}

/// A sync has failed. What of a directory is in doubt can be given up with it, while there are others.
void FileStore::doubt(int error, std::optional<std::uint32_t> directory) {
  if (directory && (health_.lost(*directory) || health_.lose(*directory))) {
    flush_error_ = errno_code(error);
  } else if (!doubt_) {
    doubt_ = errno_code(error);
  }
}

void FileStore::end_flush() {
  const ErrorCode in_this_one = std::exchange(flush_error_, {});
  const ErrorCode error = doubt_                  ? doubt_
                          : in_this_one           ? in_this_one
                          : pages_.owed_failed() || space_.note() == StoreSpace::Note::failed
                              ? ErrorCode{Errc::io_failed}
                              : ErrorCode{};
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
  for (std::size_t file = 0; file < directory_.data_files().size(); ++file) {
    const auto directory = static_cast<std::uint32_t>(file % directory_.layout().directories);
    if (!health_.lost(directory)) sync(directory_.data_files()[file], directory);
  }
  sweep_lost(Sweep::all);
  const bool noted = space_.write_note();
  pages_.retry_failed();
  collect();
  finish();
  sync(directory_.catalog(), std::nullopt);
  directory_.close();
  closed_ = true;
  if (doubt_) return doubt_;
  if (pages_.failed() > 0 || !noted) return Errc::io_failed;
  return {};
}

void FileStore::sync(FileId file, std::optional<std::uint32_t> directory) {
  const IoCompletion synced = run_alone(engine_, {.kind = IoOperation::Kind::sync, .file = file});
  if (synced.error == 0) return;
  operations_.count_io_error();
  doubt(synced.error, directory);
}

}  // namespace terrace
