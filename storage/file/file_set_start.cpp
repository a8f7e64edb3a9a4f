// The part of FileSet that opens, locks and sizes the files when a store starts.

#include "storage/file/file_set.hpp"

#include "base/check.hpp"
#include "storage/file/store_owner.hpp"
#include "storage/file/superblock_io.hpp"
#include "storage/format/catalog_scan.hpp"
#include "storage/format/refuse_store.hpp"
#include "storage/io/aligned_buffer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace terrace {
namespace {

static_assert(owner_text_bytes == superblock_copy_at, "the copy of the superblock follows the owner's text");

void check_directories(const FileStoreConfig& config) {
  const std::size_t directories = config.more_directories.size() + 1;
  if (directories > directories_max) {
    refuse_store(Errc::invalid_argument, "the file store in {} cannot be striped over {} directories: up to {} are possible",
                 config.directory.string(), directories, directories_max);
  }
  std::vector<std::filesystem::path> all{config.directory.lexically_normal()};
  for (const std::filesystem::path& more : config.more_directories) {
    if (std::find(all.begin(), all.end(), more.lexically_normal()) != all.end()) {
      refuse_store(Errc::invalid_argument,
                   "the file store in {} cannot be striped over {} twice: each directory must be on a disk of its own",
                   config.directory.string(), more.string());
    }
    all.push_back(more.lexically_normal());
  }
}

std::filesystem::path place_of(const FileStoreConfig& config) {
  check_directories(config);
  const auto safe = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-'; };
  if (!std::all_of(config.name.begin(), config.name.end(), safe) || config.name.size() > 64) {
    refuse_store(
        Errc::invalid_argument,
        "a file store in {} cannot have the name that it was given: up to 64 digits, lower-case letters and '-' are possible",
        config.directory.string());
  }
  return config.name.empty() ? config.directory : config.directory / config.name;
}

StoreLayout layout_of(const FileStoreConfig& config) {
  const std::uint64_t block_bytes = count(config.block_bytes);
  if (block_bytes == 0 || block_bytes % io_alignment != 0 || block_bytes > std::numeric_limits<std::uint32_t>::max()) {
    refuse_store(Errc::invalid_argument, "the file store in {} cannot have blocks of {}: give a multiple of 4KiB below 4GiB",
                 config.directory.string(), to_string(config.block_bytes));
  }
  if (count(config.capacity) == 0) {
    refuse_store(Errc::invalid_argument, "the file store in {} has no capacity: say how much of the disk it may take",
                 config.directory.string());
  }
  const auto directories = static_cast<std::uint32_t>(config.more_directories.size() + 1);
  StoreLayout layout{block_bytes, slots_within(config.capacity, block_bytes, directories), 0, directories, 0};
  if (layout.slots == 0) {
    refuse_store(Errc::invalid_argument,
                 "the capacity of the file store in {} is {}, too small for one block of {}: give {} or more",
                 config.directory.string(), to_string(config.capacity), to_string(config.block_bytes),
                 to_string(capacity_for(1, config.block_bytes, directories)));
  }
  const std::uint64_t per_file = count(config.data_file_bytes_max) / block_bytes;
  if (per_file == 0) {
    refuse_store(Errc::invalid_argument, "the file store in {} may not have data files of {}: that is less than one block of {}",
                 config.directory.string(), to_string(config.data_file_bytes_max), to_string(config.block_bytes));
  }
  layout.slots_per_file = static_cast<std::uint32_t>(std::min<std::uint64_t>(per_file, 0xFFFF'FFFE));
  if (directories > 1) {
    const std::uint64_t stripe = std::max<std::uint64_t>(count(config.stripe_bytes) / block_bytes, 1);
    layout.stripe_slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(stripe, layout.slots_per_file));
    layout.slots_per_file -= layout.slots_per_file % layout.stripe_slots;
  }
  return layout;
}

/// Throws if a store's own directory is not private.
void check_private(FileSystem& files, const std::filesystem::path& directory) {
  const Result<void> checked = files.check_private(directory);
  if (checked) return;
  if (checked.error() != errno_code(EPERM)) {
    refuse_store(checked.error(), "cannot look at the file store's directory {}", directory.string());
  }
  refuse_store(Errc::incompatible,
               "cannot use the directory {}: a store's own directory must belong to this user and be closed to all others (mode "
               "0700); change that, or give another name or directory",
               directory.string());
}

}  // namespace

ErrorCode error_of(const IoCompletion& completion, std::uint64_t bytes) {
  if (completion.error != 0) return errno_code(completion.error);
  return completion.bytes == bytes ? ErrorCode{} : ErrorCode{Errc::io_failed};
}

void cannot_open(const std::filesystem::path& path, const ErrorCode& error) {
  if (error == errno_code(EPERM)) {
    refuse_store(Errc::incompatible,
                 "cannot use {}: a store's file must be a regular file of this user, without further links, that nobody else may "
                 "read or write (mode 0600); remove it, or give another directory",
                 path.string());
  }
  const bool too_many = error == errno_code(EMFILE) || error == errno_code(ENFILE);
  refuse_store(error, "cannot open {}: {}", path.string(),
               too_many ? "raise the limit on open files (ulimit -n), or lower the capacity"
                        : "the file store's directory must be one that this user may write");
}

IoCompletion run_alone(IoEngine& engine, const IoOperation& operation) {
  TERRACE_CHECK(engine.in_flight() == 0);
  engine.submit({&operation, 1});
  std::vector<IoCompletion> completed;
  while (completed.empty()) {
    engine.wait();
    engine.poll(completed);
  }
  return completed.front();
}

FileSet::FileSet(const FileStoreConfig& config, IoEngine& engine)
    : directory_{place_of(config)},
      engine_{engine},
      files_{engine.files()},
      layout_{layout_of(config)},
      direct_{config.direct},
      health_{layout_.directories},
      unwritten_(layout_.directories) {
  try {
    parts_.push_back({directory_});
    make(config.directory);
    if (!config.name.empty()) make(directory_);
    parts_[0].lock = lock(directory_);
    open_slots_ = layout_.slots;
    read_superblock(config);
    if (recorded_slots_ == 0) refuse_former_layout(config);
    if (layout_.directories > 1) {
      open_parts(config);
    } else if (recorded_slots_ == 0) {
      (void)first_part();
    }
    take_room(config);
    data_ends_.resize(data_.size());
    unsynced_.resize(data_.size(), true);
    for (std::uint32_t n = 0; n < layout_.directories; ++n) {
      if (parts_[n].missing) (void)health_.lose(n);
    }
  } catch (...) {
    undo_to(0);
    close();
    throw;
  }
}

FileSet::~FileSet() {
  undo_to(0);
  close();
}

void FileSet::undo_to(std::size_t steps) noexcept {
  // A step that cannot be undone stays. Only the original error is reported.
  for (; undo_.size() > steps; undo_.pop_back()) undo_.back()();
}

void FileSet::close_to(std::size_t files) {
  for (; open_.size() > files; open_.pop_back()) files_.close(open_.back());
}

FileId FileSet::open(const std::filesystem::path& path, Direct direct) {
  const Result<OpenedFile> opened = files_.open(path, Create::if_missing, direct);
  if (!opened) cannot_open(path, opened.error());
  open_.push_back(opened->id);
  if (opened->made == Made::created) undo_.push_back([this, path] { (void)files_.remove_file(path); });
  return opened->id;
}

void FileSet::make(const std::filesystem::path& directory) {
  const Result<Made> made = files_.make_directory(directory);
  if (!made) {
    refuse_store(made.error(),
                 "cannot make the file store's directory {}: its parent must be a directory that this user may write",
                 directory.string());
  }
  const std::filesystem::path named = directory.has_filename() ? directory : directory.parent_path();
  parents_.push_back(named.has_parent_path() ? named.parent_path() : ".");
  if (*made == Made::created) undo_.push_back([this, directory] { (void)files_.remove_directory(directory); });
}

void FileSet::refuse_former_layout(const FileStoreConfig& config) {
  if (config.name != default_store_name) return;
  const Result<OpenedFile> former = files_.open(config.directory / "catalog", Create::no, Direct::no);
  if (!former) return;
  files_.close(former->id);
  refuse_store(Errc::incompatible,
               "{} itself has the files of a store, as earlier versions made it: move lock, catalog, blocks-* and stripe* from "
               "there into {}, with mode 0700, or remove them",
               config.directory.string(), directory_.string());
}

FileId FileSet::lock(const std::filesystem::path& directory) {
  check_private(files_, directory);
  const std::size_t steps = undo_.size();
  const FileId lock = open(directory / "lock", Direct::no);
  try {
    take_lock(engine_, lock, directory);
  } catch (const std::system_error& refused) {
    // The lock file belongs to its owner now, even if this start has just made it. The same is true of the directory.
    if (refused.code() == static_cast<std::error_code>(make_error_code(Errc::in_use))) undo_.resize(steps);
    throw;
  }
  // Finds out whether this file system can allocate space in advance. If there is no space, commit() reports it.
  (void)run_alone(engine_, {.kind = IoOperation::Kind::allocate, .file = lock, .length = lock_file_bytes});
  return lock;
}

void FileSet::read_superblock(const FileStoreConfig& config) {
  catalog_ = open(path("catalog"), Direct::no);
  const std::string name = path("catalog").string();
  superblock_ = {layout_.directories > 1 ? striped_format_version : format_version,
                 layout_.block_bytes,
                 0,
                 layout_.slots_per_file,
                 0,
                 config.fingerprint,
                 0,
                 layout_.directories,
                 layout_.stripe_slots,
                 0,  // only a striped store has an id, which begin_parts() gives it
                 config.meaning.substr(0, meaning_bytes_max)};
  const FoundSuperblock found = terrace::read_superblock(engine_, catalog_, superblock_copy());
  if (found.error) refuse_store(found.error, "cannot read the superblock of {}", name);
  if (!found.superblock) {
    // The creation of this store was interrupted, so it has no data yet.
    if (found.blank && !has_records(size_of(catalog_, name))) return;
    if (found.blank) {
      refuse_store(Errc::incompatible,
                   "the superblock of {} has been overwritten with zeros, and there is no copy of it: restore its first {} bytes "
                   "from a backup, or remove {} to start empty",
                   name, catalog_page_bytes, directory_.string());
    }
    refuse_store(Errc::incompatible,
                 "{} is no catalog of a file store, or its superblock is damaged: give another directory, or remove this one to "
                 "start empty",
                 name);
  }
  restored_ = found.from_copy;
  superblock_ = *found.superblock;
  check_compatible(config);
  layout_.slots_per_file = static_cast<std::uint32_t>(superblock_.slots_per_file);
  layout_.stripe_slots = superblock_.stripe_slots;
  if (superblock_.open_slots > 0 && superblock_.slots > layout_.slots && superblock_.slots / kept_slots_factor <= layout_.slots) {
    // Blocks lie anywhere in the files. If the files were cut, most blocks that fit would be lost.
    layout_.slots = static_cast<std::uint32_t>(superblock_.slots);
  }
  recorded_slots_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(superblock_.slots, layout_.slots));
}

