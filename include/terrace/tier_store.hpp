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
  /// The directories of the store's files; several directories, each on a disk of its own, are used in equal shares. If one is
  /// missing it is made; its parent must exist.
  std::vector<std::filesystem::path> directories{};
  /// The name of the store's own directory inside each of these: digits, lower-case letters and '-'. Stores of different ranks or
  /// models that share a directory need different names.
  std::string name = "store";
  Bytes capacity{};     ///< the disk space of all directories together
  Bytes block_bytes{};  ///< the size of one block; a multiple of 4 KiB
  /// Says for people whose store it is: engine, model, revision (FileStorage::label).
  std::string label{};
  /// Bytes of any length that go into each key(): model, layout, rank.
  std::string key_namespace{};
  /// Identifies what the blocks contain. A store that was written with another fingerprint is refused.
  std::array<std::byte, 32> fingerprint{};
  Bytes floor{};  ///< how much of each file system must stay free
  Bytes stripe_bytes = MiB * 4;
  bool accept_lost_directories = false;  ///< start without a directory, other than the first, that cannot be used
  IoChoice io = IoChoice::automatic;
  unsigned io_threads = 4;     ///< only for I/O by threads
  BytesPerSecond bandwidth{};  ///< to imitate a slower disk; 0: no limit. Only for I/O by threads
  /// Retries, and what happens while the disk keeps failing. Nothing: each failure goes to the caller.
  std::optional<ResilienceOptions> resilience = ResilienceOptions{};
  /// The longest time that a stored block waits until it survives a power failure. 0: only submit_flush() and the end flush.
  Duration flush_interval = std::chrono::seconds{5};
  Duration erase_max = std::chrono::seconds{30};  ///< how long remove() and clear() wait for the disk at most

  Blocks blocks_max = 65536;         ///< blocks of batches that have not ended; more are refused
  Blocks gets_under_way_max = 256;   ///< blocks that the disk reads at a time; others wait, and can be cancelled
  Blocks puts_under_way_max = 256;   ///< the same for writes
  std::uint32_t events_max = 65536;  ///< events that wait for poll_events(); older ones are dropped and counted

  LogOptions log{};
  /// An endpoint for operators. `block_tokens` means nothing here.
  AdminOptions admin{};
  /// A store of the embedder's own, instead of files in `directories`. Nobody else uses it until the end. Experimental.
  std::shared_ptr<BlockStore> store{};
  /// A store that several machines share, behind the local one: gets read from there what is not here, and puts write to both.
  /// This object is used by nobody else until the end.
  std::shared_ptr<SharedStore> shared{};
  std::string shared_weights_revision{};                ///< as SharedStorage::weights_revision, if the keys do not say it
  Duration shared_read_max = std::chrono::seconds{1};   ///< the longest time for a block from there; after that it is a miss
  Duration shared_write_max = std::chrono::seconds{5};  ///< how long a put may wait for it, after the local store
  bool shared_writes = true;                            ///< if false, puts write to the local store alone
  /// A thread of the store's own does what poll() does while the owner is idle: when no call was made for 100 ms, and until the
  /// next one. Results and events wait for the owner's poll(). Without it, work and the commands of operators stand still until
  /// somebody polls.
  bool idle_service = true;
};

