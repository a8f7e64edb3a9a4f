#pragma once

#include "base/bytes.hpp"
#include "storage/file/directory_health.hpp"
#include "storage/format/format.hpp"
#include "storage/format/store_name.hpp"
#include "storage/format/store_part.hpp"
#include "storage/index/block_store.hpp"
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

/// The files of one file store, in however many directories they are. The rest of a serving store names slots and files, and
/// knows of directories only that a slot or a file may be lost.
///
/// Start. Opens and locks the files, finds out whether they are a store, ours, and of the right size, and makes or resizes them.
/// Until commit() it can still go back: a directory or file that it made is removed again, a file that it grew is cut again, so
/// that a start that is refused leaves the disk with the room that it had.
///
/// Room. What the files are to become longer by is taken here, and checked against the free space and the floor before. What they
/// have as holes (has_holes()), of a store that became smaller or was copied without its zeros, is not taken here:
/// CapacityManager takes it piece by piece, as far as the disk and the floor allow.
///
/// Losses. A directory that cannot be used is lost until the next start: one that is missing at the start, one whose device
/// fails later (storage/file/directory_health.hpp), and one of which a sync or a check has failed. The last directory that is
/// left is never lost.
///
/// Free space. Each directory may be on a file system of its own, and slots that have no room ahead will take theirs there when
/// they are written. A look asks for the free space of one of them, and what is unwritten there is counted beside it.
///
/// The constructor, commit() and close() do I/O and block; the engine has nothing else under way then. The other members submit
/// nothing. Threads: the engine owner's.
class FileSet {
 public:
  /// Throws std::system_error; what() is one sentence with what, where and what would be right. Codes of our own:
  /// invalid_argument (configuration), incompatible (a store of another geometry or version, or no store), in_use; else an
  /// errno, ENOSPC where the capacity does not fit on the disk, or the disk's free space would go below the floor.
  FileSet(const FileStoreConfig& config, IoEngine& engine);
  /// Closes the files and lets go of the lock. Nothing may be under way on them.
  ~FileSet();
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;

  /// From now on the store is ours: writes the superblock, and gives back what a smaller capacity does not need. Throws
  /// std::system_error.
  void commit();
  /// As the destructor does, earlier. Does nothing the second time.
  void close();

  // ---- slots

  [[nodiscard]] std::uint32_t slots() const { return layout_.slots; }
  [[nodiscard]] std::uint64_t block_bytes() const { return layout_.block_bytes; }
  /// An operation of this kind at the slot's place. The caller adds the token and what is moved. One that is no transfer covers
  /// so many slots, which lie side by side. Files in a directory that was missing at the start are not open: no slot of those.
  [[nodiscard]] IoOperation operation(IoOperation::Kind kind, SlotId slot, std::uint32_t slots = 1) const;
  [[nodiscard]] std::filesystem::path path(SlotId slot) const { return data_path(layout_.file_of(slot)); }
  [[nodiscard]] std::uint64_t offset(SlotId slot) const { return layout_.offset_of(slot); }
  [[nodiscard]] bool in_one_file(SlotId a, SlotId b) const { return layout_.file_of(a) == layout_.file_of(b); }
  /// The most slots that lie side by side in one file.
  [[nodiscard]] std::uint32_t run_slots_max() const;
  /// The slot behind those from `slot` on that lie side by side.
  [[nodiscard]] std::uint32_t end_of_run(SlotId slot) const;

  // ---- losses

  [[nodiscard]] bool is_lost(SlotId slot) const { return health_.lost(layout_.directory_of(slot)); }
  [[nodiscard]] bool any_lost() const { return health_.lost() > 0; }
  [[nodiscard]] std::uint32_t lost_slots() const;
  [[nodiscard]] std::vector<std::filesystem::path> lost_directories() const;
  /// A read or write of the slot's block has ended; one that failed may cost the directory.
  void note_outcome(SlotId slot, bool failed);
  /// Sets the numbers of directories.
  void add_to(StoreStat& stat) const;

  // ---- the catalog and the superblock

  [[nodiscard]] FileId catalog() const { return catalog_; }
  [[nodiscard]] std::uint32_t catalog_pages() const { return layout_.catalog_pages(); }
  [[nodiscard]] std::uint64_t page_offset(std::uint32_t page) const { return layout_.page_offset(page); }
  /// The catalog's size in a store of so many slots.
  [[nodiscard]] Bytes catalog_bytes(std::uint32_t slots) const { return longer(slots).catalog_bytes(); }
  /// The superblock as it is on the disk.
  [[nodiscard]] const Superblock& superblock() const { return superblock_; }
  /// The file with the superblock's copy.
  [[nodiscard]] FileId superblock_copy() const { return parts_[0].lock; }
  /// Whether the superblock had to be taken from its copy. (FileStore counts that as an I/O error.)
  [[nodiscard]] bool restored() const { return restored_; }

  // ---- durability
  //
  // Files have numbers: those that are locked, the catalog, the data files. A data file that growth has made is among them once
  // slots are numbered in it; it comes last, so that a file keeps its number.