bool FileSet::has_records(Bytes catalog_bytes) {
  AlignedBuffer piece{std::size_t{1} << 20};
  const Bytes end = std::min(catalog_bytes, layout_.catalog_bytes());
  for (std::uint64_t at = catalog_page_bytes; at < count(end); at += piece.size()) {
    const IoCompletion read =
        run_alone(engine_, {.kind = IoOperation::Kind::read, .file = catalog_, .offset = at, .into = piece.span()});
    if (read.error != 0) refuse_store(errno_code(read.error), "cannot read {}", path("catalog").string());
    for (std::size_t n = 0; n + record_bytes <= read.bytes; n += record_bytes) {
      if (decode_record(piece.span(n, record_bytes))) return true;
    }
  }
  return false;
}

void FileSet::check_compatible(const FileStoreConfig& config) const {
  const std::string where = directory_.string();
  if (!known_version(superblock_.version)) {
    refuse_store(Errc::incompatible,
                 "the file store in {} has format version {}, and this program has {}: give another directory, or remove it to "
                 "start empty",
                 where, superblock_.version, striped_format_version);
  }
  if (superblock_.block_bytes != layout_.block_bytes) {
    refuse_store(Errc::incompatible,
                 "the file store in {} has blocks of {}, and this configuration has {}: give another directory, or remove it to "
                 "start empty",
                 where, to_string(Bytes{superblock_.block_bytes}), to_string(config.block_bytes));
  }
  if (superblock_.fingerprint != config.fingerprint) {
    const auto words = [](const std::string& meaning, const Fingerprint& fingerprint) {
      return meaning.empty() ? fmt::format("the model and geometry {}...", to_hex(BlockKey{fingerprint}).substr(0, 16))
                             : '"' + meaning + '"';
    };
    refuse_store(Errc::incompatible,
                 "the file store in {} was made for {}, and this configuration has {}: give another directory, or remove it to "
                 "start empty",
                 where, words(superblock_.meaning, superblock_.fingerprint), words(config.meaning, config.fingerprint));
  }
  if (superblock_.directories != layout_.directories) {
    refuse_store(Errc::incompatible,
                 "the file store in {} is striped over {} directories, this one included, and this configuration has {}: give "
                 "them all, in their order, or remove it to start empty",
                 where, superblock_.directories, layout_.directories);
  }
  if (!plausible(superblock_)) {
    refuse_store(Errc::incompatible, "the file store in {} has a superblock with impossible values: remove it to start empty",
                 where);
  }
}

