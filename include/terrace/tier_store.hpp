#pragma once

#include "terrace/admin.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/host_memory.hpp"
#include "terrace/log.hpp"
#include "terrace/result.hpp"
#include "terrace/shared_store.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// The caller's name for a batch. No two batches that have not ended have the same id.
using BatchId = StrongId<struct BatchIdTag, std::uint64_t>;
/// Memory that a TierStore reads and writes. An id is never used again.
using HostRegionId = StrongId<struct HostRegionIdTag>;

struct TierStoreOptions {
  /// The directories of the store's files; several directories, each on its own disk, are used in equal shares. If one is missing
  /// it is made; its parent must exist.
  std::vector<std::filesystem::path> directories{};
  /// The name of the store's own directory inside each of these: digits, lower-case letters and '-'. Stores of different ranks or
  /// models that share a directory need different names.
  std::string name = "store";
  Bytes capacity{};     ///< the disk space of all directories together
  Bytes block_bytes{};  ///< the size of one block; a multiple of 4 KiB
  /// Describes the owner of the store for operators: engine, model, revision (FileStorage::label).
  std::string label{};
  /// The namespace of key(), of any length: model, layout, rank.
  std::string key_namespace{};
  /// Identifies what the blocks contain. A store that was written with another fingerprint is refused.
  std::array<std::byte, 32> fingerprint{};
  Bytes floor{};  ///< how much of each file system must stay free
  Bytes stripe_bytes = MiB * 4;
  bool accept_lost_directories = false;  ///< start even if a directory other than the first cannot be used
  IoChoice io = IoChoice::automatic;
  unsigned io_threads = 4;     ///< only for I/O by threads
  BytesPerSecond bandwidth{};  ///< to emulate a slower disk; 0: no limit. Only for I/O by threads
  /// The retries, and the behaviour while the disk keeps failing. Empty: each failure is reported to the caller.
  std::optional<ResilienceOptions> resilience = ResilienceOptions{};
  /// The longest time until a stored block survives a power failure. 0: storage is flushed only by submit_flush() and at the end.
  Duration flush_interval = std::chrono::seconds{5};
  Duration erase_max = std::chrono::seconds{30};  ///< how long remove() and clear() wait for the disk at most

  Blocks blocks_max = 65536;        ///< limit for blocks of batches that have not ended; further batches are refused
  Blocks gets_under_way_max = 256;  ///< limit for blocks that the disk reads at a time; other blocks wait, and can be cancelled
  Blocks puts_under_way_max = 256;  ///< the same for writes
  /// limit for events that wait for poll_events(); beyond it, the oldest events are dropped and counted
  std::uint32_t events_max = 65536;

  LogOptions log{};
  /// The admin endpoint. `block_tokens` is ignored here.
  AdminOptions admin{};
  /// A store of the embedder, instead of files in `directories`. Nothing else may use it until the TierStore has ended.
  /// Experimental.
  std::shared_ptr<BlockStore> store{};
  /// A store that several machines share, behind the local store: gets read blocks from it that the local store does not have,
  /// and puts write to both. Nothing else may use this object until the TierStore has ended.
  std::shared_ptr<SharedStore> shared{};
  std::string shared_weights_revision{};  ///< as SharedStorage::weights_revision, if the keys do not identify the weights
  /// the longest time for a read from the shared store; after that the block is a miss
  Duration shared_read_max = std::chrono::seconds{1};
  Duration shared_write_max = std::chrono::seconds{5};  ///< how long a put may wait for the shared store, after the local store
  bool shared_writes = true;                            ///< if false, puts write only to the local store
  /// If true, a thread of the store does the work of poll() while the owner is idle: when no call was made for 100 ms, until the
  /// next call. Results and events wait for the owner's poll(). If false, work and the commands of operators make progress only
  /// in poll().
  bool idle_service = true;
};

