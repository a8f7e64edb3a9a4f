#pragma once

#include "base/waker.hpp"
#include "radix/groups/groups.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/system.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/replay/engine/scheduler.hpp"
#include "tools/replay/engine/session.hpp"
#include "tools/replay/engine/slot_reserve.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace terrace::tools {

/// Serves the requests as an inference engine does: one thread polls the cache, asks the scheduler what to run in each step,
/// launches it, and sleeps while there is nothing to do.
///
/// With --reference it serves one request at a time, each to its end, and waits for each copy before the next thing happens. With
/// `exclusive` copies the results are then those of the policy only if there is a SlotReserve.
///
/// A request by layer is told of layers that have arrived while it waits. A launch of its own then compares these layers of its
/// hits.
///
/// A step is launched in parts, because blocks are shared when the work that writes them is launched. The first part is the work
/// of the running requests, so that a request that is admitted in the same step finds their blocks. Then each admitted request is
/// a part of its own. The next step is decided while the last part is still computed.
///
/// Threads: one.
class ConfinedDriver {
 public:
  /// `interrupt` and the computation wake `waker`. `waker` must outlive the devices of `system`, and all arguments must outlive
  /// the driver. `reserved_slots` is the size of the SlotReserve; 0: there is none.
  ConfinedDriver(Session& session, CacheSystem& system, EventFdWaker& waker, const Interrupt& interrupt,
                 std::uint32_t reserved_slots = 0);

  /// Returns when every request has ended. After an interruption or a failure it returns when all launched work is computed and
  /// all other requests have been dropped. Then no lease is left.
  void run();
  /// See SlotReserve::requests().
  [[nodiscard]] std::uint64_t reserve_requests() const { return reserve_ ? reserve_->requests() : 0; }

 private:
  /// A request that was taken from the trace and has not ended.
  struct Flight {
    Prepared request;
    TimePoint came;
    Lease lease;
    RequestStats stats;                 ///< of the blocks that it got when it was first admitted
    Fence computed;                     ///< the fence of the last work launched for it
    std::uint64_t launched_tokens = 0;  ///< tokens since its last admission, including those from the cache
    std::uint32_t committed = 0;
    std::uint64_t compared = 0;  ///< how many of the hits in `stats` were compared
    std::uint32_t layers = 0;    ///< leading layers of its hits that have arrived and are compared, while it waits
    bool matched = false;
    bool begun = false;         ///< some of its work has ever been launched
    bool prompted = false;      ///< its whole prompt has been launched once
    bool has_new_hits = false;  ///< it has hits that no computation has read yet
    bool ending = false;        ///< all its work has been launched
    bool preempted = false;     ///< it has been preempted at least once
  };
  /// A launched part of a step.
  struct Launch {
    std::uint64_t number = 0;
    std::shared_ptr<const ComputeBatch> batch;
    std::vector<RequestNumber> begun;  ///< requests that got their first hits in this launch
    std::vector<TimePoint> prompted;   ///< arrival times of the requests that get their first token in this launch
    std::vector<RequestNumber> ended;
  };
  /// The part of a request in the next launch.
  struct Member {
    RequestNumber request = 0;
    std::uint64_t tokens_end = 0;
    bool last = false;
  };

  /// Each of these returns whether anything happened. If so, the loop runs again before it sleeps.
  [[nodiscard]] bool collect();
  [[nodiscard]] bool reap();
  [[nodiscard]] bool take_requests();
  [[nodiscard]] const Prepared* next();
  void announce();
  [[nodiscard]] bool step();

  [[nodiscard]] Answer carry_out(const Action& action);
  [[nodiscard]] Answer acquire(const Action& action);
  void compare_layers(Flight& flight, std::uint32_t layers);
  void add_hits(ComputeBatch& batch, const Flight& flight, std::optional<LayerRange> layers);
  void add_to_batch(const Action& action);
  void launch();
  [[nodiscard]] std::uint32_t hits_of(Flight& flight);
  void share(Flight& flight);
  void advance(const Flight& flight);
  void end_lease(Flight& flight);
  void give_up();
  void check_not_stuck();
  void sleep();
  [[nodiscard]] Flight& flight(RequestNumber number) { return *flights_.at(number); }
  [[nodiscard]] bool stopping() const { return interrupt_.requested() || session_.failed(); }
  [[nodiscard]] TimePoint due(const Prepared& request);

  Session& session_;
  Cache& cache_;
  RankDevices& devices_;
  EventFdWaker& waker_;
  const Interrupt& interrupt_;
  std::optional<SlotReserve> reserve_;
  std::vector<GroupRule> rules_;    ///< by GroupId
  std::vector<BatchGroup> groups_;  ///< by GroupId

  Scheduler scheduler_;
  std::unordered_map<RequestNumber, std::unique_ptr<Flight>> flights_;  ///< by number; the same requests as in scheduler_
  std::deque<Prepared> coming_;  ///< the next requests of the trace, which are not due yet or cannot be admitted
  std::size_t announced_ = 0;    ///< the first of them, of which the cache has been told (ReplayOptions::prefetch_ahead)
  ComputeBatch batch_;
  std::vector<Member> members_;  ///< the requests in batch_
  std::deque<Launch> launched_;
  TimePoint began_{};
};

}  // namespace terrace::tools