void FileSet::no_room(Bytes free, std::uint32_t directory, const FileStoreConfig& config) const {
  const Bytes needed = parts_[directory].needed;
  const Bytes all = needed + config.floor;
  const Bytes fits = parts_[directory].had + (free > config.floor ? free - config.floor : Bytes{});
  const std::uint32_t directories = layout_.directories;
  std::uint32_t slots = slots_within(fits, layout_.block_bytes);
  if (directories > 1) {
    // The slots of whole stripes, the same number in each directory. The first directory also has the records of all slots.
    const std::uint64_t block = layout_.block_bytes + (directory == 0 ? directories * record_bytes : 0);
    const std::uint64_t stripes = count(fits) / (block * layout_.stripe_slots);
    slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(stripes * layout_.stripe_slots * directories, layout_.slots));
  }
  const std::string where = directory == 0 ? "" : fmt::format(" of {}", parts_[directory].directory.string());
  const std::string stays = config.floor == Bytes{} ? "" : fmt::format(" and {} must stay free", to_string(config.floor));
  const std::string largest = slots == 0 ? "not one block fits"
                                         : fmt::format("the largest capacity that fits is {}",
                                                       to_string(capacity_for(slots, config.block_bytes, directories)));
  refuse_store(
      errno_code(ENOSPC),
      "the file store in {} cannot take its capacity of {}: the file system{} has {} free where {} more are needed{}, {}",
      directory_.string(), to_string(config.capacity), where, to_string(free), to_string(needed), stays,
      all > free ? largest : "but could not allocate them: check for a quota, or for another process that fills the disk");
}

