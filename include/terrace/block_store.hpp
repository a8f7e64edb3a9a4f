#pragma once

#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"
#include "terrace/waker.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// The types of storage: the choice of file I/O, the treatment of failures, and the health of storage. Plain data. Threads: the
/// functions can be called from any thread.

/// Selects the engine that does file I/O.
enum class IoChoice : unsigned char {
  automatic,  ///< io_uring if it is available, else threads
  uring,
  threads,
};
[[nodiscard]] TERRACE_API std::string_view to_string(IoChoice choice);

/// Name of the store's directory if the configuration does not set one.
inline constexpr const char* default_store_name = "store";

/// Classifies errors by how a caller can respond to them.
enum class ErrorClass : unsigned char {
  none,       ///< no error
  missing,    ///< the data is not there: a miss
  corrupt,    ///< the data is there, and its checksum does not match; a retry gives the same result
  transient,  ///< the device or its connection failed; the same call may succeed later
  refused,    ///< the call was not accepted, now or in this form; this says nothing about the device
  full,       ///< no space until something is removed
};
inline constexpr std::size_t error_class_count = 6;

struct BreakerOptions {
  std::uint32_t failures_max = 5;  ///< this many failures in a row open the breaker; at least 1
  /// the failures count only if they all happened within this time, or took this long
  Duration window = std::chrono::seconds{10};
  Duration probe_first = std::chrono::milliseconds{500};  ///< time from opening to the first probe; each failed probe doubles it
  Duration probe_max = std::chrono::seconds{30};
};

/// The state of a circuit breaker: `closed` lets all operations through, `open` none, and `half_open` one probe.
enum class BreakerState : unsigned char { closed, open, half_open };
[[nodiscard]] TERRACE_API const char* to_string(BreakerState state) noexcept;

/// How a ResilientStore treats the failures of a device: it retries, and after failures in a row it stops using the device and
/// probes it now and then.
struct ResilienceOptions {
  /// How often an operation is retried after a transient error. More than one retry seldom helps, because a FileStore drops a
  /// block at the second failed read in a row, and stops using a slot after each failed write.
  std::uint32_t read_retries = 1;
  std::uint32_t write_retries = 1;
  /// The time from a failure to the next try of the same key. Each failure of that key doubles it.
  Duration back_off_first = std::chrono::milliseconds{20};
  Duration back_off_max = std::chrono::seconds{2};
  /// How many operations may wait for a retry. If more fail, they are not retried.
  std::uint32_t waiting_max = 64;
  BreakerOptions breaker{};
};

enum class StoreState : unsigned char {
  well,  ///< in use
  /// one of: the store is out of use after failures and is being probed; a block failed its checksum within the last hour; a part
  /// of the store is lost; a restart would not find its files (CacheSystem::storage_health reports the last two)
  degraded,
  down,  ///< out of use, and at least two probes in a row have failed
};
[[nodiscard]] TERRACE_API const char* to_string(StoreState state) noexcept;

/// How well storage works.
struct StoreHealth {
  StoreState state = StoreState::well;
  std::string reason{};      ///< one sentence for people
  bool used_in_full = true;  ///< false: out of use after failures, a part is lost, or a restart would not find its files
  /// blocks that failed their checksum within the last hour; they alone make the state `degraded`
  std::uint64_t damaged = 0;
  /// the worse of the states of the two breakers, one for reads and one for writes
  BreakerState breaker = BreakerState::closed;
  TimePoint next_probe = never;  ///< the earlier of the two; `never` if both breakers are closed
  /// how often either breaker opened since construction. The counts down to `failed` also start at construction
  std::uint64_t opened = 0;
  std::uint64_t retried = 0;    ///< operations that were submitted to the store again after a failure
  std::uint64_t recovered = 0;  ///< operations that succeeded after a failure
  std::uint64_t declined = 0;   ///< reads and writes not submitted to the store because their breaker was open
  std::uint64_t held_back = 0;  ///< the same because their key was within its back-off
  std::array<std::uint64_t, error_class_count> failed{};  ///< by ErrorClass: tries of reads and writes that failed
  std::uint32_t waiting = 0;                              ///< operations that wait for a retry now
  /// filled in for striped stores by CacheSystem; ResilientStore leaves it empty
  std::vector<std::filesystem::path> lost_directories{};
};

