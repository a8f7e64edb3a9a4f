#pragma once

#include "base/bytes.hpp"
#include "storage/format/format.hpp"
#include "storage/format/store_name.hpp"
#include "storage/format/store_part.hpp"
#include "storage/io/io_engine.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

struct FileStoreConfig {
  /// Where the store has its own directory. May be any user's, and shared: a mounted volume, say. Made (mode 0700) where it is
  /// missing; its parent must exist, so that a disk that is not mounted is noticed.
  std::filesystem::path directory;
  /// The store's own directory in `directory`, with a lock, files and a capacity of its own; several stores, of ranks, groups or
  /// models, have different names (store_directory_name()). Digits, lower-case letters and '-'. Empty: `directory` itself. The
  /// store makes its own directory with mode 0700, and its files with 0600. It refuses a directory or file that is there and is
  /// not private: of this user, closed to everybody else, and, if a file, a regular one without further links.
  std::string name = default_store_name;
  /// Further directories, each on a disk of its own, over which the store's blocks are striped together with `directory`, in
  /// equal shares: made, named and locked as that one is. What is in one is of use with the others alone: a store has all its
  /// directories, in their order, or is refused.
  std::vector<std::filesystem::path> more_directories;
  /// So much lies side by side in a directory before the next one's turn comes; a block at least. Of a new store only, an old one
  /// keeps its own.
  Bytes stripe_bytes = Bytes{std::uint64_t{4} << 20};
  /// A store whose disk is lost may go on without what was there: of more_directories, one that is missing, or cannot be used, is
  /// left out until the next start, and one that is there and empty is taken in its place. (So give a directory within a disk and
  /// not the disk's own: one that is not mounted is empty.) Otherwise both are refused.
  bool accept_lost_directories = false;
  /// What a new store that is striped calls itself; 0: drawn at random.
  std::uint64_t id = 0;
  /// What the store may take of its disks, everything included; mandatory. capacity_for() says what so many blocks need.
  Bytes capacity{};
  /// A multiple of 4096.
  Bytes block_bytes{};
  /// Of the model and geometry whose blocks these are; a store of another one is refused.
  Fingerprint fingerprint{};
  /// A data file is cut at this size; of a new store only, an old one keeps its own.
  Bytes data_file_bytes_max = Bytes{std::uint64_t{256} << 30};
  /// Of each file system, so much is to stay free: nothing is taken that would leave less. Not of what others take.
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
/// grew is cut again, so that a start that is refused leaves the disk with the room that it had.
///
/// Room. What the files are to become longer by is taken here, and checked against the free space and the floor before. What they
/// have as holes (has_holes()), of a store that became smaller or was copied without its zeros, is not taken here:
/// CapacityManager takes it piece by piece, as far as the disk and the floor allow.
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
  /// The one with the superblock's copy.
  [[nodiscard]] FileId lock_file() const { return parts_[0].lock; }
  [[nodiscard]] FileId data(SlotId slot) const { return data_[layout_.file_of(slot)]; }
  /// By their number. Those in a directory that is missing are not open, and no operation may name them.
  [[nodiscard]] const std::vector<FileId>& data_files() const { return data_; }
  [[nodiscard]] std::filesystem::path data_path(std::uint32_t file) const;
  [[nodiscard]] FileId lock_file(std::uint32_t directory) const { return parts_[directory].lock; }
  /// A file in this directory, for operations that ask about its file system.
  [[nodiscard]] FileId any_file_in(std::uint32_t directory) const { return directory == 0 ? catalog_ : data_[directory]; }
  [[nodiscard]] const std::filesystem::path& directory(std::uint32_t number) const { return parts_[number].directory; }
  /// Of the directories: left out at the start, because it cannot be used.
  [[nodiscard]] bool missing(std::uint32_t directory) const { return parts_[directory].missing; }

  /// Of the layout's slots, how many may be used: fewer than there are where the store was made smaller while it served, and
  /// still has no more capacity than then; its files are left as they are, with their holes.
  [[nodiscard]] std::uint32_t open_slots() const { return open_slots_; }
  /// Whether the file system of one of the directories cannot take room ahead.
  [[nodiscard]] bool sparse() const;
  /// Whether slots that may be used have no room in their files, though the file system could have taken it ahead.
  [[nodiscard]] bool has_holes() const { return has_holes_; }
  /// Whether the superblock had to be taken from its copy. (FileStore counts that as an I/O error.)
  [[nodiscard]] bool restored() const { return restored_; }

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
  struct Part {
    std::filesystem::path directory;
    bool missing = false;
    FileId lock{};
    Bytes had{};     ///< what its files have
    Bytes needed{};  ///< what they are still to get at this start
  };