/// A batch of blocks to be stored. The spans are copied by the call.
struct TierPut {
  BatchId id{};
  std::span<const BlockKey> keys{};
  HostRegionId region{};
  std::span<const std::uint32_t> rows{};  ///< by key: the row that contains the block
  /// Empty, or by key: the block before it in its prefix; all zero: none. It is a hint for eviction: a block is evicted before
  /// its parent. If the parent is not stored by then, the block is stored without a parent. If a block is removed or damaged, all
  /// blocks below it are removed, too.
  std::span<const BlockKey> parents{};
  TimePoint deadline = never;
};

/// A batch of blocks to be read.
struct TierGet {
  BatchId id{};
  std::span<const BlockKey> keys{};
  HostRegionId region{};
  std::span<const std::uint32_t> rows{};  ///< by key: the row that the block is read into
  TimePoint deadline = never;
};

/// Asks how many leading keys a get would find without a gap, the shared store included.
struct TierProbe {
  BatchId id{};
  std::span<const BlockKey> keys{};
  /// The batch ends at this time at the latest, with the result that is known by then: keys for which the shared store has not
  /// answered count as not found.
  TimePoint deadline = never;
};

enum class BatchKind : unsigned char { put, get, flush, probe };

/// The result of a batch.
struct BatchResult {
  BatchId id{};
  BatchKind kind = BatchKind::put;
  /// By key; one entry for a flush or a probe. No error: the block is stored and readable, or its row has its bytes. Get:
  /// not_found (a miss, the block was removed meanwhile, or the disk is out of use after failures), corrupt (damaged: a miss, and
  /// the block is dropped), io_failed. Put: full, io_failed, refused (the disk is out of use after failures), cancelled (also if
  /// remove() or clear() was called meanwhile: then the block is not stored). Both: cancelled, deadline_exceeded. After an error
  /// of a get, the content of the row is undefined.
  std::vector<ErrorCode> errors{};
  std::uint32_t succeeded = 0;  ///< blocks without an error; for a probe, leading keys that are there
  Bytes bytes{};                ///< of the blocks that succeeded
  Duration duration{};          ///< from the submit call to this result
  /// True if the deadline has passed and the disk still uses some of the rows. Do not use these rows until the event
  /// `memory_free` of this batch.
  bool memory_in_use = false;
};

struct TierEvent {
  enum class Kind : unsigned char {
    stored,       ///< a block has become readable
    evicted,      ///< the store has dropped a block to make room, because it was damaged, or because its disk is lost
    removed,      ///< remove() or clear() has dropped a block
    memory_free,  ///< the disk no longer uses the memory of a batch that ended at its deadline; the id of the batch is free again
  };
  Kind kind = Kind::stored;
  BlockKey key{};   ///< all zero for memory_free
  BatchId batch{};  ///< only for memory_free
};

