#pragma once

#include "storage/file/capacity_manager.hpp"
#include "storage/file/dirty_pages.hpp"
#include "storage/file/file_set.hpp"
#include "storage/file/group_flush.hpp"
#include "storage/format/format.hpp"
#include "storage/index/block_store.hpp"
#include "storage/index/store_operations.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/io_engine.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

/// Keeps its blocks in preallocated files, and finds them again after a restart. The format, and why its order of writes is
/// safe, is in storage/format/format.hpp.
///
/// A `written` event says that the block is readable and its bytes are with the operating system (with the device, under
/// direct I/O). Its record follows within the next polls: a process that is killed loses at most the blocks whose records
/// had not gone out, and a store that was flushed or closed loses none of what it had then, a power failure after that included.
/// Before that a power failure may cost more, but what is left of a block that did not fully arrive does not verify, and is
/// not served.
///
/// Failures of the device. A write that fails with anything but ENOSPC or EDQUOT quarantines its slot until the next
/// start; those two are `full` and the slot is free. A read that fails with an error is io_failed; the second time in a row the
/// block is given up with its descendants. A record that cannot be written is tried again when its page changes next, and
/// by flush() and close(): the block is served meanwhile, and missing after a restart. A sync that fails leaves in doubt what the
/// system held of the file, and a later one that succeeds says nothing about it: from then on each flush fails, and close().
///
/// Files that are taken away. A file that was removed or replaced can be read and written while it is open, and is gone after
/// a restart. So each flush, and close(), checks that the names of all files still lead to them, that they are as long as
/// they must be, and that the catalog has its superblock. Where that is not so it fails, as after a failed sync, and
/// durability_lost() names the file. Not noticed: records in the middle of the catalog that somebody overwrites.
///
/// Size. resize() changes how much of the disk a serving store has, and the floor stops it where the disk is nearly full: see
/// storage/file/capacity_manager.hpp. The capacity of the next start is that start's configuration: where that has no more slots
/// than the store was left with, what is here stays, and otherwise as after any other end.
///
/// Directories. Striped over several, each on a device of its own, a store loses with a device only what was there, and what
/// built on it: after failures in a row (storage/file/directory_health.hpp), or one failed sync, the directory is out of use
/// until the next start. Its blocks are `evicted`, with their descendants, within the next polls, and meanwhile not_found; its
/// slots are no longer in the capacity, and the store does not grow until then. A flush during which that happens fails, the
/// next need not. Without the first directory the catalog cannot be written, and what is stored from then on is not there
/// after a restart.
///
/// Buffers are best aligned to io_alignment; others cost a copy. Threads: one; the engine's own do the moving.
class FileStore final : public BlockStore {
 public:
  /// Opens or makes the store; blocks until its index is in memory. `engine` outlives the store and serves nothing else.
  /// Records that do not check themselves are free slots; blocks whose parent is missing are dropped. Throws
  /// std::system_error, and leaves behind nothing that was not there: see FileSet.
  FileStore(const FileStoreConfig& config, IoEngine& engine);
  /// As close().
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  void read(std::span<const StoreRead> batch) override;
  void write(std::span<const StoreWrite> batch) override;
  void remove(std::span<const BlockKey> keys, std::uint64_t token) override;
  [[nodiscard]] bool contains(const BlockKey& key) const override { return operations_.contains(key); }
  void touch(std::span<const BlockKey> keys) override;
  void flush(std::uint64_t token) override;
  void adopt_all(const Adopt& adopt) override { operations_.adopt_all(adopt); }
  [[nodiscard]] Result<void> resize(std::uint32_t blocks) override;
  std::size_t poll(std::vector<StoreEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override { return operations_.in_flight() + flush_.in_flight(); }
  [[nodiscard]] Bytes block_bytes() const override { return Bytes{files_.block_bytes()}; }
  [[nodiscard]] StoreStat stat() const override;
  /// The same without the orphans: cheap enough for whoever looks often.
  [[nodiscard]] StoreStat quick_stat() const { return completed(operations_.quick_stat()); }
  void for_each(const std::function<void(const StoredBlock&)>& visit) const override;
  void check_invariants() const override;

  /// Waits for what is under way, makes everything durable, and lets go of the files and the lock. Blocks, for as long as
  /// the device takes. Afterwards only poll(), for the events of what was under way, and the const members may be called.
  /// Fails: the first error met on the way; the files are let go of all the same.
  Result<void> close();

  struct Location {
    std::filesystem::path file;
    std::uint64_t offset;
  };
  /// Where a readable block's bytes lie.
  [[nodiscard]] std::optional<Location> location(const BlockKey& key) const;
  /// Directories that are out of use, whether they could not be used at the start or failed since.
  [[nodiscard]] std::vector<std::filesystem::path> lost_directories() const { return files_.lost_directories(); }
  /// Why no flush succeeds before the next start, in a sentence; empty: none has found a reason.
  [[nodiscard]] const std::string& durability_lost() const { return durability_lost_; }
  /// Whether the data files bypass the page cache, after all.
  [[nodiscard]] bool is_direct() const { return files_.is_direct(); }
  /// Catalog pages not yet written as they are now.
  [[nodiscard]] std::size_t unwritten_pages() const { return pages_.waiting() + pages_.under_way(); }

 private:
  /// What the catalog says of a slot beyond the index.
  struct Seal {
    std::uint64_t checksum = 0;
    std::uint64_t generation = 0;
  };

  [[nodiscard]] StoreStat completed(StoreStat stat) const;
  void restore();
  void restore_records(std::uint32_t first, std::span<const std::byte> records);
  void submit();   ///< what the call at hand has gathered
  void collect();  ///< what has completed, and which pages have to be written for it
  void pump_space();
  /// Of what a started read or write has to move.
  [[nodiscard]] IoOperation operation_on(const StoreOperations::Started& started, IoOperation::Kind kind);
  /// Gives up some of what is in slots that are lost.
  enum class Sweep : bool { some, all };
  void sweep_lost(Sweep extent);
  [[nodiscard]] bool is_swept() const;
  void block_ended(const IoCompletion& completion);
  void mark_changed();
  void write_pages();
  /// Hands writes over that waited for the record of their slot's last block to be cleared.
  void submit_held();
  [[nodiscard]] bool has_record(SlotId slot) const {
    return (records_on_disk_[slot.value() / records_per_page] >> slot.value() % records_per_page & 1U) != 0;
  }
  void page_ended(const IoCompletion& completion);
  /// Returns which of its slots have a record in it.
  std::uint32_t encode_page(std::uint32_t page, std::span<std::byte> into) const;
  void go_on_with_flush();
  void begin_flush();
  void sync_ended(const IoCompletion& completion);
  void end_flush();
  /// Appends to the batch what finds out whether the files are still the store's.
  void add_checks();
  void add_superblock_check();
  /// False: it goes on.
  [[nodiscard]] bool check_ended(const IoCompletion& completion);
  /// Syncs the file of this number (FileSet). Blocks; nothing else is under way.
  void sync(std::uint32_t file);
  void doubt(const ErrorCode& error, std::uint32_t file, const std::string& why);
  void wake_for_events();

  static constexpr std::uint32_t pages_under_way_max = 16;
  static constexpr std::uint64_t page_token = std::uint64_t{1} << 63;   ///< | which of page_writes_
  static constexpr std::uint64_t sync_token = std::uint64_t{1} << 62;   ///< | the number of a file (FileSet)
  static constexpr std::uint64_t check_token = std::uint64_t{1} << 60;  ///< the same, or:
  static constexpr std::uint64_t superblock_check_token = check_token | 0xFFFF'FFFF;
  static constexpr std::uint32_t sweep_looks_max = 1024;  ///< a poll

  // Constant after construction.
  IoEngine& engine_;
  Fingerprint fingerprint_;
  FileSet files_;

  StoreOperations operations_;
  std::uint32_t sweep_at_ = 0;  ///< the slot that is looked at next for what is lost
  CapacityManager space_;
  std::vector<Seal> seals_;  ///< by slot
  struct Moving {
    IoOperation::Kind kind = IoOperation::Kind::read;
    SlotId slot;
    std::uint64_t checksum = 0;  ///< that a read must have
  };
  std::vector<Moving> moving_;  ///< by StoreOperations::Id
  DirtyPages pages_;
  struct PageWrite {
    AlignedBuffer image;
    std::optional<std::uint32_t> page;  ///< under way
    std::uint32_t records = 0;          ///< in it, as in records_on_disk_
  };
  std::vector<PageWrite> page_writes_;
  /// By catalog page, a bit for each slot: the file may have a record that speaks of the slot's data.
  std::vector<std::uint32_t> records_on_disk_;
  struct Held {
    SlotId slot;
    IoOperation write;
  };
  std::vector<Held> held_;  ///< writes that wait, in order
  GroupFlush flush_;
  AlignedBuffer superblock_page_;  ///< as a flush finds it
  Superblock superblock_expected_;
  bool catalog_unsynced_ = true;    ///< after a kill the system may hold what the former process wrote, as in the data files
  ErrorCode doubt_;                 ///< of the first sync or check that failed, and cost more than a directory
  std::string durability_lost_;     ///< because of it
  ErrorCode flush_error_;           ///< of the flush under way: a directory was lost
  std::vector<IoOperation> batch_;  ///< scratch, as are the next two
  std::vector<IoCompletion> completed_;
  std::vector<SlotId> changed_;
  bool closed_ = false;
};

}  // namespace terrace