/// A batch of blocks to be stored. The spans are copied by the call.
struct TierPut {
  BatchId id{};
  std::span<const BlockKey> keys{};
  HostRegionId region{};
  std::span<const std::uint32_t> rows{};  ///< by key: the row that has the block
  /// Empty, or by key: the block that comes before it in its prefix; all zero: none. It is a hint for eviction: a block is
  /// evicted before its parent. If the parent is not stored by then, the block is stored without one. A block that is removed or
  /// damaged takes those below it with it.
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

/// Asks how many of the keys a get would find, the shared store included, counted from the first one without a gap.
struct TierProbe {
  BatchId id{};
  std::span<const BlockKey> keys{};
  /// The batch ends at this time at the latest, with what is known by then: a shared store that does not answer counts as one
  /// that has nothing.
  TimePoint deadline = never;
};

enum class BatchKind : unsigned char { put, get, flush, probe };

/// How a batch has ended.
struct BatchResult {
  BatchId id{};
  BatchKind kind = BatchKind::put;
  /// By key; one entry for a flush or a probe. No error: the block is stored and readable, or its row has its bytes. Get:
  /// not_found (a miss, the block was removed meanwhile, or the disk is not used after failures), corrupt (damaged: a miss, and
  /// the block is given up), io_failed. Put: full, io_failed, refused (the disk is not used after failures), cancelled (also if
  /// it was overtaken by remove() or clear(): then the block is not stored). Both: cancelled, deadline_exceeded. After an error
  /// of a get the content of the row means nothing.
  std::vector<ErrorCode> errors{};
  std::uint32_t succeeded = 0;  ///< blocks without an error; for a probe, leading keys that are there
  Bytes bytes{};                ///< of the blocks that succeeded
  Duration duration{};          ///< from the submit call to this result
  /// Only after the deadline: the disk still uses some of the rows. Leave them alone until the event `memory_free` of this batch.
  bool memory_in_use = false;
};

struct TierEvent {
  enum class Kind : unsigned char {
    stored,       ///< a block has become readable
    evicted,      ///< the store has given a block up: to make room, or because it was damaged, or its disk is lost
    removed,      ///< remove() or clear() has given it up
    memory_free,  ///< a batch that ended at its deadline uses no memory any more; its id is free again
  };
  Kind kind = Kind::stored;
  BlockKey key{};   ///< all zero for memory_free
  BatchId batch{};  ///< only for memory_free
};

/// Counts since construction, and what is under way now.
struct TierStatistics {
  std::uint64_t gets = 0;  ///< blocks; the next six add up to it, when nothing is under way
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t get_failures = 0;
  std::uint64_t gets_cancelled = 0;
  std::uint64_t gets_late = 0;  ///< deadline_exceeded
  std::uint64_t puts = 0;       ///< blocks; the next four add up to it, when nothing is under way
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
  std::uint64_t not_flushed = 0;  ///< stored blocks that a power failure may cost
  std::uint64_t events_dropped = 0;
  std::uint32_t batches = 0;    ///< that have not ended
  std::uint32_t waiting = 0;    ///< blocks that the disk has not begun
  std::uint32_t under_way = 0;  ///< blocks that the disk has begun
  std::uint32_t regions = 0;
  // With a shared store:
  std::uint64_t shared_hits = 0;        ///< the part of `hits` that it has brought
  std::uint64_t shared_misses = 0;      ///< blocks that were asked for there, and did not come
  std::uint64_t shared_stored = 0;      ///< blocks that were written to it
  std::uint64_t shared_present = 0;     ///< blocks that were not, because it had them
  std::uint64_t shared_not_stored = 0;  ///< blocks that it did not take; the puts do not fail for that
  // The sums of what it was to do: when nothing is under way, shared_gets = shared_hits + shared_misses + shared_gets_declined,
  // and shared_puts = shared_stored + shared_present + shared_not_stored + shared_puts_cancelled + shared_puts_declined.
  std::uint64_t shared_gets = 0;            ///< blocks that the local store did not bring
  std::uint64_t shared_gets_declined = 0;   ///< not asked for there: it could not be used, or is off since a clear
  std::uint64_t shared_puts = 0;            ///< blocks; none if TierStoreOptions::shared_writes is false
  std::uint64_t shared_puts_cancelled = 0;  ///< remove() or clear() came before they were written
  std::uint64_t shared_puts_declined = 0;   ///< not written: it could not be used, or is off since a clear
  // Questions: contains(), leading(), look_up(), and probes that have ended.
  std::uint64_t asked = 0;  ///< keys
  std::uint64_t found = 0;  ///< of those, keys that are there; for leading() and probes, the leading ones
};

/// Result of TierStore::close().
struct TierCloseReport {
  bool closed = false;             ///< all memory is free, and all that was stored is durable unless `error` is set
  std::uint32_t batches_left = 0;  ///< batches that had not ended when the time was over; they have no result
  ErrorCode error{};               ///< of the last flush before the end
};

/// The storage half of a cache, alone: a flat store of blocks that somebody else names, for an engine that manages device and
/// host memory itself. It finds its blocks again after a restart. docs/design/tier-store.md describes it.
///
/// - Keys are made from the engine's own names by key(), or are any other 32 bytes.
/// - contains(), leading() and look_up() answer at once, from memory, and count as no use. submit_put() and submit_get() name a
///   batch of blocks, and rows of a region that was registered. They do not wait. poll() returns one result for each batch, with
///   an error code for each of its blocks.
/// - remove() and clear() wait for the disk, for a bounded time: when they return, nothing comes back after a crash.
/// - A full store evicts the block that was used least recently; a put, a get and touch() are uses.
/// - Each get verifies a checksum over bytes and key.
/// - While the disk keeps failing, nothing is found, puts are refused, and the store probes the disk.
/// - With a shared store (TierStoreOptions::shared), a get also brings blocks that only the shared store has, and a put writes to
///   both. What goes wrong there is a miss, or a block that is not stored there. Questions that answer at once are about the
///   local store; submit_probe() asks both. clear() leaves what the shared store has, because others use it: nothing is found
///   there or written to it after that, until resume_shared() names the weights. remove() asks it to remove the blocks (unless
///   `shared_writes` is false), and cannot tell whether it has: blocks whose meaning has changed need keys of another namespace.
///
/// Ownership: memory of a region stays valid until unregister_region() has succeeded, or close() has returned `closed`. If an
/// owner was given with it, the store keeps the owner for as long as the disk may use the memory, whatever happens. From submit
/// to result (see BatchResult::memory_in_use), nobody changes the rows of a put, and nobody uses the rows of a get; the store
/// refuses what it can see of that. Threads: one calls all members. Wake-up: wake_fd() is readable when poll() has something;
/// call poll() then, and at next_deadline(). In a child process made by fork(), the store's files are closed, and the only call
/// allowed is the destructor, which does nothing there. The admin endpoint has a thread of its own, which never touches the
/// store: poll() publishes what it answers, and carries out its commands. While the owner makes no call, the idle service does
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
  /// Waits until nothing is under way, for as long as that takes; does nothing after close().
  ~TierStore();
  TierStore(const TierStore&) = delete;
  TierStore& operator=(const TierStore&) = delete;
  /// False in a child process that was forked since: only the destructor may be called there. Threads: any.
  [[nodiscard]] bool is_of_this_process() const;