/// Counts since construction, and the work under way now.
struct TierStatistics {
  std::uint64_t gets = 0;  ///< blocks; when no work is under way, the sum of the next six counts
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t get_failures = 0;
  std::uint64_t gets_cancelled = 0;
  std::uint64_t gets_late = 0;  ///< deadline_exceeded
  std::uint64_t puts = 0;       ///< blocks; when no work is under way, the sum of the next four counts
  std::uint64_t stored = 0;     ///< blocks that were stored before count too
  std::uint64_t put_failures = 0;
  std::uint64_t puts_cancelled = 0;
  std::uint64_t puts_late = 0;
  Bytes read{};
  Bytes written{};
  std::uint64_t unaligned = 0;  ///< blocks in rows that do not begin at a multiple of 4 KiB, each copied once more by direct I/O
  Bytes unaligned_bytes{};
  std::uint64_t refused = 0;         ///< batches refused because blocks_max were under way
  std::uint64_t without_parent = 0;  ///< puts with a parent that was not stored
  std::uint64_t flushes = 0;
  std::uint64_t flush_failures = 0;
  std::uint64_t not_flushed = 0;  ///< stored blocks that a power failure may lose
  std::uint64_t events_dropped = 0;
  std::uint32_t batches = 0;    ///< batches that have not ended
  std::uint32_t waiting = 0;    ///< blocks that the disk has not begun
  std::uint32_t under_way = 0;  ///< blocks that the disk has begun
  std::uint32_t regions = 0;
  // With a shared store:
  std::uint64_t shared_hits = 0;        ///< the part of `hits` that came from the shared store
  std::uint64_t shared_misses = 0;      ///< blocks that were requested there and did not come
  std::uint64_t shared_stored = 0;      ///< blocks that were written to it
  std::uint64_t shared_present = 0;     ///< blocks that were not written, because it already had them
  std::uint64_t shared_not_stored = 0;  ///< blocks that it did not store; this does not make the put fail
  // The requested work: when no work is under way, shared_gets = shared_hits + shared_misses + shared_gets_declined, and
  // shared_puts = shared_stored + shared_present + shared_not_stored + shared_puts_cancelled + shared_puts_declined.
  std::uint64_t shared_gets = 0;            ///< blocks that the local store did not bring
  std::uint64_t shared_gets_declined = 0;   ///< not requested there: the shared store could not be used, or is off since a clear
  std::uint64_t shared_puts = 0;            ///< blocks; none if TierStoreOptions::shared_writes is false
  std::uint64_t shared_puts_cancelled = 0;  ///< remove() or clear() was called before they were written
  std::uint64_t shared_puts_declined = 0;   ///< not written: the shared store could not be used, or is off since a clear
  // Queries: contains(), leading(), look_up(), and probes that have ended.
  std::uint64_t asked = 0;  ///< keys
  std::uint64_t found = 0;  ///< the part of `asked` that is there; for leading() and probes, only the leading keys
};

/// Result of TierStore::close().
struct TierCloseReport {
  bool closed = false;             ///< all memory is free, and all stored blocks are durable unless `error` is set
  std::uint32_t batches_left = 0;  ///< batches that had not ended when the time was over; they get no result
  ErrorCode error{};               ///< of the last flush before the end
};

/// A flat, persistent store of blocks on disk, for an engine that names the blocks and manages device and host memory itself. It
/// finds its blocks again after a restart. docs/design/tier-store.md describes it.
///
/// - Keys are made from the engine's own names by key(), or are any other 32 bytes.
/// - contains(), leading() and look_up() answer at once, from memory, and do not count as uses. submit_put() and submit_get()
///   name a batch of blocks, and rows of a region that was registered. They do not wait. poll() returns one result for each
///   batch, with an error code for each of its blocks.
/// - remove() and clear() wait for the disk, for a limited time. When they return without an error, the blocks do not come back
///   after a crash.
/// - A full store evicts the least recently used block; a put, a get and touch() are uses.
/// - Each get verifies a checksum of the bytes and the key.
/// - While the disk keeps failing, no block is found, puts are refused, and the store probes the disk.
/// - With a shared store (TierStoreOptions::shared), a get also reads blocks that only the shared store has, and a put writes to
///   both. A failure of the shared store is a miss, or a block that is not stored there. Queries that answer at once ask only the
///   local store; submit_probe() asks both. clear() does not remove blocks from the shared store, because others use them;
///   instead, the shared store is not read or written until resume_shared() names the weights. remove() asks it to remove the
///   blocks (unless `shared_writes` is false), but cannot tell whether it did so: blocks whose content has changed need keys of
///   another namespace.
///
/// Ownership: the memory of a region must stay valid until unregister_region() has succeeded, or close() has returned `closed`.
/// If an owner was given with it, the store keeps the owner for as long as the disk may use the memory. From the submit call to
/// the result (see BatchResult::memory_in_use), do not change the rows of a put, and do not use the rows of a get; the store
/// refuses conflicting batches. Threads: one thread calls all members. Wake-up: wake_fd() is readable when poll() has something;
/// call poll() then, and at next_deadline(). In a child process made by fork(), the store's files are closed, and the only call
/// allowed is the destructor, which does nothing there. The admin endpoint has its own thread, which never accesses the store:
/// poll() publishes the data for its answers, and runs its commands. While the owner makes no call, the idle service does this
/// (TierStoreOptions::idle_service).
///
/// Errors: the constructor throws. No other member throws, and no argument stops the process.
///
///     TierStore store{options};
///     const Result<HostRegionId> region = store.register_region(rows);
///     const std::array keys{store.key(name)};
///     const std::array<std::uint32_t, 1> at{3};
///     if (store.submit_put({.id = BatchId{1}, .keys = keys, .region = *region, .rows = at})) ... poll() until its result comes
class TERRACE_API TierStore {
 public:
  /// Opens or makes the store, and blocks until its index is in memory. Throws std::invalid_argument (options),
  /// std::system_error, and std::runtime_error (the chosen I/O is not available), each with one clear sentence, and leaves
  /// nothing new behind.
  explicit TierStore(const TierStoreOptions& options);
  /// Waits until no work is under way, without a time limit. Does nothing after close().
  ~TierStore();
  TierStore(const TierStore&) = delete;
  TierStore& operator=(const TierStore&) = delete;
  /// Returns false in a child process that was forked after the construction. Only the destructor may be called there. Threads:
  /// any.
  [[nodiscard]] bool is_of_this_process() const;