Bytes FileSet::size_of(FileId file, const std::filesystem::path& name) {
  const Result<Bytes> size = files_.size(file);
  require(size, "cannot read the size of {}", name.string());
  return *size;
}

void FileSet::check_file_limit(const FileStoreConfig& config) const {
  const Bytes most = files_.file_bytes_max();
  const Bytes needed = std::max(layout_.catalog_bytes(), layout_.data_file_bytes(0));
  if (needed <= most) return;
  refuse_store(errno_code(EFBIG),
               "the file store in {} cannot take its capacity of {}: it needs a file of {}, and this process may only write "
               "files of up to {}: raise the limit (ulimit -f), or lower the capacity",
               directory_.string(), to_string(config.capacity), to_string(needed), to_string(most));
}

void FileSet::take_room(const FileStoreConfig& config) {
  check_file_limit(config);
  data_.resize(layout_.data_files());
  data_bytes_before_.resize(layout_.data_files(), 0);
  catalog_bytes_before_ = size_of(catalog_, path("catalog"));
  for (std::uint32_t n = 0; n < layout_.directories; ++n) take_room_in(n, config);
  take_catalog_room(config);
}

Bytes FileSet::room_of(FileId file, Bytes size, std::uint32_t directory, const std::filesystem::path& name) {
  if (files_.sparse(parts_[directory].lock)) return size;
  const Result<Bytes> room = files_.allocated(file);
  require(room, "cannot read the size of {}", name.string());
  return std::min(*room, size);
}