  /// Returns the key of a block that the engine names by bytes of any length: opaque_key() in the namespace of the options.
  [[nodiscard]] BlockKey key(std::span<const std::byte> name) const;
  [[nodiscard]] Bytes block_bytes() const;

  // ---- memory

  /// Registers memory: its rows can be named in batches, and the I/O engine maps it once if it can. Takes long if there is much
  /// of it. Fails: invalid_argument (check_rows(), or rows of another size than blocks), in_use (some of the rows lie in a region
  /// that is registered), no_room, stopped.
  [[nodiscard]] Result<HostRegionId> register_region(const HostRows& rows, std::shared_ptr<const void> owner = {});
  /// Fails: in_use (a batch uses it), not_found.
  [[nodiscard]] Result<void> unregister_region(HostRegionId region);

  // ---- what is there

  /// Returns whether a get would find the block. A block that is being stored is not there yet.
  [[nodiscard]] bool contains(const BlockKey& key) const;
  /// Returns how many of the first keys are there without a gap.
  [[nodiscard]] std::size_t leading(std::span<const BlockKey> keys) const;
  /// Sets bit i % 64 of word i / 64 if keys[i] is there, and clears it otherwise. Other bits of these words are cleared. Fails:
  /// invalid_argument (too few words).
  [[nodiscard]] Result<void> look_up(std::span<const BlockKey> keys, std::span<std::uint64_t> bitmap) const;
  /// The blocks were used in a tier above. Keys that are not there are ignored.
  void touch(std::span<const BlockKey> keys);

  // ---- batches

