// The part of FileSet that opens the further directories of a striped store.

#include "storage/file/file_set.hpp"
#include "storage/format/refuse_store.hpp"
#include "storage/io/aligned_buffer.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <system_error>

namespace terrace {
namespace {

constexpr const char* part_name = "stripe";

std::uint64_t random_id() {
  std::random_device device;
  const std::uint64_t id = (std::uint64_t{device()} << 32) | device();
  return id == 0 ? 1 : id;
}

bool is(const std::system_error& error, Errc code) { return error.code() == static_cast<std::error_code>(make_error_code(code)); }

}  // namespace

void FileSet::open_parts(const FileStoreConfig& config) {
  const bool is_new = recorded_slots_ == 0;
  if (is_new) begin_parts(config);
  for (const std::filesystem::path& more : config.more_directories) {
    parts_.push_back({config.name.empty() ? more : more / config.name});
    const auto number = static_cast<std::uint32_t>(parts_.size() - 1);
    const std::size_t steps = undo_.size();
    const std::size_t files = open_.size();
    try {
      open_part(number, config);
    } catch (const std::system_error& error) {
      // A directory that another process uses, or that has other contents, is an error in the configuration, not a loss.
      if (is_new || !config.accept_lost_directories || is(error, Errc::in_use) || is(error, Errc::incompatible)) throw;
      undo_to(steps);
      close_to(files);
      parts_.back().missing = true;
    }
  }
}

void FileSet::begin_parts(const FileStoreConfig& config) {
  const std::optional<StorePart> found = first_part();
  superblock_.id = found ? found->store : config.id != 0 ? config.id : random_id();
  write_part({superblock_.id, 1, layout_.directories}, open(path(part_name), Direct::no), directory_);
}

void FileSet::open_part(std::uint32_t number, const FileStoreConfig& config) {
  const bool is_new = recorded_slots_ == 0;
  const bool may_be_empty = is_new || config.accept_lost_directories;
  const std::filesystem::path& directory = parts_[number].directory;
  if (is_new) make(config.more_directories[number - 1]);
  if (may_be_empty && !config.name.empty()) make(directory);
  try {
    parts_[number].lock = lock(directory);
  } catch (const std::system_error& error) {
    if (is_new || is(error, Errc::in_use) || is(error, Errc::incompatible)) throw;
    refuse_store(errno_code(error.code().value()),
                 "the file store in {} is striped over {} directories, and {}, which has part {} of it, cannot be used: mount "
                 "its disk, or accept that what it held is lost",
                 directory_.string(), layout_.directories, directory.string(), number + 1);
  }
  if (const Result<OpenedFile> catalog = files_.open(directory / "catalog", Create::no, Direct::no)) {
    files_.close(catalog->id);
    refuse_store(Errc::incompatible,
                 "{} should be part {} of the file store in {}, but is the first directory of another one: give another "
                 "directory, or remove it",
                 directory.string(), number + 1, directory_.string());
  }
  claim(number, may_be_empty);
  const std::filesystem::path link = part_directory(directory_, number);
  const Result<Made> linked = files_.link_directory(link, std::filesystem::absolute(directory));
  require(linked, "cannot make the link {}", link.string());
  if (*linked == Made::created) undo_.push_back([this, link] { (void)files_.remove_file(link); });
}

void FileSet::claim(std::uint32_t number, bool may_be_empty) {
  const std::filesystem::path& directory = parts_[number].directory;
  const StorePart ours{superblock_.id, number + 1, layout_.directories};
  const std::optional<StorePart> found = part_in(directory);
  if (found == ours) return;
  // An earlier start that was interrupted may have had another number of directories.
  const bool is_new = recorded_slots_ == 0;
  if (found && found->store == ours.store && is_new) return write_part(ours, open(directory / part_name, Direct::no), directory);
  if (found && found->store == ours.store && found->of == ours.of) {
    refuse_store(Errc::incompatible,
                 "{} is given as part {} of the file store in {}, but is its part {}: give the directories in their order",
                 directory.string(), ours.part, directory_.string(), found->part);
  }
  if (found) {
    refuse_store(
        Errc::incompatible,
        "{} should be part {} of the file store in {}, but is part {} of another one: give another directory, or remove it",
        directory.string(), ours.part, directory_.string(), found->part);
  }
  if (!may_be_empty) {
    refuse_store(errno_code(ENOENT),
                 "the file store in {} is striped over {} directories, and {}, which should have part {} of it, is empty: mount "
                 "its disk, or accept that what it held is lost",
                 directory_.string(), ours.of, directory.string(), ours.part);
  }
  write_part(ours, open(directory / part_name, Direct::no), directory);
}

void FileSet::write_part(const StorePart& part, FileId file, const std::filesystem::path& directory) {
  AlignedBuffer buffer{part_text_bytes};
  const std::span<std::byte> bytes = buffer.span(0, part_text_bytes);
  std::memcpy(bytes.data(), to_text(part).data(), bytes.size());
  ErrorCode error = error_of(run_alone(engine_, {.kind = IoOperation::Kind::write, .file = file, .from = bytes}), bytes.size());
  if (!error) error = error_of(run_alone(engine_, {.kind = IoOperation::Kind::sync, .file = file}), 0);
  if (error) refuse_store(error, "cannot write {}", (directory / part_name).string());
  // The name must be durable, too. Otherwise the next part could name a store that is unknown here.
  require(files_.sync_directory(directory), "cannot sync the directory {}", directory.string());
}

std::optional<StorePart> FileSet::part_in(const std::filesystem::path& directory) {
  const Result<OpenedFile> opened = files_.open(directory / part_name, Create::no, Direct::no);
  if (!opened) {
    if (opened.error() == errno_code(ENOENT)) return std::nullopt;
    cannot_open(directory / part_name, opened.error());
  }
  AlignedBuffer buffer{part_text_bytes};
  const std::span<std::byte> bytes = buffer.span(0, part_text_bytes);
  const IoCompletion read = run_alone(engine_, {.kind = IoOperation::Kind::read, .file = opened->id, .into = bytes});
  files_.close(opened->id);
  if (read.error != 0) refuse_store(errno_code(read.error), "cannot read {}", (directory / part_name).string());
  return parse_part({reinterpret_cast<const char*>(bytes.data()), read.bytes});
}

std::optional<StorePart> FileSet::first_part() {
  const std::optional<StorePart> found = part_in(directory_);
  if (!found || found->part == 1) return found;  // the creation of the store was interrupted
  refuse_store(Errc::incompatible,
               "{} is part {} of a file store that is striped over {} directories: give its first directory first, or remove it "
               "to start empty",
               directory_.string(), found->part, found->of);
}

}  // namespace terrace
