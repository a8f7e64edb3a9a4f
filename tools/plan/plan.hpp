#pragma once

#include "tools/plan/options.hpp"

#include <boost/json/fwd.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// The figures of a plan.
struct PlanResult {
  struct Row {
    std::uint64_t size = 0;        ///< of the planned tier
    std::vector<TierCosts> costs;  ///< by policy, as in PlanOptions::policies
    /// of the default policy, if all policies are planned (share_of_way)
    std::optional<double> share_of_way{};
  };
  struct Target {
    PlanPolicy policy = PlanPolicy::lru;
    double share = 0;
    std::optional<std::uint64_t> size;  ///< the smallest of the planned tier; nothing: no size reaches the target
    bool exact = true;                  ///< false: refined to 1 %, and smaller sizes may reach it, too
  };

  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;
  std::uint64_t different_blocks = 0;
  std::uint64_t tokens = 0;
  std::uint32_t longest = 0;
  double seconds = 0;  ///< of the workload
  std::vector<Row> rows{};
  std::vector<Target> targets{};
};

/// The results that are computed, and how many there will be: for a display on another thread.
struct PlanProgress {
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::uint64_t> total{0};
};

/// Computes the plan for a workload that has a full block. Throws Interrupted if `go_on` returned false (HitCounts).
[[nodiscard]] PlanResult make_plan(const PlanOptions& options, const RequestLog& log, const std::function<bool()>& go_on,
                                   PlanProgress& progress);

/// The plan for a screen of 80 columns: the hit rates of all policies, and the other figures of one. This is the default policy
/// if it was asked for.
[[nodiscard]] std::string to_table(const PlanOptions& options, const PlanResult& result);
/// All figures of all policies.
[[nodiscard]] boost::json::object to_json(const PlanOptions& options, const PlanResult& result);

/// Reads the workload, and writes the plan to standard output and to the directory for plots. Throws UsageError, Interrupted and
/// std::runtime_error.
void run_plan(const PlanOptions& options);

}  // namespace terrace::tools