  /// Fails, and then nothing has changed: invalid_argument (numbers of keys, rows and parents differ, or a row does not exist),
  /// not_found (no such region), in_use (a get uses one of the rows), duplicate_request, refused (too much is under way),
  /// never_fits (more blocks than may ever be under way), no_room, stopped.
  [[nodiscard]] Result<void> submit_put(const TierPut& put);
  /// Fails as submit_put(), with in_use if any batch uses one of the rows, and invalid_argument if a row is named twice.
  [[nodiscard]] Result<void> submit_get(const TierGet& get);
  /// Asks the shared store for what is not here. Does not wait; the batch has one result. Fails: invalid_argument (there is no
  /// shared store: leading() answers at once), duplicate_request, never_fits, no_room, stopped.
  [[nodiscard]] Result<void> submit_probe(const TierProbe& probe);
  /// Makes everything durable of which poll() has returned the result. The batch has one result. Fails: duplicate_request,
  /// no_room, stopped.
  [[nodiscard]] Result<void> submit_flush(BatchId id);
  /// Ends the blocks of the batch that the disk has not begun, with `cancelled`. The others end as usual. Fails: not_found.
  [[nodiscard]] Result<void> cancel(BatchId id);
  /// Appends the results of batches that have ended; returns how many.
  std::size_t poll(std::vector<BatchResult>& out);
  /// Appends the events since the last call; returns how many. poll() is what makes them.
  std::size_t poll_events(std::vector<TierEvent>& out);
  [[nodiscard]] int wake_fd() const;
  [[nodiscard]] TimePoint next_deadline() const;

  /// Gives up blocks, and those below them (TierPut::parents), and waits until that is durable: when it returns without an error,
  /// the blocks are not there after a kill or a power failure either. Puts and gets of these keys that have not ended are
  /// overtaken: puts end with `cancelled`, also those that the disk has begun, and of gets no bytes of before come. The call
  /// waits for the disk, for TierStoreOptions::erase_max at most; meanwhile it does what poll() does, and results wait for the
  /// next poll(). Fails, and nothing has changed: no_room, stopped. Any other error says that the blocks are given up, and
  /// nothing of them is served by this object any more, but the disk has not confirmed it: after a crash they may be there again.
  /// deadline_exceeded: the disk did not answer in time. Otherwise the flush has failed; it is tried again each second. The next
  /// flush that succeeds makes it durable, and a second call waits for that.
  [[nodiscard]] Result<void> remove(std::span<const BlockKey> keys);
  /// The same for all blocks. Takes a fraction of a microsecond for each, and writes 4 KiB for every 32 of them. A shared store
  /// is not used after that, because nobody knows for which weights its blocks are.
  [[nodiscard]] Result<void> clear();
  /// Uses the shared store again. `weights_revision`: of the weights of now on (TierStoreOptions::shared_weights_revision); none:
  /// the keys that blocks had before the clear still mean the same. Fails: invalid_argument (there is no shared store), stopped.
  [[nodiscard]] Result<void> resume_shared(const std::optional<std::string>& weights_revision = std::nullopt);
  /// There is a shared store, and it is not used since a clear().
  [[nodiscard]] bool shared_is_off() const;

  // ---- the end

  /// Refuses all later batches with `stopped`.
  void stop_accepting();
  /// Waits until no batch is under way, but not longer than `until`. Returns whether none is. Results wait for poll().
  bool drain(TimePoint until);
  /// Stops accepting, drains, and makes everything durable, and returns at `until` at the latest, even if a disk does not answer.
  /// poll() and poll_events() may be called afterwards for what has come. If the result is not `closed`, a thread of its own goes
  /// on with the work, holds the store, its lock and the owners of its regions until the disk answers, and then frees them.
  /// Memory of a region without an owner must stay valid until then, so for the rest of the process. A second call
  /// returns the report of the first.
  TierCloseReport close(TimePoint until);

  // ---- how it is

  [[nodiscard]] TierStatistics statistics() const;
  /// Slices of the idle service, and how often and how long a call has waited for the end of one.
  [[nodiscard]] IdleTotals idle_totals() const;
  /// Counts of the store itself, without `orphans`.
  [[nodiscard]] StoreStat stat() const;
  [[nodiscard]] StoreHealth health() const;
  /// Returns a text for users that says how I/O is done.
  [[nodiscard]] std::string io() const;
  /// Returns the address of the admin endpoint: "unix:/run/terrace/vllm-4711.sock"; empty if there is none.
  [[nodiscard]] std::string admin_address() const;

 private:
  struct Parts;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace
