#pragma once

#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"
#include "terrace/waker.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// The interface of a store that several machines share: an existing engine, such as a Redis cluster, as one of its users sees
/// it. Other users write to it, and it removes blocks by itself. So its answers are used for one request only, and each block is
/// verified when it is read. A BlockStore guarantees much more (parents, a capacity, events).

/// Asks how many leading keys are there, without a gap, or which of the keys are there.
struct SharedProbe {
  std::uint64_t token = 0;
  /// A part of one prefix, in order, or independent blocks (with `there`). Must stay valid until the call returns.
  std::span<const BlockKey> keys{};
  GroupId group{};  ///< of all keys, unless `groups` says otherwise
  TimePoint deadline = never;
  /// The group of each key, if the keys have several groups. Empty: all have `group`. Must stay valid until the call returns.
  std::span<const GroupId> groups{};
  /// One byte for each key, which the caller sets to 0. If it is not empty, the store asks for every key, and before the event it
  /// sets the bytes of the keys that it knows to be there to 1. The caller keeps the memory valid, and nothing else uses it,
  /// until the event comes. SharedEvent::leading is then the number of bytes that are 1.
  std::span<std::uint8_t> there{};

  [[nodiscard]] GroupId group_of(std::size_t key) const { return groups.empty() ? group : groups[key]; }
};

struct SharedRead {
  std::uint64_t token = 0;
  /// The block to read. A value for any other block is corrupt. (The tenant is not compared.)
  StoredBlock block{};
  /// Memory for exactly one block. The caller keeps it valid, and nothing else uses it, until the event comes.
  std::span<std::byte> into{};
  TimePoint deadline = never;
};

struct SharedWrite {
  std::uint64_t token = 0;
  StoredBlock block{};
  /// The bytes of exactly one block. The caller keeps them valid and unchanged until the event comes.
  std::span<const std::byte> from{};
  TimePoint deadline = never;
};

struct SharedEvent {
  enum class Kind : std::uint8_t {
    probed,  ///< a SharedProbe has ended. Fails: deadline_exceeded, io_failed, refused; `leading` then counts the known keys
    read,    ///< a SharedRead has ended. Fails: not_found, corrupt, deadline_exceeded, io_failed, refused, cancelled; the content
             ///< of the memory is then undefined
    written,  ///< a SharedWrite has ended. Fails: full, deadline_exceeded, io_failed, refused, cancelled; the block may still
              ///< have been written, but never only in part
  };

  Kind kind = Kind::read;
  std::uint64_t token = 0;
  ErrorCode error{};
  /// probed: number of leading keys that are there; with SharedProbe::there, of all keys that are there
  std::uint32_t leading = 0;
};

/// Why a value that was found could not be used. Each value is counted under one reason.
enum class SharedMismatch : std::uint8_t {
  format,       ///< not a value of Terrace, or of a version that this library does not know
  key,          ///< it is for another key, parent, depth or group
  fingerprint,  ///< it is for other weights, another model or another geometry
  length,       ///< its size is wrong, or a part is missing
  checksum,     ///< its bytes are damaged
  seal,         ///< not sealed with this deployment's secret
};
inline constexpr std::size_t shared_mismatch_count = 6;
[[nodiscard]] TERRACE_API const char* to_string(SharedMismatch mismatch) noexcept;

/// Totals since construction.
struct SharedStoreStat {
  std::uint64_t probes = 0;         ///< probes that have ended, with any result
  std::uint64_t keys_asked = 0;     ///< keys of these probes
  std::uint64_t keys_there = 0;     ///< keys that were reported to be there
  std::uint64_t reads = 0;          ///< blocks that arrived and verified
  std::uint64_t reads_missing = 0;  ///< reads that ended with not_found
  std::uint64_t writes = 0;         ///< blocks that were written
  std::uint64_t renewed = 0;        ///< keys for which a renewal of the expiry was requested
  std::uint64_t removed = 0;        ///< keys for which a removal was requested
  std::uint64_t timed_out = 0;      ///< operations that ended with deadline_exceeded
  std::uint64_t failed = 0;         ///< operations that ended with io_failed
  std::uint64_t declined = 0;       ///< operations that ended with refused: a breaker was open, or too much was under way
  std::uint64_t full = 0;           ///< writes that ended with full
  std::array<std::uint64_t, shared_mismatch_count> mismatches{};  ///< by SharedMismatch
  Bytes read{};
  Bytes written{};

