#pragma once

#include "storage/file/directory_health.hpp"
#include "storage/format/format.hpp"
#include "storage/format/store_name.hpp"
#include "storage/io/io_engine.hpp"
#include "terrace/block_store.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

struct FileStoreConfig {
  /// The directory in which the store makes its own directory. It may belong to any user and may be shared, for example a mounted
  /// volume. If it is missing it is made with mode 0700. Its parent must exist, so that a disk that is not mounted is noticed.
  std::filesystem::path directory;
  /// The name of the store's own directory in `directory`. Each store has its own lock, files and capacity, so stores of
  /// different ranks, groups or models need different names (store_directory_name()). Allowed are digits, lower-case letters and
  /// '-'. If it is empty, `directory` itself is the store's own. The store makes its own directory with mode 0700, and its files
  /// with 0600. It refuses a directory or file that exists and is not private (FileSystem).
  std::string name = default_store_name;
  /// Further directories, each on its own disk. The blocks are striped over `directory` and these directories in equal shares.
  /// They are made, named and locked as `directory` is. None of them can be used without the others: a store is refused unless
  /// all its directories are given, in their order.
  std::vector<std::filesystem::path> more_directories;
  /// Number of contiguous bytes in one directory before the next directory follows; at least one block. It applies to a new store
  /// only; an existing store keeps its value.
  Bytes stripe_bytes = Bytes{std::uint64_t{4} << 20};
  /// If true, a store whose disk is lost continues without it. A directory in more_directories that is missing or cannot be used
  /// is not used until the next start; an existing empty directory replaces a lost one. Because of this, give a directory inside
  /// the disk and not its mount point, which is empty while the disk is not mounted. If false, the store is refused in both
  /// cases.
  bool accept_lost_directories = false;
  /// The id of a new striped store; 0: a random one.
  std::uint64_t id = 0;
  /// How much disk space the store may use in total; mandatory. capacity_for() computes the capacity for a number of blocks.
  Bytes capacity{};
  /// A multiple of 4096.
  Bytes block_bytes{};
  /// The fingerprint of the model and geometry. A store with another fingerprint is refused.
  Fingerprint fingerprint{};
  /// Describes the input of the fingerprint as text (Superblock::meaning), for the message that refuses another fingerprint.
  std::string meaning{};
  /// Describes the user of the store for operators (StoreLabel); empty: nothing is recorded. Blocks without a tenant get the
  /// tenant of the label in their records. They are read back without a tenant while the label is the same.
  std::string label{};
  /// The maximum size of a data file. It applies to a new store only; an existing store keeps its value.
  Bytes data_file_bytes_max = Bytes{std::uint64_t{256} << 30};
  /// The space that must stay free on each file system. The store allocates nothing that would leave less. Other programs may
  /// still use that space.
  Bytes floor{};
  /// The size of the pieces in which a growing store allocates space while it serves.
  Bytes growth_piece_bytes = Bytes{std::uint64_t{1} << 30};
  /// Whether to bypass the page cache, if the file system supports this.
  Direct direct = Direct::yes;
  /// The largest number of writes under way; further writes end with `refused`.
  std::uint32_t writes_max = 4096;
};

/// The files of one file store, in one or several directories. The other parts of a serving store use only slots and files. They
/// do not know directories, except that a slot or a file may be lost.
///
/// Start: the constructor opens and locks the files, checks that they are a compatible store, and makes or resizes them. Until
/// commit(), every step can be undone: a new directory or file is removed, and an extended file is truncated. So a start that
/// fails does not change the space in use on the disk.
///
/// Space: the constructor allocates the space for files that must become longer. Before that it compares this space with the free
/// space and the floor. It does not fill holes of existing files (has_holes()), which exist after a store became smaller, or in a
/// sparse copy. CapacityManager fills them piece by piece, within the limits of the disk and the floor.
///
/// Losses: a directory that cannot be used is lost until the next start. This may be a directory that is missing at the start,
/// one whose device fails later (storage/file/directory_health.hpp), or one in which a sync or a check has failed. The last
/// remaining directory is never lost.
///
/// Free space: each directory may be on its own file system. A slot without allocated space takes it when it is written. A *look*
/// is an operation that queries the free space in one directory; the number of unwritten slots there is known, too.
///
/// Ownership: `engine` must outlive it. Threads: the engine owner's. The constructor, commit() and close() do I/O and block; the
/// engine must have no other operation under way then. The other members submit no operations.
class FileSet {
 public:
  /// Throws std::system_error. what() is one sentence that says what is wrong, where, and how to correct it. Terrace's codes:
  /// invalid_argument (configuration), incompatible (another geometry or version, or no store at all), in_use. Other codes are
  /// errnos; ENOSPC means that the capacity does not fit on the disk, or that the free space would fall below the floor.
  FileSet(const FileStoreConfig& config, IoEngine& engine);
  /// Closes the files and releases the locks. Nothing may be under way on them.
  ~FileSet();
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;