/// The data that a store keeps for a block in addition to the block's bytes.
struct StoredBlock {
  BlockKey key{};
  BlockKey parent{};        ///< all zero if depth is 0
  std::uint32_t depth = 0;  ///< number of blocks before this block in its prefix
  /// The first eight bytes of the root key, which is made from model, geometry, adapter, tenant and epoch. Statistics and jobs
  /// select blocks by this value. It is never used to decide whether two blocks are the same.
  TenantId tenant{};
  /// The KV cache group of the block's layers. A store keeps this number and does not interpret it.
  GroupId group = {};

  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

struct StoreRead {
  std::uint64_t token = 0;
  BlockKey key{};
  /// Memory for exactly one block. The caller keeps it valid, and nothing else uses it, until the `read` event comes.
  std::span<std::byte> into{};
};

struct StoreWrite {
  std::uint64_t token = 0;
  StoredBlock block{};
  /// The bytes of exactly one block. The caller keeps them valid and unchanged until the `written` event comes.
  std::span<const std::byte> from{};
};

struct StoreEvent {
  enum class Kind : unsigned char {
    read,     ///< a StoreRead has ended. Fails: not_found, corrupt, io_failed; the content of the buffer is then undefined
    written,  ///< a StoreWrite has ended; no error if it was stored before. Fails: parent_missing, full, io_failed, refused (too
              ///< many writes under way, the block is being removed, or the store or its disk is out of use)
    removed,  ///< remove() dropped this block. The token is that of the call that named the key, or 0 for a descendant that no
              ///< call named
    evicted,  ///< the store dropped this block itself: to make room, because its checksum did not match, because reads failed
              ///< twice in a row, or because its disk is lost. The token is 0
    flushed,  ///< a flush() has ended; no key. Fails: io_failed, corrupt (the superblock was overwritten), or an errno
  };

  Kind kind = Kind::read;
  std::uint64_t token = 0;
  BlockKey key{};
  ErrorCode error{};
  /// Only for removed and evicted. The token of the last StoreWrite of this block that was not refused (the block may have been
  /// stored already), or the token that Adopt set later. The owner can use it as the index of its own record of the block.
  std::uint64_t write_token = 0;
};

struct StoreStat {
  std::uint64_t capacity_blocks = 0;  ///< all slots except closed and lost ones; quarantined slots are included
  /// capacity_blocks after resizing is done: the argument of the last resize(), or less if growth has stopped
  std::uint64_t wanted_blocks = 0;
  std::uint64_t blocks = 0;       ///< stored and readable
  std::uint64_t writing = 0;      ///< being written, or waiting for their parent
  std::uint64_t quarantined = 0;  ///< slots without a block that must not be used, because an operation may still touch them, a
                                  ///< write to them failed, or they are being closed
  std::uint64_t free = 0;         ///< slots for new blocks. free + blocks + writing + quarantined = capacity_blocks
  std::uint64_t orphans = 0;      ///< readable blocks whose parent is not readable; must be 0. Each call counts them anew
  std::uint64_t evicted = 0;      ///< blocks in `evicted` events. The counts from here to `floor_stopped` are since construction
  std::uint64_t corrupt = 0;      ///< blocks whose checksum did not match when they were read
  std::uint64_t io_errors = 0;    ///< failed I/O on blocks and on the store's own files, without `full` and `corrupt`
  std::uint64_t reads = 0;        ///< reads of blocks that succeeded
  std::uint64_t writes = 0;       ///< writes of blocks that succeeded
  Bytes read{};
  Bytes written{};
  std::uint64_t growth_stopped = 0;    ///< how often growth stopped before the wanted size, because of missing room or an error
  ErrorCode growth_error{};            ///< why growth has stopped; no error while growth continues or is complete
  std::uint64_t room_kept = 0;         ///< closed slots whose space the file system did not take back
  std::uint64_t floor_stopped = 0;     ///< how many of `growth_stopped` were caused by the floor (FileStoreConfig::floor)
  std::uint32_t directories = 1;       ///< the number of directories over which the store is striped
  std::uint32_t directories_lost = 0;  ///< how many of them are out of use until the next start
};

/// Keeps blocks by key, up to a capacity. If a block is readable, all its ancestors are readable.
///
/// - The parent of a block must be stored, or its write must have been submitted before. A block becomes readable after its
///   parent. A write fails with parent_missing if the parent is neither stored nor being written, if it is not exactly one
///   level up, or if it leaves the store before the write has ended.
/// - A full store evicts leaves: readable blocks without a child that is stored or being written. It evicts the least recently
///   used leaf first; among leaves that were used together, the deepest. Reads, writes and touch() are uses. A leaf that an
///   operation is using stays. A write fails with `full` if no leaf can be evicted, or if the file system has no space.
/// - Every read checks the bytes against the block's checksum, which covers the key. A block that fails the check is not served.
///   It is counted in StoreStat::corrupt, and dropped together with its descendants (`evicted` events).
/// - Several operations may name the same key. A read of a block that is still being written fails with not_found.
///
/// Ownership: the caller owns the memory of `into` and `from`, and keeps it until the event. The batch itself may be destroyed
/// when the call returns. A buffer of a wrong size stops the process. The destructor may wait for the device; events that were
/// not polled are lost. Threads: one call at a time; in a cache, from the thread or strand that calls Cache. No call waits for
/// I/O. Every read, write and flush ends in exactly one event. A store wakes its Waker when poll() has
/// something; call poll() then, and at next_deadline().
class TERRACE_API BlockStore {
 public:
  virtual ~BlockStore() = default;

