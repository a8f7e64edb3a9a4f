#include "tools/replay/report/verdict.hpp"

#include <fmt/format.h>

namespace terrace::tools {
namespace {

Verdict judge_injected(const ReplayOptions& options, const ReplayResult& result) {
  const std::string name = fmt::format("--inject {}", to_string(options.inject));
  const std::uint64_t planted = result.faults_planted;
  if (result.mismatches > 0) {
    return {ExitStatus::check_failed,
            fmt::format("{}: {} {} planted, {} mismatches caught; first: {}", name, planted, planted_unit(options.inject),
                        result.mismatches, describe(*result.first_mismatch))};
  }
  if (planted > 0) {
    return {ExitStatus::check_failed,
            fmt::format("{}: {} {} planted, and none was caught", name, planted, planted_unit(options.inject))};
  }
  return {ExitStatus::run_failed, fmt::format("{}: nothing was planted, since too little was copied: replay more requests, or "
                                              "over a smaller device",
                                              name)};
}

}  // namespace

Verdict judge(const ReplayOptions& options, const ReplayResult& result) {
  if (result.mismatches > 0 && options.inject == Fault::none) {
    return {ExitStatus::check_failed, fmt::format("{} of {} compared hit blocks do not hold what their keys say; first: {}",
                                                  result.mismatches, result.compared, describe(*result.first_mismatch))};
  }
  if (const auto broken = result.checks.broken(); broken && !result.left_behind) {
    return {ExitStatus::check_failed, fmt::format("check failed: {}", *broken)};
  }
  if (result.failure) return {ExitStatus::run_failed, *result.failure};
  if (result.checkpoint && result.checkpoint->job.flush_error) {
    return {ExitStatus::run_failed,
            fmt::format("checkpoint: storage could not be flushed: {}", result.checkpoint->job.flush_error.message())};
  }
  if (result.interrupted) return {ExitStatus::interrupted, fmt::format("interrupted after {} requests", result.counts.requests)};
  if (options.verify == Verify::all && result.checked != result.counts.hits()) {
    return {ExitStatus::check_failed, fmt::format("{} of {} hit blocks were compared", result.checked, result.counts.hits())};
  }
  if (options.inject != Fault::none) return judge_injected(options, result);
  return {};
}

}  // namespace terrace::tools
