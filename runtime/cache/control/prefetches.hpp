#pragma once

#include "base/vector_pool.hpp"
#include "runtime/cache/control/hit_planner.hpp"
#include "runtime/cache/control/manager_state.hpp"
#include "runtime/cache/control/shared_questions.hpp"
#include "terrace/offload_orders.hpp"
#include "terrace/request.hpp"
#include "terrace/result.hpp"
#include "terrace/statistics.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Brings blocks up to the host tier for requests that have not come yet (Cache::prefetch).
///
///     begin() --> asking --(on_answer)--> loading --(its jobs have ended)--> ended
///        |                                   ^
///        +--(nothing to ask the shared store for)
///
/// A prefetch that loads has a job in each of its pools (NamedCopies, an order without slots). The jobs pin its blocks until they
/// end. If a prefetch is bringing the next block of a request, the request waits for the end of the prefetch (join). It holds
/// nothing while it waits.
///
/// Bounds: there are at most `running_max` prefetches, and together they bring at most a quarter of a host tier at a time. A
/// longer prefetch brings only its first blocks.
///
/// Ownership: CacheManager owns it. Threads: the manager's. Errors: a call that fails returns the reason and changes nothing.
class Prefetches {
 public:
  static constexpr std::size_t running_max = 1024;
  /// All prefetches together bring at most 1/bound_share of a host tier at a time.
  static constexpr std::uint32_t bound_share = 4;
  /// A request that can continue, because the prefetch that it waited for has ended.
  struct Resumed {
    std::uint32_t request = 0;
    bool asked = false;     ///< the shared store was asked for the blocks
    SharedAnswer answer{};  ///< its answer
  };

  Prefetches(ManagerState& state, HitPlanner& planner, SharedQuestions& questions)
      : state_{state}, groups_{state.groups}, planner_{planner}, questions_{questions} {}
  Prefetches(const Prefetches&) = delete;
  Prefetches& operator=(const Prefetches&) = delete;

  /// The same as Cache::prefetch, cancel_prefetch and prefetching.
  [[nodiscard]] Result<PrefetchId> begin(const PrefetchOrder& order);
  [[nodiscard]] Result<void> cancel(PrefetchId id);
  [[nodiscard]] bool runs(PrefetchId id) const { return running_.contains(id); }
  void cancel_all();
  [[nodiscard]] std::size_t running() const { return running_.size(); }

  /// Takes an answer of the shared store.
  void on_answer(SharedQuestions::Answer& answer);
  /// Takes the events of the jobs. Returns true if there were any.
  bool pump();
  /// pump() would do nothing, and no request can continue.
  [[nodiscard]] bool rests() const;

  /// The device or the host tier has the blocks of the first `place` keys of a request, and not the next one. If a prefetch is
  /// bringing that block, the request waits until take_resumed() returns it, or until it leaves. Returns true if it waits.
  /// `farthest`: the farthest source that the request accepts; it does not wait for a prefetch from a farther source.
  [[nodiscard]] bool join(std::uint32_t request, std::span<const BlockKey> keys, std::uint32_t place, Source farthest);
  void leave(std::uint32_t request);
  [[nodiscard]] bool waits(std::uint32_t request) const;
  /// The requests that can continue, in order.
  void take_resumed(std::vector<Resumed>& resumed) { take_all(resumed_, resumed); }

  void check_invariants() const;

 private:
  [[nodiscard]] Result<void> accepts(const PrefetchOrder& order) const;
  struct Prefetch {
    std::vector<BlockKey> keys;
    Source farthest = Source::storage;
    TenantId tenant;
    TimePoint deadline = never;
    std::uint32_t from = 0;  ///< the first unit that it brings
    bool asking = false;
    bool cancelled = false;
    bool failed = false;    ///< a block did not arrive
    bool answered = false;  ///< the shared store has answered
    SharedAnswer answer;
    std::vector<OffloadJobId> jobs;      ///< the jobs that have not ended
    std::vector<std::uint32_t> brings;   ///< by PoolId: number of blocks that the jobs bring
    std::vector<std::uint32_t> waiters;  ///< requests
  };
  using Place = std::map<PrefetchId, Prefetch>::iterator;

  /// Looks up the leading units that the tiers and the shared store have, at most `units`.
  void look_up(const Prefetch& it, std::size_t units) {
    planner_.find_hit(std::span{it.keys}.first(units), it.farthest, it.answer, hit_);
  }
  [[nodiscard]] std::uint32_t first_to_bring(std::size_t group) const;
  [[nodiscard]] bool is_near(std::size_t group, std::uint32_t block) const;
  [[nodiscard]] std::uint32_t over_bound(std::vector<std::uint32_t>& brings) const;
  bool ask(Place place);
  void load(Place place);
  void start_jobs(Place place);
  void start_job(Place place, std::size_t group, std::span<const BlockKey> keys, std::uint32_t first);
  void cancel_evictions();
  void stop(Place place);
  void end(Place place);

  ManagerState& state_;
  ModelGroups& groups_;
  HitPlanner& planner_;
  SharedQuestions& questions_;
  std::map<PrefetchId, Prefetch> running_;
  std::map<OffloadJobId, PrefetchId> by_job_;
  std::vector<Resumed> resumed_;  ///< not taken yet
  PrefetchId last_id_;
  OffloadJobId last_job_;
  Hit hit_;                           ///< scratch: of the last look-up
  std::vector<OffloadEvent> events_;  ///< scratch
};

}  // namespace terrace
