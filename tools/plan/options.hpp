#pragma once

#include "tools/cli.hpp"
#include "tools/live/client.hpp"
#include "tools/plan/request_log.hpp"
#include "tools/plan/tier_costs.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// A size on the command line: a number of blocks, or bytes of which a plan takes the whole blocks.
struct PlanSize {
  std::uint64_t number = 0;
  bool is_bytes = false;
};

/// The tier whose size is planned: the one below the tiers that are given.
enum class PlannedTier : unsigned char { device, host, storage };
[[nodiscard]] std::string_view to_string(PlannedTier tier);

/// A plan's options with their defaults, in blocks.
struct PlanOptions {
  std::filesystem::path trace;  ///< empty: the built-in workload
  std::string workload;
  std::uint64_t seed = 1;
  std::uint64_t requests_max = 0;
  PlannedTier planned = PlannedTier::device;
  TierSizes fixed;                   ///< the planned tier has size 0 here
  std::vector<std::uint64_t> sizes;  ///< of the planned tier, ascending; empty: automatic_sizes()
  std::vector<PlanPolicy> policies;  ///< each once, in the order of PlanPolicy
  std::vector<double> targets;       ///< shares of the full blocks, 0 to 1
  PlanMachine machine;
  bool json = false;
  std::filesystem::path plot;

  /// The name of the trace or of the workload.
  [[nodiscard]] std::string source() const;
  [[nodiscard]] TierSizes with(std::uint64_t size) const;
};

/// The command line of `terrace plan`.
struct PlanArguments {
  PlanOptions options;  ///< what needs no other option: trace, seed, targets, machine without the block's sizes, json, plot
  std::optional<std::string> workload;
  std::optional<std::uint64_t> requests_max;
  std::optional<std::uint32_t> block_tokens;
  std::optional<Bytes> block_bytes;
  std::optional<PlanSize> device_blocks;
  std::optional<PlanSize> device_capacity;
  std::optional<PlanSize> host_blocks;
  std::optional<PlanSize> host_capacity;
  std::vector<PlanSize> sizes;  ///< empty: automatic
  std::optional<InclusionPolicy> inclusion;
  std::optional<WritePolicy> write_policy;
  std::vector<PlanPolicy> policies{all_plan_policies.begin(), all_plan_policies.end()};
  Target live;  ///< with a socket: a process that serves, in place of a workload
};

/// Adds the options of `terrace plan`. `into` must outlive the parsing, which throws UsageError and CLI::ParseError.
void add_plan_options(CLI::App& command, PlanArguments& into);

/// Adds the defaults that depend on other options, and refuses invalid combinations. Does no I/O. Throws UsageError.
[[nodiscard]] PlanOptions resolve(const PlanArguments& arguments);

/// Twenty sizes of the planned tier for this workload, a constant factor apart. The largest has room for all different blocks.
/// The smallest is that of the longest prompt for the device, and a thousandth of the largest for other tiers. These also have
/// size 0: the machine without the planned tier.
[[nodiscard]] std::vector<std::uint64_t> automatic_sizes(const PlanOptions& options, const RequestLog& log);

}  // namespace terrace::tools
