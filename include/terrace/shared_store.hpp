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

/// The interface of a store that several machines share: an engine that exists, such as a Redis cluster, seen by one of its
/// users. Others write to it, and it removes blocks by itself. So nothing that it has said is believed for longer than one
/// request: a block is asked for, read, verified, or missed. A BlockStore promises much more (parents, a capacity, events).

/// Asks how many of the keys are there, counted from the first one without a gap, or which of them are there.
struct SharedProbe {
  std::uint64_t token = 0;
  /// A part of one prefix, in order, or blocks of which each is asked for by itself (`there`). Valid until the call returns.
  std::span<const BlockKey> keys{};
  GroupId group{};  ///< of all keys, unless `groups` says otherwise
  TimePoint deadline = never;
  /// The group of each key, if they have several. Empty: all have `group`. Valid until the call returns.
  std::span<const GroupId> groups{};
  /// One byte for each key, 0 at the call. If it is not empty, every key is asked for, and before its event the store sets the
  /// bytes of the keys that it knows to be there to 1. The caller keeps the memory valid, and nobody else uses it, until the
  /// event comes. SharedEvent::leading is the number of bytes that are set then.
  std::span<std::uint8_t> there{};

  [[nodiscard]] GroupId group_of(std::size_t key) const { return groups.empty() ? group : groups[key]; }
};

struct SharedRead {
  std::uint64_t token = 0;
  /// The block that is wanted. A value that says anything else is corrupt. (The tenant is not compared.)
  StoredBlock block{};
  /// Memory for exactly one block. The caller keeps it valid, and nobody else uses it, until the event comes.
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
    probed,   ///< a SharedProbe has ended. Fails: deadline_exceeded, io_failed, refused; `leading` then counts what is known
    read,     ///< a SharedRead has ended. Fails: not_found, corrupt, deadline_exceeded, io_failed, refused, cancelled; then the
              ///< content of the memory means nothing
    written,  ///< a SharedWrite has ended. Fails: full, deadline_exceeded, io_failed, refused, cancelled; then the block may be
              ///< there all the same, and it is whole if it is
  };

  Kind kind = Kind::read;
  std::uint64_t token = 0;
  ErrorCode error{};
  std::uint32_t leading = 0;  ///< probed: number of leading keys that are there; if SharedProbe::there is used, of all that are
};

/// Why blocks that were there could not be used. One reason for each.
enum class SharedMismatch : std::uint8_t {
  format,       ///< no value of Terrace, or of a version that this library does not know
  key,          ///< another key or parent, depth or group
  fingerprint,  ///< other weights, model or geometry
  length,       ///< another size, or a missing part
  checksum,     ///< damaged bytes
  seal,         ///< not sealed with this deployment's secret
};
inline constexpr std::size_t shared_mismatch_count = 6;
[[nodiscard]] TERRACE_API const char* to_string(SharedMismatch mismatch) noexcept;

/// Totals since construction.
struct SharedStoreStat {
  std::uint64_t probes = 0;         ///< that have ended, with any result
  std::uint64_t keys_asked = 0;     ///< keys of these probes
  std::uint64_t keys_there = 0;     ///< keys of which an event has said that they are there
  std::uint64_t reads = 0;          ///< blocks that arrived and verified
  std::uint64_t reads_missing = 0;  ///< reads that ended with not_found
  std::uint64_t writes = 0;         ///< blocks that were written
  std::uint64_t renewed = 0;        ///< keys whose expiry was renewed, or asked to be
  std::uint64_t removed = 0;        ///< keys that were asked to be removed
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
  std::uint32_t connections = 0;   ///< that are ready
  Bytes in_flight{};               ///< bytes that are being sent or expected
  std::uint64_t reconnects = 0;    ///< since construction; the counts below, too
  std::uint64_t redirections = 0;  ///< answers that named another node
  std::uint64_t failed = 0;        ///< operations that failed here
  TimePoint next_probe = never;    ///< when an open breaker tries the node again
};

struct SharedHealth {
  StoreState state = StoreState::well;  ///< well: all nodes answer; degraded: some do; down: none does
  std::string reason{};                 ///< one sentence for people; empty if well
  std::vector<SharedNode> nodes{};
};

/// Reads and writes blocks of an engine that several machines share.
///
/// - Each probe, read and write ends in exactly one event, at its deadline at the latest (and the time to notice it). After the
///   event nothing touches its memory any more, whatever the engine still sends.
/// - A read succeeds only if the value names this block, these weights and this length, and if its checksum (or its seal, if
///   there is a secret) verifies. If in doubt, it fails with `corrupt`, and the value is removed once.
/// - A write is all or nothing: readers see no part of a value.
/// - No order, no parents, no capacity, no events about others. Operations on one key may overtake each other.
///
/// Ownership: the caller owns the memory of `into` and `from`. The batch itself may be destroyed when a call returns. The
/// destructor ends all operations without events. Threads: one call at a time, from the thread that polls, except for health()
/// and stat(), which any thread may call. No call waits. The store wakes its Waker when poll() has something. Deadlines are by
/// the clock of the store.
class TERRACE_API SharedStore {
 public:
  using Fingerprint = std::array<std::byte, 32>;

  virtual ~SharedStore() = default;

  /// Sets what blocks mean from now on: a digest of model, geometry and weights. Operations begun before keep theirs. Blocks
  /// under another fingerprint are not there for this user.
  virtual void use(const Fingerprint& fingerprint) = 0;

  virtual void probe(const SharedProbe& probe) = 0;
  virtual void read(std::span<const SharedRead> batch) = 0;
  virtual void write(std::span<const SharedWrite> batch) = 0;
  /// The blocks were used: their expiry is renewed. `blocks` are in the order of their prefix; keys, depths and groups count.
  /// Nothing reports how it ended.
  virtual void renew(std::span<const StoredBlock> blocks) = 0;
  /// Removes values; nothing reports how it ended.
  virtual void remove(std::span<const BlockKey> keys, GroupId group) = 0;
  /// The operation with this token is not wanted any more. It still ends in its event, with `cancelled` unless it was done
  /// before, within the time of a poll of the store's own thread, and not at the engine's pace.
  virtual void cancel(std::uint64_t token) = 0;

  /// Appends the events that have arrived; returns how many.
  virtual std::size_t poll(std::vector<SharedEvent>& out) = 0;
  /// Operations that have not ended, plus events that wait for poll().
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  /// When poll() must be called even if the waker was not woken. `never` if there is no such time.
  [[nodiscard]] virtual TimePoint next_deadline() const { return never; }
  /// Sets the waker that is woken from now on; null: none.
  virtual void set_waker(Waker* waker) = 0;
  /// False while it makes no sense to ask: no node can be used. A look-up then goes on at once, as without this store.
  [[nodiscard]] virtual bool usable() const = 0;

  [[nodiscard]] virtual SharedHealth health() const = 0;
  [[nodiscard]] virtual SharedStoreStat stat() const = 0;
};

}  // namespace terrace
