#pragma once

#include "base/waker.hpp"
#include "runtime/cache/measure/trace_span.hpp"
#include "runtime/engine/idle/turns.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/request.hpp"
#include "terrace/shared_store.hpp"
#include "transfer/engine/transfer_port.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// The parts of one pool.
struct PoolParts {
  /// Has, or will have, host_blocks + staging_blocks slots. At least staging_blocks of them are warm. It grows and shrinks with
  /// the host tier.
  HostArena* arena = nullptr;
  /// nullptr: no storage. Either all pools have a store, or none has. Each pool has its own, because all blocks of a store have
  /// one size.
  BlockStore* store = nullptr;
};

/// Observes a cache: for the log (CacheSystemWatch), for the admin endpoint, and for traces. The cache calls the members.
/// Threads: the thread of the cache.
class CacheWatch : public SpanSink {
 public:
  /// Called at the end of every poll, unless the poll had nothing to do: no event, no call since the last one, no deadline, and
  /// nobody has woken the cache. May call members of the cache.
  virtual void on_polled(TimePoint now) = 0;
  /// Called when a flush of the pool's store has ended.
  virtual void on_flushed(ErrorCode /*error*/, PoolId /*pool*/) {}
  /// Called when a request was accepted, when blocks were shared under `keys`, and when a lease has ended.
  virtual void on_acquired(const AcquireRequest& /*request*/) {}
  virtual void on_committed(RequestId /*id*/, std::span<const BlockKey> /*keys*/) {}
  virtual void on_released(RequestId /*id*/) {}
  /// Called when an engine that owns its device slots asks for blocks: blocks that it loads, and blocks that it has computed and
  /// stores because they were not cached.
  virtual void on_offload_asked(PoolId /*pool*/, std::span<const BlockKey> /*keys*/) {}
  /// Returns true if on_offload_asked() is to be called.
  [[nodiscard]] virtual bool wants_offload_asked() const { return false; }
  /// Returns true if on_span() is to be called. The cache asks when it has called on_polled().
  [[nodiscard]] virtual bool wants_spans() const { return false; }
  void on_span(const TraceSpan& /*span*/) override {}
  /// The time at which the cache must be polled for this object even if nothing else happens.
  [[nodiscard]] virtual TimePoint next_deadline() const { return never; }
};

/// The parts that a cache works with. All of them outlive the cache.
struct CacheParts {
  TransferPort& transfers;       ///< serves a device that has all pools
  std::vector<PoolParts> pools;  ///< by PoolId
  const Clock& clock;
  /// `transfers` and the stores wake it; wake_fd() is its descriptor. Null: for simulations that never sleep.
  EventFdWaker* waker = nullptr;
  /// Poison mode, for tests: slots are overwritten as they become free, so that a read that comes too late, or of a slot that was
  /// never filled, is noticed. Null: off.
  RankDevices* poison = nullptr;
  std::vector<CacheWatch*> watches{};
  /// A store that other machines use, too, if ManagerConfig::shared is on. It wakes the same waker. Null: none.
  SharedStore* shared = nullptr;
  /// If an idle service calls Cache::serve_idle(), all other calls are made in turns of this object. nullptr: there is no idle
  /// service.
  const Turns* turns = nullptr;
  /// One poll handles what has ended up to about this number of blocks (PollBudget), those that requests wait for first, and asks
  /// for another poll if more has ended. A transfer ends as a whole. So a step is not held up for long, whatever ended together.
  std::uint32_t poll_blocks = 2048;
};

}  // namespace terrace