  [[nodiscard]] std::uint32_t files() const { return first_data_file() + static_cast<std::uint32_t>(data_ends_.size()); }
  [[nodiscard]] std::uint32_t catalog_file() const { return layout_.directories; }
  [[nodiscard]] std::uint32_t first_data_file() const { return layout_.directories + 1; }
  [[nodiscard]] FileId file(std::uint32_t number) const;
  [[nodiscard]] std::filesystem::path path_of_file(std::uint32_t number) const;
  /// Whether the file is in a directory that is lost. The catalog never counts as lost.
  [[nodiscard]] bool file_is_lost(std::uint32_t number) const;
  /// A sync or a check of the file has failed: its directory is lost by that. False where it cannot be given up: the catalog's,
  /// and the last one.
  bool give_up_directory_of(std::uint32_t number);
  /// How long the file has to be: behind the last block that has been in it.
  [[nodiscard]] std::uint64_t bytes_expected(std::uint32_t number) const;
  /// The block in this slot must be there for as long as the store serves.
  void note_data(SlotId slot);
  /// A write of this slot has ended, whole or not: its file may have blocks that are not on the device.
  void note_unsynced(SlotId slot) { unsynced_[layout_.file_of(slot)] = true; }
  /// Whether the data file has to be synced and is not lost. It counts as synced from now on.
  [[nodiscard]] bool take_unsynced(std::uint32_t number);
  /// Whether the data files bypass the page cache, after all.
  [[nodiscard]] bool is_direct() const;

  // ---- size

  /// How many of the slots may be used: fewer than there are where the store was made smaller while it served, and still has no
  /// more capacity than then; its files are left as they are, with their holes.
  [[nodiscard]] std::uint32_t open_slots() const { return open_slots_; }
  /// Whether the file system of one of the directories cannot take room ahead.
  [[nodiscard]] bool sparse() const;
  /// Whether slots that may be used have no room in their files, though the file system could have taken it ahead.
  [[nodiscard]] bool has_holes() const { return has_holes_; }

  // A store that grows while it serves does this to its files, by operations of its own.
  /// The number of slots with which each directory begins its next data file.
  [[nodiscard]] std::uint64_t next_row() const { return layout_.next_row(); }
  /// Whether there are data files for so many slots.
  [[nodiscard]] bool has_files_for(std::uint32_t slots) const { return data_.size() >= longer(slots).data_files(); }
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

  // ---- free space

  /// The operation that looks at the free space of the file system that has the slot, or the catalog.
  [[nodiscard]] IoOperation look_at(SlotId slot) { return look_in(layout_.directory_of(slot)); }
  [[nodiscard]] IoOperation look_at_catalog() { return look_in(0); }
  /// The same for the directory whose turn it is. Nothing where there is none that can be asked.
  [[nodiscard]] std::optional<IoOperation> next_look();
  /// Whether the last look was for the slot's directory.
  [[nodiscard]] bool last_look_was_for(SlotId slot) const { return layout_.directory_of(slot) == looked_in_; }
  /// The slot will take its room when it is written.
  void add_unwritten(SlotId slot) { ++unwritten_[layout_.directory_of(slot)]; }
  /// It has been written, or is not used any more.
  void remove_unwritten(SlotId slot) { --unwritten_[layout_.directory_of(slot)]; }
  /// Unwritten slots of the directory that the last look was for.
  [[nodiscard]] std::uint64_t unwritten_at_last_look() const { return unwritten_[looked_in_]; }
  /// Checks that just these slots are unwritten.
  void check_unwritten(const std::function<bool(SlotId)>& is_unwritten) const;

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
  [[nodiscard]] std::filesystem::path data_path(std::uint32_t data_file) const;
  /// The layout of a store of so many slots.
  [[nodiscard]] StoreLayout longer(std::uint32_t slots) const;
  /// The file's directory; the catalog's is the first.
  [[nodiscard]] std::uint32_t directory_of_file(std::uint32_t number) const;
  [[nodiscard]] IoOperation look_in(std::uint32_t directory);
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

  // Of a store that is striped (file_set_parts.cpp).
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
  std::vector<FileId> data_;  ///< by data file; those in a directory that is missing are not open
  Bytes catalog_bytes_before_{};
  std::vector<std::uint64_t> data_bytes_before_;  ///< by data file: its size when we came
  std::vector<std::function<void()>> undo_;       ///< run backwards

  DirectoryHealth health_;
  std::vector<std::uint64_t> data_ends_;  ///< by data file: behind its last block, of all that have been in it
  std::vector<bool> unsynced_;            ///< by data file: may have blocks that are not on the device
  std::vector<std::uint64_t> unwritten_;  ///< by directory: slots that take their room when they are written
  std::uint32_t looked_in_ = 0;           ///< the directory that the last look was for
};

/// Submits one operation to an engine that has nothing else under way, and waits for it.
[[nodiscard]] IoCompletion run_alone(IoEngine& engine, const IoOperation& operation);
/// What went wrong with a completed operation that should have moved `bytes`.
[[nodiscard]] ErrorCode error_of(const IoCompletion& completion, std::uint64_t bytes);
/// Throws what there is to say where a file of a store could not be opened, for this reason.
[[noreturn]] void cannot_open(const std::filesystem::path& path, const ErrorCode& error);

}  // namespace terrace