  /// Completes the start: writes the superblock, and frees the space that a smaller capacity does not need. Throws
  /// std::system_error.
  void commit();
  /// Does the work of the destructor. A second call does nothing.
  void close() { close_to(0); }

  // ---- slots

  /// The positions of blocks and records.
  [[nodiscard]] const StoreLayout& layout() const { return layout_; }
  /// Returns an operation of this kind at the position of the slot. The caller adds the token and the buffer. An operation that
  /// is not a transfer covers `slots` slots, which must be adjacent. The slot must not be in a directory that was missing at the
  /// start, because the files there are not open.
  [[nodiscard]] IoOperation operation(IoOperation::Kind kind, SlotId slot, std::uint32_t slots = 1) const;
  [[nodiscard]] std::filesystem::path path(SlotId slot) const { return data_path(layout_.file_of(slot)); }
  [[nodiscard]] bool in_one_file(SlotId a, SlotId b) const { return layout_.file_of(a) == layout_.file_of(b); }
  /// The first slot after `slot` that is not adjacent to its predecessor.
  [[nodiscard]] std::uint32_t end_of_run(SlotId slot) const;

  // ---- losses

  [[nodiscard]] bool is_lost(SlotId slot) const { return health_.lost(layout_.directory_of(slot)); }
  [[nodiscard]] bool any_lost() const { return health_.lost() > 0; }
  [[nodiscard]] std::uint32_t lost_slots() const;
  [[nodiscard]] std::vector<std::filesystem::path> lost_directories() const;
  /// Reports that a read or write of the slot's block has ended. After a failure the directory may be lost.
  void note_outcome(SlotId slot, bool failed);
  /// Sets the counts of directories.
  void add_to(StoreStat& stat) const;

  // ---- the catalog and the superblock

  [[nodiscard]] FileId catalog() const { return catalog_; }
  /// The size of the catalog in a store with this many slots.
  [[nodiscard]] Bytes catalog_bytes(std::uint32_t slots) const { return longer(slots).catalog_bytes(); }
  /// The superblock as it is on the disk.
  [[nodiscard]] const Superblock& superblock() const { return superblock_; }
  /// The file that holds the copy of the superblock.
  [[nodiscard]] FileId superblock_copy() const { return parts_[0].lock; }
  /// Returns true if the superblock was damaged and had to be taken from its copy. FileStore counts that as an I/O error.
  [[nodiscard]] bool restored() const { return restored_; }

  // ---- durability
  //
  // Files are numbered: first the lock files, then the catalog, then the data files. A new data file gets the next number when it
  // gets slots, so that every file keeps its number.

  [[nodiscard]] std::uint32_t files() const { return first_data_file() + static_cast<std::uint32_t>(data_ends_.size()); }
  [[nodiscard]] std::uint32_t catalog_file() const { return layout_.directories; }
  [[nodiscard]] std::uint32_t first_data_file() const { return layout_.directories + 1; }
  [[nodiscard]] FileId file(std::uint32_t number) const;
  [[nodiscard]] std::filesystem::path path_of_file(std::uint32_t number) const;
  /// Returns true if the file is in a lost directory. The catalog never counts as lost.
  [[nodiscard]] bool file_is_lost(std::uint32_t number) const;
  /// Marks the directory of the file as lost, because a sync or a check of the file has failed. Returns false if this is not
  /// possible: for the catalog, and for the last remaining directory.
  bool give_up_directory_of(std::uint32_t number);
  /// The minimum length of the file: the end of the last block that was ever in it.
  [[nodiscard]] std::uint64_t bytes_expected(std::uint32_t number) const;
  /// Records that the slot has data. From now on the file must be long enough for it.
  void note_data(SlotId slot);
  /// Records that a write of this slot has ended, successfully or not. Its file may now have blocks that are not durable.
  void note_unsynced(SlotId slot) { unsynced_[layout_.file_of(slot)] = true; }
  /// Returns true if the data file must be synced and is not lost. After this call it counts as synced.
  [[nodiscard]] bool take_unsynced(std::uint32_t number);
  /// Returns true if all data files currently bypass the page cache.
  [[nodiscard]] bool is_direct() const;