  /// A store that became smaller while it served keeps its slots at a start with less capacity, up to so many times as many as
  /// the capacity has: what a superblock says sizes neither the index nor the catalog beyond that.
  static constexpr std::uint32_t kept_slots_factor = 32;

  void make(const std::filesystem::path& directory);
  /// Of a directory of the store's own: checks first that it is private.
  [[nodiscard]] FileId lock(const std::filesystem::path& directory);
  void read_superblock(const FileStoreConfig& config);
  void check_compatible(const FileStoreConfig& config) const;
  /// Whether the catalog, as far as this configuration reaches, has a record that checks itself.
  [[nodiscard]] bool has_records(Bytes catalog_bytes);
  void take_room(const FileStoreConfig& config);
  void take_room_in(std::uint32_t directory, const FileStoreConfig& config);
  void take_catalog_room(const FileStoreConfig& config);
  /// Opens the directory's data files, and finds out what they, and the catalog, have and need.
  void open_data(std::uint32_t directory, Bytes usable);
  /// Undone by undo().
  void grow(FileId file, const std::filesystem::path& name, Bytes before, Bytes wanted, std::uint32_t directory,
            const FileStoreConfig& config);
  [[nodiscard]] Bytes size_of(FileId file, const std::filesystem::path& name);
  /// What of its size the file has of the device; all of it where that cannot be taken ahead.
  [[nodiscard]] Bytes room_of(FileId file, Bytes size, std::uint32_t directory, const std::filesystem::path& name);
  [[nodiscard]] FileId open(const std::filesystem::path& path, Direct direct);
  [[nodiscard]] std::filesystem::path path(const char* name) const { return directory_ / name; }
  /// For what the directory needs.
  [[noreturn]] void no_room(Bytes free, std::uint32_t directory, const FileStoreConfig& config) const;
  /// Of a store that is to grow: there may be records beyond the slots that the superblock knows, of an earlier and larger
  /// store. They must not come back with the slots.
  void forget_beyond_recorded();
  /// Clears the records behind so many slots on the page that has the last of them. False: there were none.
  bool clear_page_from(std::uint32_t slots);
  void give_back_room();
  void remove_files_behind(std::uint32_t directory);
  /// Makes the names of the files durable, and of a new store its own.
  void sync_names();
  /// Takes back what was done since there were so many steps to undo; closes the files opened since there were so many.
  void undo_to(std::size_t steps) noexcept;
  void close_to(std::size_t files);

  // Of a store that is striped (store_directory_parts.cpp).
  void open_parts(const FileStoreConfig& config);
  /// Part 1, before there is a superblock: says which store this will be, so that one whose making is interrupted knows its own
  /// parts again.
  void begin_parts(const FileStoreConfig& config);
  void open_part(std::uint32_t number, const FileStoreConfig& config);
  /// Whether the directory says that it is this part; one that says nothing is made to where it may be.
  void claim(std::uint32_t number, bool may_be_empty);
  void write_part(const StorePart& part, FileId file, const std::filesystem::path& directory);
  [[nodiscard]] std::optional<StorePart> part_in(const std::filesystem::path& directory);
  void refuse_part_as_store();
  /// Earlier versions had the files in FileStoreConfig::directory itself.
  void refuse_former_layout(const FileStoreConfig& config);

  std::filesystem::path directory_;
  IoEngine& engine_;
  FileSystem& files_;
  StoreLayout layout_;
  Superblock superblock_;
  Direct direct_ = Direct::yes;
  std::uint32_t recorded_slots_ = 0;
  std::uint32_t open_slots_ = 0;
  bool has_holes_ = false;
  bool restored_ = false;
  std::vector<std::filesystem::path> parents_;  ///< of the directories that are ours
  std::vector<Part> parts_;                     ///< the first is directory_
  std::vector<FileId> open_;
  FileId catalog_;
  std::vector<FileId> data_;
  Bytes catalog_bytes_before_{};
  std::vector<std::uint64_t> data_bytes_before_;  ///< by data file: its size when we came
  std::vector<std::function<void()>> undo_;       ///< run backwards
};

/// Submits one operation to an engine that has nothing else under way, and waits for it.
[[nodiscard]] IoCompletion run_alone(IoEngine& engine, const IoOperation& operation);
/// What went wrong with a completed operation that should have moved `bytes`.
[[nodiscard]] ErrorCode error_of(const IoCompletion& completion, std::uint64_t bytes);
/// Throws what there is to say where a file of a store could not be opened, for this reason.
[[noreturn]] void cannot_open(const std::filesystem::path& path, const ErrorCode& error);

}  // namespace terrace