  /// A read that is under way when its block is removed or evicted ends as usual, and may succeed after the `removed` event.
  virtual void read(std::span<const StoreRead> batch) = 0;
  virtual void write(std::span<const StoreWrite> batch) = 0;
  /// Drops the blocks and all their descendants. A readable block is dropped at once, with a `removed` event. If a named block is
  /// being written, its `written` event comes first, and then, if the write succeeded, its `removed` event. If a descendant is
  /// being written, its write fails with parent_missing, and no `removed` event comes. Keys that are not there are ignored, so a
  /// call may end without an event. The next flush() makes the removal durable, also for blocks whose write has not ended by
  /// then.
  virtual void remove(std::span<const BlockKey> keys, std::uint64_t token) = 0;
  /// Returns true if the index has the block as readable. A read may still fail, for example while a disk is out of use. The call
  /// does no I/O and does not count as a use.
  [[nodiscard]] virtual bool contains(const BlockKey& key) const = 0;
  /// Tells the store that the blocks were hit in a tier above, which counts as a use. Keys that the store does not have are
  /// ignored.
  virtual void touch(std::span<const BlockKey> keys) = 0;

  /// Makes all events durable that were polled before this call. Ends in one `flushed` event. If that has no error, then after a
  /// power failure the `written` blocks are there unless they were dropped since, and the `removed` and `evicted` blocks do not
  /// come back. (A store in memory survives nothing.) Calls made while a flush is under way are served together by the next
  /// flush; each still gets an event. After an error, nothing is known about blocks written since the last flush that succeeded.
  virtual void flush(std::uint64_t token) = 0;

  /// A function that adopt_all() calls with a batch of readable blocks. tokens[i] belongs to blocks[i]: if the function sets it,
  /// later `removed` and `evicted` events of that block have it as their write_token. The function must not call the store.
  using Adopt = std::function<void(std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> tokens)>;
  /// Passes every readable block to `adopt`, in batches, in the order of for_each(). A cache calls it at its start and after a
  /// clear() that keeps storage, to build the prefix tree. It may be called at any time.
  virtual void adopt_all(const Adopt& adopt) = 0;

  /// Sets the number of blocks that the store may hold. A larger store may allocate the space in the background, piece by piece,
  /// and uses each piece at once. A smaller store drops blocks as a full store does, with `evicted` events, during this call and
  /// the next polls. A block that an operation uses is dropped after that operation. stat() shows the progress. A later resize()
  /// replaces an earlier one. Fails and changes nothing: invalid_argument (0, or a store of a fixed size), never_fits (too many
  /// to count), no_room (a store in memory that gets no more memory).
  [[nodiscard]] virtual Result<void> resize(Blocks /*blocks*/) { return Errc::invalid_argument; }

  /// Appends the events that have arrived; returns how many.
  virtual std::size_t poll(std::vector<StoreEvent>& out) = 0;
  /// Reads, writes and flushes that have not ended, plus events that wait for poll(). The store's own I/O, for example of the
  /// catalog, does not count.
  [[nodiscard]] virtual std::size_t in_flight() const = 0;

  /// Returns the time at which poll() must be called even if the store has not woken its waker, for example to retry a failed
  /// read. `never` if there is no such time.
  [[nodiscard]] virtual TimePoint next_deadline() const { return never; }

  /// Sets the waker that is woken from now on, in place of the one that was given at construction; null: none. After this call
  /// the store does not use the former waker any more, so a store may outlive it. A store of the embedder that CacheSystem uses
  /// (CustomStorage) must override this.
  virtual void set_waker(Waker* /*waker*/) {}

  [[nodiscard]] virtual Bytes block_bytes() const = 0;
  [[nodiscard]] virtual StoreStat stat() const = 0;
  /// Returns the same without `orphans`, which takes long to count. Use it for frequent calls. A store that counts orphans
  /// quickly need not override it.
  [[nodiscard]] virtual StoreStat quick_stat() const { return stat(); }
  /// Visits every readable block, depth first: all descendants of a block come directly after it.
  virtual void for_each(const std::function<void(const StoredBlock&)>& visit) const = 0;
  virtual void check_invariants() const = 0;
};

}  // namespace terrace