  /// Returns the key of a block that the engine names by bytes of any length: opaque_key() in the namespace of the options.
  [[nodiscard]] BlockKey key(std::span<const std::byte> name) const;
  [[nodiscard]] Bytes block_bytes() const;

  // ---- memory

  /// Registers memory, so that batches can name its rows. The I/O engine registers it with the kernel if it can. This takes long
  /// for large memory. Fails: invalid_argument (check_rows(), or rows of another size than blocks), in_use (some of the rows lie
  /// in a region that is registered), no_room, stopped.
  [[nodiscard]] Result<HostRegionId> register_region(const HostRows& rows, std::shared_ptr<const void> owner = {});
  /// Fails: in_use (a batch uses it), not_found.
  [[nodiscard]] Result<void> unregister_region(HostRegionId region);

  // ---- queries

  /// Returns whether a get would find the block. A block that is being stored is not there yet.
  [[nodiscard]] bool contains(const BlockKey& key) const;
  /// Returns the number of leading keys that are there without a gap.
  [[nodiscard]] std::size_t leading(std::span<const BlockKey> keys) const;
  /// Sets bit i % 64 of word i / 64 if keys[i] is there, and clears it otherwise. Other bits of these words are cleared. Fails:
  /// invalid_argument (too few words).
  [[nodiscard]] Result<void> look_up(std::span<const BlockKey> keys, std::span<std::uint64_t> bitmap) const;
  /// Tells the store that the blocks were used in a tier above. Keys that are not there are ignored.
  void touch(std::span<const BlockKey> keys);

  // ---- batches

