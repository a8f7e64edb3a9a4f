#pragma once

#include "base/clock.hpp"
#include "runtime/system/cache_system.hpp"
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

/// Serves the requests as an engine does: one thread that polls the cache, has its scheduler decide step by step what runs,
/// launches it, and sleeps while there is nothing to do.
///
/// With --reference it serves one request after the other, each to its end, and every copy to its end before what follows it.
/// The results of `exclusive` then need a SlotReserve.
///
/// A step is launched in parts, since blocks are shared once the work that writes them is launched: what the running requests
/// compute first, so that a request that is admitted in the same step finds it; then each of those. The next step is decided
/// while the last part is still computed.
class ConfinedDriver {
 public:
  /// `waker` is woken by `interrupt`, and by compute; it outlives the system's device, and all outlive the driver.
  /// `reserved_slots`: size of the SlotReserve; 0: none.
  ConfinedDriver(Session& session, CacheSystem& stack, EventFdWaker& waker, const Interrupt& interrupt,
                 std::uint32_t reserved_slots = 0);

  /// Returns when every request has ended; after an interruption or a failure when what is launched has been computed, and the
  /// other requests have been given up. Afterwards no lease is left.
  void run();
  /// As SlotReserve::requests().
  [[nodiscard]] std::uint64_t reserve_requests() const { return reserve_ ? reserve_->requests() : 0; }

 private:
  /// A request that has been taken from the trace and has not ended.
  struct Flight {
    Prepared request;
    TimePoint came;
    Lease lease;
    RequestStats stats;                 ///< of the blocks it was given first
    Fence computed;                     ///< of the last work launched for it
    std::uint64_t launched_tokens = 0;  ///< since it was given its blocks, those of the cache included
    std::uint32_t committed = 0;
    std::uint64_t compared = 0;  ///< of the hits that `stats` tells of
    bool matched = false;
    bool begun = false;         ///< something of it has been launched, ever
    bool prompted = false;      ///< all of its prompt has, once
    bool has_new_hits = false;  ///< given to it, and not yet read by compute
    bool ending = false;        ///< all of it has been launched
    bool preempted = false;     ///< once
  };
  /// A part of a step, on the device.
  struct Launch {
    std::uint64_t number = 0;
    std::shared_ptr<const ComputeBatch> batch;
    std::vector<RequestNumber> begun;  ///< with the first hits they were given
    std::vector<TimePoint> prompted;   ///< whose first token it gives: when they came
    std::vector<RequestNumber> ended;
  };
  /// A request's share of what is launched next.
  struct Member {
    RequestNumber request = 0;
    std::uint64_t tokens_end = 0;
    bool last = false;
  };

  /// Each says whether anything happened, so that what depends on it is looked at again before sleeping.
  [[nodiscard]] bool collect();
  [[nodiscard]] bool reap();
  [[nodiscard]] bool take_requests();
  [[nodiscard]] bool step();

  [[nodiscard]] Answer carry_out(const Action& action);
  [[nodiscard]] Answer acquire(const Action& action);
  void add_to_batch(const Action& action);
  void launch();
  [[nodiscard]] std::uint32_t hits_of(Flight& flight);
  void share(Flight& flight);
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

  Scheduler scheduler_;
  std::unordered_map<RequestNumber, std::unique_ptr<Flight>> flights_;  ///< of the scheduler's requests
  std::optional<Prepared> next_;                                        ///< not due yet
  ComputeBatch batch_;
  std::vector<Member> members_;  ///< of the batch
  std::deque<Launch> launched_;
  TimePoint began_{};
};

}  // namespace terrace::tools
