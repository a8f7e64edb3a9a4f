// The part of FileStore that makes its data durable, in a flush and when it closes.
//
// A round of flushes first makes the data files durable and at the same time writes the catalog's pages. Then it makes the
// catalog durable and checks that all files are still in place. Then all flushes of this round end. A flush that is requested
// meanwhile shares the next round (group commit).
//
// The catalog comes last, because after a flush every durable record must match durable data. Outside of a flush, the operating
// system may write a record before its data; such a record does not match the data, and the block fails verification.

#include "base/check.hpp"
#include "storage/file/file_store.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace terrace {

void FileStore::flush(std::uint64_t token) {
  TERRACE_CHECK(!closed_);
  flushes_.push_back(token);
  go_on_with_flush();
  wake_for_events();
}

void FileStore::go_on_with_flush() {
  if (flush_phase_ == FlushPhase::idle && !flushes_.empty()) begin_flush();
  if (phase_operations_ > 0) return;
  if (flush_phase_ == FlushPhase::catalog) return end_flush();
  if (flush_phase_ == FlushPhase::idle || pages_.owed() > 0 || capacity_.note() == CapacityManager::Note::waiting) return;
  if (std::exchange(catalog_unsynced_, false)) {
    batch_.push_back(
        {.kind = IoOperation::Kind::sync, .token = sync_token | files_.catalog_file(), .file = files_.catalog(), .ahead = true});
  }
  add_checks();
  flush_phase_ = FlushPhase::catalog;
  phase_operations_ = static_cast<std::uint32_t>(batch_.size());
  submit_batch();
}

void FileStore::begin_flush() {
  mark_changed();
  capacity_.retry_note();
  pages_.retry_failed();
  pages_.begin_owing();
  for (std::uint32_t file = files_.first_data_file(); file < files_.files(); ++file) {
    // This sync may miss a write that ends from now on; such a write marks its file as unsynced again.
    if (!files_.take_unsynced(file)) continue;
    batch_.push_back({.kind = IoOperation::Kind::sync, .token = sync_token | file, .file = files_.file(file), .ahead = true});
  }
  flush_phase_ = FlushPhase::data;
  served_flushes_.swap(flushes_);
  phase_operations_ = static_cast<std::uint32_t>(batch_.size());
  submit_batch();
  write_pages();
}

void FileStore::sync_ended(const IoCompletion& completion) {
  if (completion.error == 0) return;
  operations_.count_io_error();
  doubt(errno_code(completion.error), static_cast<std::uint32_t>(completion.token & ~sync_token),
        "a sync of the store's files has failed");
}

/// Handles a failed sync or check of the file. If only one directory is affected and others remain, that directory is marked as
/// lost. Otherwise no flush can succeed any more.
void FileStore::doubt(const ErrorCode& error, std::uint32_t file, const std::string& why) {
  if (files_.give_up_directory_of(file)) {
    flush_error_ = error;
  } else if (!doubt_) {
    doubt_ = error;
    durability_lost_ = fmt::format("{} ({}): from now on nothing is durable until the next start, which may not find what is "
                                   "stored",
                                   why, error.message());
  }
}

void FileStore::add_checks() {
  for (std::uint32_t file = 0; file < files_.files(); ++file) {
    if (files_.file_is_lost(file)) continue;
    batch_.push_back({.kind = IoOperation::Kind::check,
                      .token = check_token | file,
                      .file = files_.file(file),
                      .length = files_.bytes_expected(file),
                      .ahead = true});
  }
  add_superblock_check();
}

void FileStore::add_superblock_check() {
  superblock_expected_ = files_.superblock();
  batch_.push_back({.kind = IoOperation::Kind::read,
                    .token = superblock_check_token,
                    .file = files_.catalog(),
                    .into = superblock_page_.span(),
                    .ahead = true});
}

bool FileStore::check_ended(const IoCompletion& completion) {
  const bool of_superblock = completion.token == superblock_check_token;
  ErrorCode error = completion.error != 0 ? errno_code(completion.error) : ErrorCode{};
  if (of_superblock && !error) {
    const Result<Superblock> found = decode_superblock(superblock_page_.span());
    if (completion.bytes != catalog_page_bytes || !found || *found != superblock_expected_) error = Errc::corrupt;
    // The superblock may have been written while it was read.
    if (error && (capacity_.writes_superblock() || superblock_expected_ != files_.superblock())) {
      add_superblock_check();
      submit_batch();
      return false;
    }
  }
  if (!error) return true;

  const std::uint32_t file = of_superblock ? files_.catalog_file() : static_cast<std::uint32_t>(completion.token & ~check_token);
  const char* const what = of_superblock                  ? "has lost its superblock"
                           : error == errno_code(ESTALE)  ? "is another file now"
                           : error == errno_code(ENODATA) ? "has been cut short"
                                                          : "cannot be found any more";
  doubt(error, file, fmt::format("{} {}", files_.path_of_file(file).string(), what));
  return true;
}

void FileStore::end_flush() {
  const ErrorCode in_this_one = std::exchange(flush_error_, {});
  const ErrorCode error = doubt_                                                                      ? doubt_
                          : in_this_one                                                               ? in_this_one
                          : pages_.owed_failed() || capacity_.note() == CapacityManager::Note::failed ? ErrorCode{Errc::io_failed}
                                                                                                      : ErrorCode{};
  flush_phase_ = FlushPhase::idle;
  for (const std::uint64_t token : served_flushes_) operations_.end_flush(token, error);
  served_flushes_.clear();
  // Begins the next flush if one was asked for meanwhile.
  go_on_with_flush();
}

Result<void> FileStore::close() {
  if (closed_) return {};
  capacity_.stop();
  const auto finish = [this] {
    while (engine_.in_flight() > 0) {
      engine_.wait();
      collect();
    }
  };
  finish();
  // Data must be durable before the records that describe them.
  for (std::uint32_t file = files_.first_data_file(); file < files_.files(); ++file) {
    if (!files_.file_is_lost(file)) sync(file);
  }
  add_checks();
  submit();
  while (engine_.in_flight() > 0) {
    engine_.wait();
    completed_.clear();
    engine_.poll(completed_);
    for (const IoCompletion& completion : completed_) (void)check_ended(completion);
  }
  sweep_lost(Sweep::all);
  const bool noted = capacity_.write_note();
  pages_.retry_failed();
  collect();
  finish();
  sync(files_.catalog_file());
  files_.close();
  closed_ = true;
  if (doubt_) return doubt_;
  if (pages_.failed() > 0 || !noted) return Errc::io_failed;
  return {};
}

void FileStore::sync(std::uint32_t file) {
  sync_ended(run_alone(engine_, {.kind = IoOperation::Kind::sync, .token = sync_token | file, .file = files_.file(file)}));
}

}  // namespace terrace