void FileSet::open_data(std::uint32_t directory, Bytes usable) {
  const bool was_made_smaller = open_slots_ < layout_.slots;
  Bytes& had = parts_[directory].had;
  Bytes& needed = parts_[directory].needed;
  had = Bytes{catalog_page_bytes};  // the lock file
  const auto need = [&](Bytes now, Bytes wanted) {
    had += now;
    needed += wanted > now ? wanted - now : Bytes{};
  };
  if (directory == 0) need(room_of(catalog_, catalog_bytes_before_, 0, path("catalog")), layout_.catalog_bytes());
  for (std::uint32_t n = directory; n < layout_.data_files(); n += layout_.directories) {
    // If the files use too much space already, the remaining files usually do not exist yet, because files are made in this
    // order.
    if (needed <= usable) {
      data_[n] = open(data_path(n), direct_);
      data_bytes_before_[n] = count(size_of(data_[n], data_path(n)));
      const Bytes before{data_bytes_before_[n]};
      has_holes_ = has_holes_ || room_of(data_[n], before, directory, data_path(n)) < before;
    }
    const Bytes before{data_bytes_before_[n]};
    need(before, was_made_smaller ? before : layout_.data_file_bytes(n));
  }
}

void FileSet::take_room_in(std::uint32_t directory, const FileStoreConfig& config) {
  const Part& part = parts_[directory];
  if (part.missing) {
    for (std::uint32_t n = directory; n < layout_.data_files(); n += layout_.directories) {
      data_[n] = files_.prepare(data_path(n), direct_);
      open_.push_back(data_[n]);
    }
    return;
  }
  // Check the free space before any allocation: then the result is exact, and nothing has to be undone.
  const Result<Bytes> free = files_.free_space(part.directory);
  require(free, "cannot find out the free space around {}", part.directory.string());
  const Bytes usable = *free > config.floor ? *free - config.floor : Bytes{};
  open_data(directory, usable);
  if (part.needed > usable) no_room(*free, directory, config);
  if (open_slots_ < layout_.slots) return;  // the store was made smaller, and its files have holes
  for (std::uint32_t n = directory; n < layout_.data_files(); n += layout_.directories) {
    grow(data_[n], data_path(n), Bytes{data_bytes_before_[n]}, layout_.data_file_bytes(n), directory, config);
  }
}

void FileSet::take_catalog_room(const FileStoreConfig& config) {
  const bool is_new = recorded_slots_ == 0;
  if (is_new && catalog_bytes_before_ > Bytes{}) {
    // A catalog without a superblock may have any content. Fill it with zeros.
    require(files_.resize(catalog_, Bytes{}), "cannot empty {}", path("catalog").string());
    catalog_bytes_before_ = {};
  }
  if (!is_new && recorded_slots_ < layout_.slots) forget_beyond_recorded();
  grow(catalog_, path("catalog"), catalog_bytes_before_, layout_.catalog_bytes(), 0, config);
}

void FileSet::grow(FileId file, const std::filesystem::path& name, Bytes before, Bytes wanted, std::uint32_t directory,
                   const FileStoreConfig& config) {
  if (wanted <= before) return;  // commit() cuts a file that is too large
  Part& part = parts_[directory];
  const Bytes more = wanted - before;
  undo_.push_back([this, file, before] { (void)files_.resize(file, before); });
  const IoCompletion taken =
      run_alone(engine_, {.kind = IoOperation::Kind::allocate, .file = file, .offset = count(before), .length = count(more)});
  if (taken.error == 0) {
    part.had += more;
    part.needed = part.needed - std::min(part.needed, more);
    return;
  }
  // A part may have been allocated. It is freed before the free space is asked for.
  undo_to(undo_.size() - 1);
  if (!is_no_space(taken.error)) {
    refuse_store(errno_code(taken.error), "cannot make {} {} large", name.string(), to_string(wanted));
  }
  const Result<Bytes> left = files_.free_space(part.directory);
  no_room(left ? *left : Bytes{}, directory, config);
}

void FileSet::forget_beyond_recorded() {
  const StoreLayout recorded{layout_.block_bytes, recorded_slots_, layout_.slots_per_file};
  bool changed = catalog_bytes_before_ > recorded.catalog_bytes();
  if (changed) {
    require(files_.resize(catalog_, recorded.catalog_bytes()), "cannot clear the end of {}", path("catalog").string());
    catalog_bytes_before_ = recorded.catalog_bytes();
  }
  changed |= clear_page_from(recorded_slots_);
  if (!changed) return;
  const ErrorCode error = error_of(run_alone(engine_, {.kind = IoOperation::Kind::sync, .file = catalog_}), 0);
  if (error) refuse_store(error, "cannot clear the end of {}", path("catalog").string());
}

