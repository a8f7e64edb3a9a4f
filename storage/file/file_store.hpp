#pragma once

#include "storage/file/capacity_manager.hpp"
#include "storage/file/dirty_pages.hpp"
#include "storage/file/file_set.hpp"
#include "storage/format/format.hpp"
#include "storage/index/store_operations.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/io_engine.hpp"
#include "terrace/block_store.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

/// Keeps blocks in preallocated files, and finds them again after a restart. The *catalog* is the file that records which slot
/// holds which block; storage/file/file_store_catalog.cpp writes and reads it. The format of all files, and why the order of
/// writes is safe, is in storage/format/format.hpp.
///
/// Ownership: see the constructor. Threads: one; the threads of the engine move the data. Buffers should be aligned to
/// io_alignment; other buffers are copied.
///
/// Durability. After a `written` event the block is readable, and its bytes are in the page cache, or on the device under direct
/// I/O. Its record follows within the next polls. If the process is killed, only blocks whose records had not been written are
/// lost. After a successful flush() or close(), no block is lost, even in a power failure. A power failure before that may lose
/// more blocks. A block that was written only in part does not pass verification, so it is never served.
///
/// Failures of the device. A write that fails with ENOSPC or EDQUOT ends with `full`, and its slot is free. A write that fails
/// with any other error quarantines its slot until the next start. A read that fails with an error ends with io_failed; after a
/// second failure in a row the block is dropped with its descendants. A record that cannot be written is retried when its page
/// changes again, and by flush() and close(). Meanwhile the block is served, but it would be missing after a restart. After a
/// failed sync it is unknown which data reached the device, and a later successful sync does not change that. So from then on
/// each flush fails, and so does close().
///
/// Files that are removed. A file that was removed or replaced can still be read and written while it is open, but a restart does
/// not find it. So each flush and close() check that all files still have their names and their minimum lengths, and that the
/// catalog has its superblock. If not, they fail as after a failed sync, and durability_lost() names the file. They do not detect
/// records in the middle of the catalog that another program has overwritten.
///
/// Size. resize() changes how much of the disk a serving store uses, and the floor keeps a minimum of free space (see
/// storage/file/capacity_manager.hpp). The next start takes its capacity from its own configuration. If that capacity has no more
/// slots than the store had after the last resize(), the slots stay as after that resize(). Otherwise the start is a normal
/// start.
///
/// Directories. A store may be striped over several directories, each on its own device. If one device fails, only its blocks and
/// their descendants are lost. After some failures in a row (storage/file/directory_health.hpp), or after one failed sync, the
/// directory is out of use until the next start. Its blocks are `evicted` within the next polls, with their descendants; reads of
/// them end with not_found meanwhile. Its slots no longer count in the capacity, and the store does not grow until the next
/// start. A flush during which this happens fails; the next one can succeed. If the first directory fails, the catalog cannot be
/// written, and blocks stored from then on are missing after a restart.
class FileStore final : public BlockStore {
 public:
  /// Opens or makes the store, and blocks until its index is in memory. `engine` must outlive the store and must not be used by
  /// others. A slot whose record has a wrong checksum becomes free, and a block whose parent is missing is dropped. If it throws
  /// std::system_error, it leaves nothing new on the disk; see FileSet.
  FileStore(const FileStoreConfig& config, IoEngine& engine);
  /// Calls close().
  ~FileStore() override { (void)close(); }
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  void read(std::span<const StoreRead> batch) override;
  void write(std::span<const StoreWrite> batch) override;
  void remove(std::span<const BlockKey> keys, std::uint64_t token) override;
  [[nodiscard]] bool contains(const BlockKey& key) const override { return operations_.contains(key); }
  void touch(std::span<const BlockKey> keys) override;
  void flush(std::uint64_t token) override;
  void adopt_all(const Adopt& adopt) override { operations_.adopt_all(adopt); }
  [[nodiscard]] Result<void> resize(Blocks blocks) override;
  std::size_t poll(std::vector<StoreEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override {
    return operations_.in_flight() + flushes_.size() + served_flushes_.size();
  }
  [[nodiscard]] Bytes block_bytes() const override { return Bytes{files_.layout().block_bytes}; }
  [[nodiscard]] StoreStat stat() const override { return completed(operations_.stat()); }
  /// Returns the same without `orphans`, which makes it fast.
  [[nodiscard]] StoreStat quick_stat() const override { return completed(operations_.quick_stat()); }
  void for_each(const std::function<void(const StoredBlock&)>& visit) const override { operations_.for_each(visit); }
  void check_invariants() const override;

  /// Waits for the operations under way, makes everything durable, closes the files and releases the lock. It has no time limit.
  /// After that, only the const members and poll() may be called; poll() returns the remaining events. If a step fails, the
  /// result is the first error, and the files are closed nevertheless.
  Result<void> close();

  struct Location {
    std::filesystem::path file;
    std::uint64_t offset;
  };
  /// Returns the place of a readable block's bytes, or nothing if the block is not readable.
  [[nodiscard]] std::optional<Location> location(const BlockKey& key) const;
  /// Directories that are out of use, because they were unusable at the start or have failed since.
  [[nodiscard]] std::vector<std::filesystem::path> lost_directories() const { return files_.lost_directories(); }
  /// Returns why no flush can succeed before the next start, in one sentence. Empty if there is no such reason.
  [[nodiscard]] const std::string& durability_lost() const { return durability_lost_; }
  /// Returns true if all data files currently bypass the page cache.
  [[nodiscard]] bool is_direct() const { return files_.is_direct(); }
  /// The number of catalog pages whose current content has not been written yet.
  [[nodiscard]] std::size_t unwritten_pages() const { return pages_.waiting() + pages_.under_way(); }

 private:
  /// The fields of a catalog record that are not in the index.
  struct SlotRecord {
    std::uint64_t checksum = 0;
    std::uint64_t generation = 0;
  };

  [[nodiscard]] StoreStat completed(StoreStat stat) const;
  void restore();
  void restore_records(std::uint32_t first, std::span<const std::byte> records);
  void submit();  ///< submits the operations that the current call has gathered, and wakes for its events
  void submit_batch();
  void collect();  ///< handles completions, and marks the pages that must be written because of them
  void pump_capacity();
  /// Returns the operation for a started read or write.
  [[nodiscard]] IoOperation operation_on(const StoreOperations::Started& started, IoOperation::Kind kind);
  /// Drops blocks in lost slots: a limited number, or all.
  enum class Sweep : bool { some, all };
  void sweep_lost(Sweep extent);
  [[nodiscard]] bool is_swept() const { return operations_.index().count(StoreIndex::State::lost) == files_.lost_slots(); }
  void block_ended(const IoCompletion& completion);
  void mark_changed();
  void write_pages();
  /// Submits the writes that waited until the record of the former block of their slot was cleared.
  void submit_held();
  [[nodiscard]] bool has_record(SlotId slot) const {
    return (records_on_disk_[slot.value() / records_per_page] >> slot.value() % records_per_page & 1U) != 0;
  }
  void page_ended(const IoCompletion& completion);
  /// Returns a bit for each slot of the page that has a record in it.
  std::uint32_t encode_page(std::uint32_t page, std::span<std::byte> into) const;
  void go_on_with_flush();
  void begin_flush();
  void sync_ended(const IoCompletion& completion);
  void end_flush();
  /// Adds operations to the batch that check whether the files are still in place.
  void add_checks();
  void add_superblock_check();
  /// Returns false if the check continues with another operation.
  [[nodiscard]] bool check_ended(const IoCompletion& completion);
  /// Syncs the file with this number (FileSet). Blocks; no other operation may be under way.
  void sync(std::uint32_t file);
  void doubt(const ErrorCode& error, std::uint32_t file, const std::string& why);
  void wake_for_events();

  static constexpr std::uint32_t pages_under_way_max = 16;
  static constexpr std::uint64_t page_token = std::uint64_t{1} << 63;   ///< | index in page_writes_
  static constexpr std::uint64_t sync_token = std::uint64_t{1} << 62;   ///< | number of the file (FileSet)
  static constexpr std::uint64_t check_token = std::uint64_t{1} << 60;  ///< | number of the file, or superblock_check_token
  static constexpr std::uint64_t superblock_check_token = check_token | 0xFFFF'FFFF;
  static constexpr std::uint32_t sweep_looks_max = 1024;  ///< in each poll

  // Constant after construction.
  IoEngine& engine_;
  Fingerprint fingerprint_;
  TenantId label_tenant_;
  FileSet files_;

  StoreOperations operations_;
  std::uint32_t sweep_at_ = 0;  ///< the next slot that the sweep visits
  CapacityManager capacity_;
  std::vector<SlotRecord, LargeAllocator<SlotRecord>> records_;  ///< by slot; constant while an operation reads the slot
  DirtyPages pages_;
  struct PageWrite {
    AlignedBuffer image;
    std::optional<std::uint32_t> page;  ///< the page under way
    std::uint32_t records = 0;          ///< bits of its records, as in records_on_disk_
  };
  std::vector<PageWrite> page_writes_;
  /// By catalog page, one bit for each slot: the file may have a record that describes the slot's data.
  std::vector<std::uint32_t> records_on_disk_;
  std::vector<IoOperation> held_;  ///< writes that wait until their slot's old record is cleared, in order
  /// The progress of a round of flushes (file_store_flush.cpp).
  enum class FlushPhase : unsigned char { idle, data, catalog };
  FlushPhase flush_phase_ = FlushPhase::idle;
  std::uint32_t phase_operations_ = 0;         ///< syncs and checks of this phase that are under way
  std::vector<std::uint64_t> flushes_;         ///< tokens of flushes that wait for the next round
  std::vector<std::uint64_t> served_flushes_;  ///< tokens of the flushes of this round
  AlignedBuffer superblock_page_;              ///< buffer in which a flush reads the superblock
  Superblock superblock_expected_;
  bool catalog_unsynced_ = true;  ///< true at the start, because a killed process may have left unsynced data
  /// error of the first failed sync or check that could not be handled by dropping a directory
  ErrorCode doubt_;
  std::string durability_lost_;     ///< the reason for doubt_, in one sentence
  ErrorCode flush_error_;           ///< error of the current flush, which has lost a directory
  std::vector<IoOperation> batch_;  ///< scratch, like the next two
  std::vector<IoCompletion> completed_;
  std::vector<SlotId> changed_;
  bool closed_ = false;
};

/// Adds the information of the files to the health of a store in front of `files`: lost directories, and whether a restart would
/// find all files.
void add_health_of(const FileStore& files, StoreHealth& health);

}  // namespace terrace
