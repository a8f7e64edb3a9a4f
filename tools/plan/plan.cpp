#include "tools/plan/plan.hpp"

#include "terrace/keys.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/plan/plots.hpp"
#include "tools/replay/engine/interrupt.hpp"
#include "tools/replay/workload/trace_reader.hpp"
#include "tools/replay/workload/workloads.hpp"
#include "tools/usage_error.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace terrace::tools {
namespace {

RequestLog read_workload(const PlanOptions& options, const std::function<bool()>& go_on) {
  const ProgressLine progress{[] { return ProgressState{0, 0, "reading the trace"}; }};
  RequestLog log{root_key({}), options.machine.block_tokens};
  std::unique_ptr<RequestSource> source;
  if (options.trace.empty()) {
    source = make_workload(options.workload, options.seed, options.machine.block_tokens).requests;
  } else {
    const TraceLimits limits{.go_on = go_on};
    source = std::make_unique<TraceReader>(TraceFile{options.trace, limits}, options.machine.block_tokens, limits);
  }
  for (std::uint64_t n = 0; n < options.requests_max; ++n) {
    const std::optional<TraceRequest> request = source->next();
    if (!request) break;
    if (!go_on()) throw Interrupted{};
    log.add(*request);
  }
  const std::string name = options.trace.empty() || options.trace == "-" ? options.source() : options.trace.string();
  if (log.requests().empty()) throw UsageError{fmt::format("{}: no requests", name)};
  if (log.blocks() == 0) throw UsageError{fmt::format("{}: no prompt has a full block of {} tokens", name, log.block_tokens())};
  return log;
}

/// The number of hits that make this share of the blocks.
std::uint64_t hits_for(double share, std::uint64_t blocks) {
  // 7 % of 100 blocks are 7 blocks, although the product is a little more than 7.
  constexpr double rounding = 1 - 1e-12;
  return static_cast<std::uint64_t>(std::ceil(rounding * share * static_cast<double>(blocks)));
}

/// Searches for the smallest size of the planned tier with at least this many hits. The hits are taken not to become fewer if the
/// tier is larger.
PlanResult::Target find_target(const PlanOptions& options, const RequestLog& log, HitCounts& counts, PlanPolicy policy,
                               double share) {
  PlanResult::Target target{.policy = policy, .share = share, .size = {}, .exact = policy != PlanPolicy::default_policy};
  const std::uint64_t wanted = hits_for(share, log.blocks());
  const auto reaches = [&](std::uint64_t size) {
    return tier_costs(log, counts, policy, options.with(size), options.machine).hits() >= wanted;
  };
  std::uint64_t enough = log.different_blocks();
  if (!reaches(enough)) return target;
  if (reaches(0)) {
    target.size = 0;
    target.exact = true;
    return target;
  }
  std::uint64_t below = 0;
  while (enough - below > (target.exact ? 1 : std::max<std::uint64_t>(1, enough / 100))) {
    const std::uint64_t middle = below + (enough - below) / 2;
    (reaches(middle) ? enough : below) = middle;
  }
  target.size = enough;
  return target;
}

}  // namespace

PlanResult make_plan(const PlanOptions& options, const RequestLog& log, const std::function<bool()>& go_on,
                     PlanProgress& progress) {
  PlanResult result{.requests = log.requests().size(),
                    .blocks = log.blocks(),
                    .different_blocks = log.different_blocks(),
                    .tokens = log.tokens(),
                    .longest = log.longest(),
                    .seconds = log.seconds()};
  const std::vector<std::uint64_t> sizes = options.sizes.empty() ? automatic_sizes(options, log) : options.sizes;
  progress.total = (sizes.size() + options.targets.size()) * options.policies.size();
  HitCounts counts{log, go_on};
  for (const std::uint64_t size : sizes) {
    PlanResult::Row& row = result.rows.emplace_back(PlanResult::Row{size, {}});
    for (const PlanPolicy policy : options.policies) {
      row.costs.push_back(tier_costs(log, counts, policy, options.with(size), options.machine));
      ++progress.done;
    }
    if (row.costs.size() == all_plan_policies.size()) {
      const auto hits = [&](PlanPolicy policy) { return row.costs[static_cast<std::size_t>(policy)].hits(); };
      row.share_of_way = share_of_way(hits(PlanPolicy::default_policy), hits(PlanPolicy::lru), hits(PlanPolicy::opt));
    }
  }
  for (const double share : options.targets) {
    for (const PlanPolicy policy : options.policies) {
      result.targets.push_back(find_target(options, log, counts, policy, share));
      ++progress.done;
    }
  }
  return result;
}

void run_plan(const PlanOptions& options) {
  if (!options.plot.empty()) check_plots(options.plot);
  const Interrupt interrupt;
  const std::function<bool()> go_on = [&] { return !interrupt.requested(); };
  const RequestLog log = read_workload(options, go_on);
  PlanProgress progress;
  const PlanResult result = [&] {
    const ProgressLine line{[&] { return ProgressState{progress.done, progress.total, "simulating"}; }};
    return make_plan(options, log, go_on, progress);
  }();
  if (options.json) print_json(to_json(options, result));
  else write_output(to_table(options, result));
  flush_output();
  if (!options.plot.empty()) write_plots(options.plot, options, result);
}

}  // namespace terrace::tools