bool FileSet::clear_page_from(std::uint32_t slots) {
  const std::uint32_t used = slots % records_per_page;
  if (used == 0) return false;
  AlignedBuffer page{catalog_page_bytes};
  const std::uint64_t at = layout_.page_offset(slots / records_per_page);
  // A page that cannot be read is not changed: its blocks are not found anyway, and the next write of the page clears it.
  const IoOperation read{.kind = IoOperation::Kind::read, .file = catalog_, .offset = at, .into = page.span()};
  if (error_of(run_alone(engine_, read), catalog_page_bytes)) return false;
  const auto rest = page.span(std::size_t{used} * record_bytes, (records_per_page - used) * record_bytes);
  if (all_zero(rest)) return false;
  std::fill(rest.begin(), rest.end(), std::byte{0});
  const IoOperation write{.kind = IoOperation::Kind::write, .file = catalog_, .offset = at, .from = page.span()};
  if (const ErrorCode error = error_of(run_alone(engine_, write), catalog_page_bytes)) {
    refuse_store(error, "cannot clear the end of {}", path("catalog").string());
  }
  return true;
}

void FileSet::sync_names() {
  for (const Part& part : parts_) {
    if (part.missing) continue;
    require(files_.sync_directory(part.directory), "cannot sync the directory {}", part.directory.string());
  }
  if (recorded_slots_ > 0) return;
  for (const std::filesystem::path& parent : parents_) {
    const Result<void> named = files_.sync_directory(parent);
    // A user that may enter the parent directory but not read it cannot sync it either. Then the store's name becomes durable at
    // some later time.
    if (named || named.error() == errno_code(EACCES)) continue;
    refuse_store(named.error(), "cannot sync the directory {}", parent.string());
  }
}

void FileSet::commit() {
  // Sync the names before the superblock is written, so that a start that finds a superblock does not have to sync them again.
  sync_names();
  superblock_.slots = layout_.slots;
  superblock_.slots_per_file = layout_.slots_per_file;
  superblock_.open_slots = has_holes_ || open_slots_ < layout_.slots ? open_slots_ : 0;
  ++superblock_.generation;
  if (const ErrorCode error = write_superblock(engine_, superblock_, catalog_, superblock_copy())) {
    refuse_store(error, "cannot write the superblock of {}", path("catalog").string());
  }
  undo_.clear();

  // This must follow the superblock. Otherwise a crash could leave a superblock that names slots which are gone.
  give_back_room();
  // Clears the records of slots that may be added while the store serves, so that their old blocks do not come back. No sync is
  // needed, because they are not read before that.
  if (recorded_slots_ > 0) (void)clear_page_from(layout_.slots);
}

void FileSet::require_smaller(const Result<void>& result) const {
  require(result, "cannot make the file store in {} smaller", directory_.string());
}

void FileSet::give_back_room() {
  // A copied catalog may have holes. Their space was checked at the start; if it is no longer available, writes of pages will
  // fail.
  (void)run_alone(engine_, {.kind = IoOperation::Kind::allocate, .file = catalog_, .length = count(layout_.catalog_bytes())});
  // Truncates every file that is too large, because an earlier start that made the store smaller may have been interrupted here.
  if (catalog_bytes_before_ > layout_.catalog_bytes()) require_smaller(files_.resize(catalog_, layout_.catalog_bytes()));
  for (std::uint32_t n = 0; n < layout_.data_files(); ++n) {
    const Bytes wanted = layout_.data_file_bytes(n);
    if (data_bytes_before_[n] <= count(wanted)) continue;
    require_smaller(files_.resize(data_[n], wanted));
  }
  for (std::uint32_t n = 0; n < layout_.directories; ++n) {
    if (!parts_[n].missing) remove_files_behind(n);
  }
}

/// Removes the data files of this directory that are not part of the layout.
void FileSet::remove_files_behind(std::uint32_t directory) {
  std::uint32_t first = directory;
  while (first < layout_.data_files()) first += layout_.directories;
  std::uint32_t end = first;
  while (const Result<OpenedFile> left = files_.open(data_path(end), Create::no, Direct::no)) {
    files_.close(left->id);
    end += layout_.directories;
  }
  for (; end > first; end -= layout_.directories) {
    require_smaller(files_.remove_file(data_path(end - layout_.directories)));
    // Remove one file at a time, from the end, so that a crash leaves no gap in the numbers; the next start stops its search at a
    // gap.
    require_smaller(files_.sync_directory(parts_[directory].directory));
  }
}

}  // namespace terrace