  // ---- size

  /// The number of slots that may be used. It is less than that of the layout if the store was made smaller while it served and
  /// its capacity has not been raised since; its files then keep their holes.
  [[nodiscard]] std::uint32_t open_slots() const { return open_slots_; }
  /// Returns true if the file system of one of the directories cannot allocate space in advance.
  [[nodiscard]] bool sparse() const;
  /// Returns true if slots that may be used have no disk space, although the file system could have allocated it in advance.
  [[nodiscard]] bool has_holes() const { return has_holes_; }

  // For a store that grows while it serves. The caller submits the operations.
  /// Returns true if there are data files for this many slots.
  [[nodiscard]] bool has_files_for(std::uint32_t slots) const { return data_.size() >= longer(slots).data_files(); }
  /// Returns the next data file, for an operation of kind `open`. After that the caller must call add_data_file() or
  /// forget_prepared().
  [[nodiscard]] FileId prepare_data_file();
  void add_data_file(FileId file) { data_.push_back(file); }
  void forget_prepared(FileId file);
  /// Records that a superblock with these numbers has been written.
  void noted(std::uint32_t slots, std::uint64_t open_slots);

  /// Slots below this number may have a record in the catalog from an earlier run; 0 for a new store.
  [[nodiscard]] std::uint32_t recorded_slots() const { return recorded_slots_; }
  /// Returns true if the slot's data lie within the data files of an earlier run.
  [[nodiscard]] bool had_data(SlotId slot) const;

  // ---- free space

  /// Returns the operation that queries the free space of the file system of the slot, or of the catalog.
  [[nodiscard]] IoOperation look_at(SlotId slot) { return look_in(layout_.directory_of(slot)); }
  [[nodiscard]] IoOperation look_at_catalog() { return look_in(0); }
  /// The same for each directory in turn. Returns nothing if no directory can be queried.
  [[nodiscard]] std::optional<IoOperation> next_look();
  /// Returns true if the last look was in the slot's directory.
  [[nodiscard]] bool last_look_was_for(SlotId slot) const { return layout_.directory_of(slot) == looked_in_; }
  /// Records that the slot takes its disk space only when it is written.
  void add_unwritten(SlotId slot) { ++unwritten_[layout_.directory_of(slot)]; }
  /// Records that such a slot has been written, or is no longer used.
  void remove_unwritten(SlotId slot) { --unwritten_[layout_.directory_of(slot)]; }
  /// The number of unwritten slots in the directory of the last look.
  [[nodiscard]] std::uint64_t unwritten_at_last_look() const { return unwritten_[looked_in_]; }
  /// Checks that exactly these slots are unwritten.
  void check_unwritten(const std::function<bool(SlotId)>& is_unwritten) const;

 private:
  struct Part {
    std::filesystem::path directory;
    bool missing = false;
    FileId lock{};
    Bytes had{};     ///< the space that its files have now
    Bytes needed{};  ///< the space that its files still need at this start
  };

  /// A store that became smaller while it served keeps its slots at a start with less capacity, but at most this many times the
  /// slots of the capacity. This limits the memory for index and catalog, even if the superblock is crafted.
  static constexpr std::uint32_t kept_slots_factor = 32;