  /// Submits a put. Fails and changes nothing: invalid_argument (numbers of keys, rows and parents differ, or a row does not
  /// exist), not_found (no such region), in_use (a get uses one of the rows), duplicate_request, refused (too much is under way),
  /// never_fits (more blocks than may ever be under way), no_room, stopped.
  [[nodiscard]] Result<void> submit_put(const TierPut& put);
  /// Fails as submit_put(), with in_use if any batch uses one of the rows, and invalid_argument if a row is named twice.
  [[nodiscard]] Result<void> submit_get(const TierGet& get);
  /// Asks the shared store for the keys that the local store does not have. Does not wait; the batch has one result. Fails:
  /// invalid_argument (there is no shared store: leading() answers at once), duplicate_request, never_fits, no_room, stopped.
  [[nodiscard]] Result<void> submit_probe(const TierProbe& probe);
  /// Makes all batches durable whose results poll() has returned. The batch has one result. Fails: duplicate_request, no_room,
  /// stopped.
  [[nodiscard]] Result<void> submit_flush(BatchId id);
  /// Ends all blocks of the batch that the disk has not begun, with `cancelled`. The others end as usual. Fails: not_found.
  [[nodiscard]] Result<void> cancel(BatchId id);
  /// Appends the results of batches that have ended; returns how many.
  std::size_t poll(std::vector<BatchResult>& out);
  /// Appends the events since the last call; returns how many. Events are created in poll().
  std::size_t poll_events(std::vector<TierEvent>& out);
  [[nodiscard]] int wake_fd() const;
  [[nodiscard]] TimePoint next_deadline() const;

  /// Removes the blocks and all blocks below them (TierPut::parents), and waits until the removal is durable: when it returns
  /// without an error, the blocks do not come back after a kill or a power failure. Puts of these keys that have not ended end
  /// with `cancelled`, even if the disk has begun them, and gets of these keys return no bytes from before the call. The call
  /// waits for the disk, for TierStoreOptions::erase_max at most; meanwhile it does the work of poll(), and results wait for the
  /// next poll(). Fails and changes nothing: no_room, stopped. After any other error, the blocks are removed and not served by
  /// this object any more, but the disk has not confirmed the removal, so they may come back after a crash. deadline_exceeded:
  /// the disk did not answer in time. Other errors: the flush has failed; it is tried again each second. The next flush that
  /// succeeds makes the removal durable, and a second call waits for that.
  [[nodiscard]] Result<void> remove(std::span<const BlockKey> keys);
  /// Does the same for all blocks. Takes a fraction of a microsecond for each block, and writes 4 KiB for every 32 blocks. A
  /// shared store is not used after that, because it is unknown for which weights its blocks are.
  [[nodiscard]] Result<void> clear();
  /// Uses the shared store again. `weights_revision` identifies the weights from now on
  /// (TierStoreOptions::shared_weights_revision). If it is not given, the keys from before the clear still mean the same. Fails:
  /// invalid_argument (there is no shared store), stopped.
  [[nodiscard]] Result<void> resume_shared(const std::optional<std::string>& weights_revision = std::nullopt);
  /// Returns true if there is a shared store and it has not been used since a clear().
  [[nodiscard]] bool shared_is_off() const;

  // ---- the end

  /// Refuses all later batches with `stopped`.
  void stop_accepting();
  /// Waits until no batch is under way, but not longer than `until`. Returns true if no batch is under way. Results wait for
  /// poll().
  bool drain(TimePoint until);
  /// Stops accepting batches, drains, and makes everything durable. Returns at `until` at the latest, even if a disk does not
  /// respond. poll() and poll_events() may be called afterwards for the results and events that have arrived. If the result is
  /// not `closed`, a new thread continues the work. It keeps the store, its lock and the owners of its regions until the disk
  /// responds, and then frees them. Memory of a region without an owner must stay valid until then, which means for the rest of
  /// the process. A second call returns the report of the first.
  TierCloseReport close(TimePoint until);

  // ---- state

  [[nodiscard]] TierStatistics statistics() const;
  /// Returns the totals of the idle service's slices, and of the waits of calls for the end of a slice.
  [[nodiscard]] IdleTotals idle_totals() const;
  /// Returns the counts of the underlying store, without `orphans`.
  [[nodiscard]] StoreStat stat() const;
  [[nodiscard]] StoreHealth health() const;
  /// Returns a text for users that describes how I/O is done.
  [[nodiscard]] std::string io() const;
  /// Returns the address of the admin endpoint: "unix:/run/terrace/vllm-4711.sock"; empty if there is none.
  [[nodiscard]] std::string admin_address() const;

 private:
  struct Parts;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace
