#pragma once

#include "base/bytes.hpp"
#include "storage/format.hpp"
#include "storage/io_engine.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace terrace {

struct FileStoreConfig {
  /// Made (mode 0700) where it is missing; its parent must exist, so that a disk that is not mounted is noticed.
  std::filesystem::path directory;
  /// Where several stores share `directory`, of ranks, groups or models: this one's name (store_directory_name()), of its own
  /// directory in there, with a lock, files and a capacity of its own. Digits, lower-case letters and '-'. Empty: `directory`
  /// itself is the store.
  std::string name;
  /// What the store may take of the disk, everything included; mandatory. capacity_for() says what so many blocks need.
  Bytes capacity{};
  /// A multiple of 4096.
  Bytes block_bytes{};
  /// Of the model and geometry whose blocks these are; a store of another one is refused.
  Fingerprint fingerprint{};
  /// A data file is cut at this size; of a new store only, an old one keeps its own.
  Bytes data_file_bytes_max = Bytes{std::uint64_t{256} << 30};
  /// Of the file system, so much is to stay free: nothing is taken that would leave less. Not of what others take.
  Bytes floor{};
  /// Room is taken in pieces of this size by a store that grows while it serves.
  Bytes growth_piece_bytes = Bytes{std::uint64_t{1} << 30};
  /// Whether to bypass the page cache, where the file system can.
  Direct direct = Direct::yes;
  /// Writes under way beyond which further ones are `refused`.
  std::uint32_t writes_max = 4096;
};

/// The files of one file store, opened and locked: finds out whether they are a store, ours, and of the right size, and makes
/// or resizes them. Until commit() it can still go back: a directory or file that it made is removed again, a file that it
/// grew is cut again.
///
/// Threads: the engine owner's. The engine has nothing else under way.
class StoreDirectory {
 public:
  /// Throws std::system_error; what() is one sentence with what, where and what would be right. Codes of our own:
  /// invalid_argument (configuration), incompatible (a store of another geometry or version, or no store), in_use; else an
  /// errno, ENOSPC where the capacity does not fit on the disk, or the disk's free space would go below the floor.
  StoreDirectory(const FileStoreConfig& config, IoEngine& engine);
  /// Closes the files and lets go of the lock. Nothing may be under way on them.
  ~StoreDirectory();
  StoreDirectory(const StoreDirectory&) = delete;
  StoreDirectory& operator=(const StoreDirectory&) = delete;

  /// From now on the store is ours: writes the superblock, and gives back what a smaller capacity does not need. Throws
  /// std::system_error.
  void commit();
  /// As the destructor does, earlier. Does nothing the second time.
  void close();

  [[nodiscard]] const StoreLayout& layout() const { return layout_; }
  [[nodiscard]] FileId catalog() const { return catalog_; }
  [[nodiscard]] FileId data(SlotId slot) const { return data_[layout_.file_of(slot)]; }
  [[nodiscard]] const std::vector<FileId>& data_files() const { return data_; }
  [[nodiscard]] std::filesystem::path data_path(std::uint32_t file) const;

  /// Of the layout's slots, how many may be used: fewer than there are where the store was made smaller while it served, and
  /// still has no more capacity than then; its files are left as they are, with their holes.
  [[nodiscard]] std::uint32_t open_slots() const { return open_slots_; }
  /// Whether room could not be taken ahead.
  [[nodiscard]] bool sparse() const;

  // What a store that grows while it serves does to its files, by operations of its own.
  /// As it is on the disk.
  [[nodiscard]] const Superblock& superblock() const { return superblock_; }
  /// The next data file, for an operation of kind `open`; then one of the next two.
  [[nodiscard]] FileId prepare_data_file();
  void add_data_file(FileId file) { data_.push_back(file); }
  void forget_prepared(FileId file);
  /// A superblock with these numbers has been written.
  void noted(std::uint32_t slots, std::uint64_t open_slots);

  /// Slots below this have a record in the catalog from an earlier run; 0 for a new store.
  [[nodiscard]] std::uint32_t recorded_slots() const { return recorded_slots_; }
  /// Whether the slot's data lie within what an earlier run left.
  [[nodiscard]] bool had_data(SlotId slot) const;

 private:
  void make(const std::filesystem::path& directory);
  void lock();
  void read_superblock(const FileStoreConfig& config);
  void check_compatible(const FileStoreConfig& config) const;
  void take_room(const FileStoreConfig& config);
  [[nodiscard]] FileId open(const std::filesystem::path& path, Direct direct);
  [[nodiscard]] std::filesystem::path path(const char* name) const { return directory_ / name; }
  /// `needed` where `free` is; the store has `had` already.
  [[noreturn]] void no_room(Bytes needed, Bytes free, Bytes had, const FileStoreConfig& config) const;
  /// Of a store that is to grow: there may be records beyond the slots that the superblock knows, of an earlier and larger
  /// store. They must not come back with the slots.
  void forget_beyond_recorded();
  /// Clears the records behind so many slots on the page that has the last of them. False: there were none.
  bool clear_page_from(std::uint32_t slots);
  void give_back_room();
  /// Makes the names of the files durable, and of a new store its own.
  void sync_names();
  void undo() noexcept;

  std::filesystem::path directory_;
  IoEngine& engine_;
  FileSystem& files_;
  StoreLayout layout_;
  Superblock superblock_;
  Direct direct_ = Direct::yes;
  std::uint32_t recorded_slots_ = 0;
  std::uint32_t open_slots_ = 0;
  std::vector<std::filesystem::path> parents_;  ///< of the directories that are ours
  std::vector<FileId> open_;
  FileId lock_;
  FileId catalog_;
  std::vector<FileId> data_;
  Bytes catalog_bytes_before_{};
  std::vector<std::uint64_t> data_bytes_before_;  ///< by data file: its size when we came
  std::vector<std::function<void()>> undo_;       ///< run backwards
};

/// Submits one operation to an engine that has nothing else under way, and waits for it.
[[nodiscard]] IoCompletion run_alone(IoEngine& engine, const IoOperation& operation);

}  // namespace terrace