  void make(const std::filesystem::path& directory);
  /// Locks one of the store's directories, after a check that it is private.
  [[nodiscard]] FileId lock(const std::filesystem::path& directory);
  void read_superblock(const FileStoreConfig& config);
  void check_compatible(const FileStoreConfig& config) const;
  /// Returns true if the catalog has a valid record, within the part that this configuration covers.
  [[nodiscard]] bool has_records(Bytes catalog_bytes);
  void check_file_limit(const FileStoreConfig& config) const;
  void take_room(const FileStoreConfig& config);
  void take_room_in(std::uint32_t directory, const FileStoreConfig& config);
  void take_catalog_room(const FileStoreConfig& config);
  /// Opens the data files of the directory, and computes the space that they and the catalog have and need.
  void open_data(std::uint32_t directory, Bytes usable);
  /// Extends the file. undo_to() can reverse it.
  void grow(FileId file, const std::filesystem::path& name, Bytes before, Bytes wanted, std::uint32_t directory,
            const FileStoreConfig& config);
  [[nodiscard]] Bytes size_of(FileId file, const std::filesystem::path& name);
  /// Returns the part of the file's size that has space on the device; the whole size if the file system cannot allocate in
  /// advance.
  [[nodiscard]] Bytes room_of(FileId file, Bytes size, std::uint32_t directory, const std::filesystem::path& name);
  [[nodiscard]] FileId open(const std::filesystem::path& path, Direct direct);
  [[nodiscard]] std::filesystem::path path(const char* name) const { return directory_ / name; }
  [[nodiscard]] std::filesystem::path data_path(std::uint32_t data_file) const;
  /// The layout of a store with this many slots.
  [[nodiscard]] StoreLayout longer(std::uint32_t slots) const;
  /// The directory of the file. The catalog is in the first one.
  [[nodiscard]] std::uint32_t directory_of_file(std::uint32_t number) const;
  [[nodiscard]] IoOperation look_in(std::uint32_t directory);
  /// Throws ENOSPC with a sentence about the space that the directory needs.
  [[noreturn]] void no_room(Bytes free, std::uint32_t directory, const FileStoreConfig& config) const;
  /// For a store that becomes larger at this start. The catalog may have records beyond the slots of the superblock, from an
  /// earlier, larger store. They are removed, so that they do not come back with the new slots.
  void forget_beyond_recorded();
  /// Clears the records after the first `slots` slots on the page of the last of these slots. Returns false if there were none.
  bool clear_page_from(std::uint32_t slots);
  void give_back_room();
  void remove_files_behind(std::uint32_t directory);
  /// Throws if a step that makes the store smaller has failed.
  void require_smaller(const Result<void>& result) const;
  /// Makes the names of the files durable and, for a new store, the names of its directories.
  void sync_names();
  /// undo_to() undoes all steps after the first `steps` steps. close_to() closes all files after the first `files` files.
  void undo_to(std::size_t steps) noexcept;
  void close_to(std::size_t files);

  // For striped stores (file_set_parts.cpp).
  void open_parts(const FileStoreConfig& config);
  /// Writes part 1 before there is a superblock. It has the id of the new store, so that after an interrupted start the next one
  /// recognises the store's own parts.
  void begin_parts(const FileStoreConfig& config);
  void open_part(std::uint32_t number, const FileStoreConfig& config);
  /// Checks that the directory is this part of the store. If the directory has no part file and may be empty, writes the part
  /// file.
  void claim(std::uint32_t number, bool may_be_empty);
  void write_part(const StorePart& part, FileId file, const std::filesystem::path& directory);
  [[nodiscard]] std::optional<StorePart> part_in(const std::filesystem::path& directory);
  /// Returns the part in the first directory. Refuses a further directory of a store.
  [[nodiscard]] std::optional<StorePart> first_part();
  /// Refuses a store made by an earlier version, which had its files in FileStoreConfig::directory itself.
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
  std::vector<std::filesystem::path> parents_;  ///< parent directories of the store's own directories
  std::vector<Part> parts_;                     ///< parts_[0] is directory_
  std::vector<FileId> open_;
  FileId catalog_;
  std::vector<FileId> data_;  ///< by number of the data file; files in a missing directory are not open
  Bytes catalog_bytes_before_{};
  std::vector<std::uint64_t> data_bytes_before_;  ///< by number of the data file: its size when the constructor found it
  std::vector<std::function<void()>> undo_;       ///< run in reverse order

  DirectoryHealth health_;
  std::vector<std::uint64_t> data_ends_;  ///< by number of the data file: the end of the last block that was ever in it
  std::vector<bool> unsynced_;            ///< by number of the data file: it may have blocks that are not durable
  std::vector<std::uint64_t> unwritten_;  ///< by directory: slots that take their disk space when they are written
  std::uint32_t looked_in_ = 0;           ///< the directory of the last look
};

/// Submits one operation to an engine that has no other operation under way, and blocks until it is done.
[[nodiscard]] IoCompletion run_alone(IoEngine& engine, const IoOperation& operation);
/// The error of a completed operation that should have moved `bytes` bytes.
[[nodiscard]] ErrorCode error_of(const IoCompletion& completion, std::uint64_t bytes);
/// Throws std::system_error with a sentence that says why a file of a store could not be opened.
[[noreturn]] void cannot_open(const std::filesystem::path& path, const ErrorCode& error);

}  // namespace terrace
