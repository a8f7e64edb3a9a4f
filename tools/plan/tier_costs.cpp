#include "tools/plan/tier_costs.hpp"

#include <algorithm>
#include <cmath>

namespace terrace::tools {
namespace {

constexpr double seconds_a_day = 86400;
/// The years for which vendors state drive writes per day.
constexpr double rated_years = 5;

/// The blocks of the upper of two tiers that the lower one has, too.
enum class CopiesBelow : unsigned char { none, of_returned_blocks, of_all };

CopiesBelow copies_in_host(InclusionPolicy inclusion) {
  switch (inclusion) {
    case InclusionPolicy::non_inclusive: return CopiesBelow::of_returned_blocks;
    case InclusionPolicy::exclusive:
    case InclusionPolicy::lazy_exclusive: return CopiesBelow::none;
    case InclusionPolicy::inclusive: return CopiesBelow::of_all;
  }
  return CopiesBelow::none;
}

CopiesBelow copies_in_storage(WritePolicy policy) {
  return policy == WritePolicy::write_through ? CopiesBelow::of_all : CopiesBelow::of_returned_blocks;
}

std::uint64_t to_count(double blocks) { return static_cast<std::uint64_t>(std::llround(blocks)); }

/// The hits of one policy by size.
struct Hits {
  HitCounts& counts;
  PlanPolicy policy;

  [[nodiscard]] std::uint64_t at(std::uint64_t capacity) const { return counts.hits(policy, capacity); }

  /// This share of the blocks that a tier gets, and of those that leave it.
  [[nodiscard]] double share_of_insertions(std::uint64_t blocks, std::uint64_t capacity) const {
    const std::uint64_t inserted = counts.insertions(policy, capacity);
    return inserted == 0 ? 0 : std::min(1.0, static_cast<double>(blocks) / static_cast<double>(inserted));
  }

  /// Blocks that leave a tier for the first time since they were computed.
  [[nodiscard]] std::uint64_t first_departures(std::uint64_t capacity, std::uint64_t computed) const {
    const auto evicted = static_cast<double>(counts.evictions(policy, capacity));
    return to_count(share_of_insertions(computed, capacity) * evicted);
  }

  /// The number of different blocks that two tiers keep together.
  [[nodiscard]] std::uint64_t kept(std::uint64_t above, std::uint64_t below, CopiesBelow copies) const {
    const std::uint64_t sum = above + below;
    if (copies == CopiesBelow::of_all) return std::max(above, below);
    if (copies == CopiesBelow::none || policy == PlanPolicy::opt) return sum;
    const auto twice = [&](std::uint64_t different) {
      const std::uint64_t returned = at(different) - std::min(at(different), at(above));
      return std::min(static_cast<double>(below), share_of_insertions(returned, above) * static_cast<double>(above));
    };
    // The number x of blocks that both tiers have depends on itself: x = twice(sum - x). It is at most twice(sum). Between 0 and
    // that, twice() is taken to be a straight line.
    const double most = twice(sum);
    if (most == 0) return sum;
    const double least = twice(sum - to_count(most));
    return sum - to_count(most * most / (2 * most - std::min(most, least)));
  }
};

std::uint64_t evicted_to_host(const Hits& hits, const TierSizes& sizes, std::uint64_t computed) {
  if (sizes.host == 0) return 0;
  switch (sizes.inclusion) {
    case InclusionPolicy::non_inclusive: return hits.first_departures(sizes.device, computed);
    case InclusionPolicy::exclusive:
    case InclusionPolicy::lazy_exclusive: return hits.counts.evictions(hits.policy, sizes.device);
    case InclusionPolicy::inclusive: return computed;
  }
  return 0;
}

void add_moves(TierCosts& costs, const Hits& hits, const TierSizes& sizes, std::uint64_t upper) {
  const bool through = sizes.write_policy == WritePolicy::write_through;
  if (sizes.storage > 0) costs.storage_writes = through ? costs.misses : hits.first_departures(upper, costs.misses);
  costs.storage_reads = costs.storage_hits;
  costs.swap_in = costs.host_hits + costs.storage_hits;
  costs.swap_out = evicted_to_host(hits, sizes, costs.misses);
  // Under write-back, the host tier has the block already. Otherwise it is copied to a staging slot.
  if (through || sizes.host == 0) costs.swap_out += costs.storage_writes;
}

void add_times(TierCosts& costs, const RequestLog& log, const PlanMachine& machine) {
  const auto seconds = [&](std::uint64_t blocks, BytesPerSecond speed) {
    return static_cast<double>(blocks) * static_cast<double>(count(machine.block_bytes)) / static_cast<double>(count(speed));
  };
  const double hit_tokens = static_cast<double>(costs.hits()) * machine.block_tokens;
  costs.saved_seconds = hit_tokens / machine.prefill_speed;
  costs.prefill_seconds = (static_cast<double>(log.tokens()) - hit_tokens) / machine.prefill_speed;
  const double loads = seconds(costs.swap_in, machine.link) + seconds(costs.storage_reads, machine.disk);
  costs.first_token_seconds = (costs.prefill_seconds + loads) / static_cast<double>(log.requests().size());
}

void add_wear(TierCosts& costs, const RequestLog& log, const TierSizes& sizes, const PlanMachine& machine) {
  if (sizes.storage == 0 || log.seconds() == 0) return;
  const double days = log.seconds() / seconds_a_day;
  costs.drive_writes_per_day = static_cast<double>(costs.storage_writes) / static_cast<double>(sizes.storage) / days;
  if (costs.storage_writes > 0) costs.drive_years = rated_years * machine.drive_writes_per_day / *costs.drive_writes_per_day;
}

}  // namespace

TierCosts tier_costs(const RequestLog& log, HitCounts& counts, PlanPolicy policy, const TierSizes& sizes,
                     const PlanMachine& machine) {
  TierCosts costs;
  const Hits hits{counts, policy};
  const std::uint64_t upper = hits.kept(sizes.device, sizes.host, copies_in_host(sizes.inclusion));
  const std::uint64_t all = hits.kept(upper, sizes.storage, copies_in_storage(sizes.write_policy));
  // The default policy may hit less in a larger tier. A tier's own hits are never negative.
  costs.device_hits = hits.at(sizes.device);
  costs.host_hits = std::max(costs.device_hits, hits.at(upper)) - costs.device_hits;
  const std::uint64_t upper_hits = costs.device_hits + costs.host_hits;
  costs.storage_hits = std::max(upper_hits, hits.at(all)) - upper_hits;
  costs.misses = log.blocks() - costs.hits();
  add_moves(costs, hits, sizes, upper);
  add_times(costs, log, machine);
  add_wear(costs, log, sizes, machine);
  return costs;
}

}  // namespace terrace::tools