  [[nodiscard]] std::uint64_t corrupt() const {
    std::uint64_t all = 0;
    for (const std::uint64_t each : mismatches) all += each;
    return all;
  }
};

/// One server of the engine.
struct SharedNode {
  std::string address{};  ///< HOST:PORT, without user and password
  BreakerState breaker = BreakerState::closed;
  std::uint32_t connections = 0;   ///< connections that are ready
  Bytes in_flight{};               ///< bytes that are being sent or expected
  std::uint64_t reconnects = 0;    ///< since construction, as are the following counts
  std::uint64_t redirections = 0;  ///< answers that named another node
  std::uint64_t failed = 0;        ///< operations that failed here
  TimePoint next_probe = never;    ///< when the node is probed again, if its breaker is open
};

struct SharedHealth {
  StoreState state = StoreState::well;  ///< well: all nodes answer; degraded: some do; down: none does
  std::string reason{};                 ///< one sentence for people; empty if well
  std::vector<SharedNode> nodes{};
};

/// Reads and writes blocks of an engine that several machines share.
///
/// - Each probe, read and write ends in exactly one event, at its deadline at the latest (plus the time to notice it). After the
///   event its memory is not accessed any more, even if the engine still sends data.
/// - A read succeeds only if the value names this block, these weights and this length, and if its checksum (or its seal, if
///   there is a secret) verifies. If in doubt, it fails with `corrupt`, and the value is removed once.
/// - A write is all or nothing: readers see no part of a value.
/// - There is no order, no parent, no capacity and no event about other users. Operations on one key may overtake each other.
///
/// Ownership: the caller owns the memory of `into` and `from`. The batch itself may be destroyed when a call returns. The
/// destructor ends all operations without events. Threads: one call at a time, from the thread that polls, except for health()
/// and stat(), which any thread may call. No call waits. The store wakes its Waker when poll() has something. Deadlines are times
/// of the store's clock.
class TERRACE_API SharedStore {
 public:
  using Fingerprint = std::array<std::byte, 32>;

  virtual ~SharedStore() = default;

  /// Sets the fingerprint for later operations: a digest of model, geometry and weights. Earlier operations keep their
  /// fingerprint. Blocks with another fingerprint are not found.
  virtual void use(const Fingerprint& fingerprint) = 0;

  virtual void probe(const SharedProbe& probe) = 0;
  virtual void read(std::span<const SharedRead> batch) = 0;
  virtual void write(std::span<const SharedWrite> batch) = 0;
  /// Renews the expiry of blocks that were used. `blocks` are in the order of their prefix; only keys, depths and groups are
  /// used. The outcome is not reported.
  virtual void renew(std::span<const StoredBlock> blocks) = 0;
  /// Removes values. The outcome is not reported.
  virtual void remove(std::span<const BlockKey> keys, GroupId group) = 0;
  /// Cancels the operation with this token. It still ends in its event, with `cancelled` unless it was done before. The event
  /// comes after at most one poll of the store's own thread, and does not wait for the engine.
  virtual void cancel(std::uint64_t token) = 0;

  /// Appends the events that have arrived; returns how many.
  virtual std::size_t poll(std::vector<SharedEvent>& out) = 0;
  /// Returns the number of operations that have not ended, plus events that wait for poll().
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  /// Returns the time at which poll() must be called even if the waker was not woken. `never` if there is no such time.
  [[nodiscard]] virtual TimePoint next_deadline() const { return never; }
  /// Sets the waker that is woken from now on; null: none.
  virtual void set_waker(Waker* waker) = 0;
  /// Returns false while no node can be used. Look-ups then continue at once, as without this store.
  [[nodiscard]] virtual bool usable() const = 0;

  [[nodiscard]] virtual SharedHealth health() const = 0;
  [[nodiscard]] virtual SharedStoreStat stat() const = 0;
};

}  // namespace terrace
