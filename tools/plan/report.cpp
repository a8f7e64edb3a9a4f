#include "tools/plan/plan.hpp"
#include "tools/table.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace terrace::tools {
namespace {

namespace json = boost::json;

std::string bytes_of(const PlanOptions& options, std::uint64_t blocks) { return to_string(options.machine.block_bytes * blocks); }

std::string with_bytes(const PlanOptions& options, std::uint64_t blocks) {
  return fmt::format("{} blocks ({})", grouped(blocks), bytes_of(options, blocks));
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{:.1f} minutes", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{:.1f} hours", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86400);
}

std::string tiers(const PlanOptions& options) {
  if (options.planned == PlannedTier::device) return "the device, whose size is planned";
  const std::string device = fmt::format("device {}", with_bytes(options, options.fixed.device));
  const std::string_view inclusion = to_string(options.fixed.inclusion);
  if (options.planned == PlannedTier::host) return fmt::format("{}; host, {}, whose size is planned", device, inclusion);
  const std::string host =
      options.fixed.host == 0 ? "no host" : fmt::format("host {}, {}", with_bytes(options, options.fixed.host), inclusion);
  return fmt::format("{}; {}; storage, {}, whose size is planned", device, host, to_string(options.fixed.write_policy));
}

void add_head(Table& table, const PlanOptions& options, const PlanResult& result) {
  const PlanMachine& machine = options.machine;
  table.line("{}: {} requests in {}", options.source(), grouped(result.requests), duration(result.seconds));
  table.line("  blocks   {} full ones of {} tokens, {}; {} different ones ({})", grouped(result.blocks), machine.block_tokens,
             to_string(machine.block_bytes), grouped(result.different_blocks), bytes_of(options, result.different_blocks));
  table.line("  tiers    {}", tiers(options));
  table.line("  speeds   link {}, disk {}, prefill {:g} tokens/s", to_string(machine.link), to_string(machine.disk),
             machine.prefill_speed);
  const auto bytes = static_cast<double>(count(machine.block_bytes));
  table.line("  a block  {:.3g} ms to compute, {:.3g} ms over the link, {:.3g} ms from the disk",
             1e3 * machine.block_tokens / machine.prefill_speed, 1e3 * bytes / static_cast<double>(count(machine.link)),
             1e3 * bytes / static_cast<double>(count(machine.disk)));
  const std::uint64_t device = options.planned == PlannedTier::device ? result.rows.front().size : options.fixed.device;
  if (device < result.longest) {
    table.line("  note     the longest prompt has {} blocks: a smaller device does not keep all of it", grouped(result.longest));
  }
}

/// The columns with which each row begins.
constexpr std::size_t size_width = 24;
std::string size_columns(const PlanOptions& options, std::uint64_t size) {
  return fmt::format("{:>14}{:>{}}", grouped(size), bytes_of(options, size), size_width - 14);
}

void add_hits(Table& table, const PlanOptions& options, const PlanResult& result, std::size_t policy) {
  const bool with_way = options.policies.size() == all_plan_policies.size();
  table.line("");
  table.line("hits in all tiers in per cent; times with {}{}", to_string(options.policies[policy]),
             with_way ? "; way from lru (0) to opt (1)" : "");
  std::string head = fmt::format("{:>{}}", to_string(options.planned), size_width);
  for (const PlanPolicy each : options.policies) head += fmt::format("{:>8}", to_string(each));
  if (with_way) head += fmt::format("{:>6}", "way");
  table.line("{}{:>14}{:>12}", head, "first token", "GPU saved");
  for (const PlanResult::Row& row : result.rows) {
    std::string line = size_columns(options, row.size);
    for (const TierCosts& costs : row.costs) line += fmt::format("{:>8.2f}", per_cent(costs.hits(), result.blocks));
    if (with_way) line += fmt::format("{:>6}", row.share_of_way ? fmt::format("{:.2f}", *row.share_of_way) : "-");
    const double saved = row.costs[policy].saved_seconds;
    const int digits = saved < 1e7 ? 1 : 0;
    table.line("{}{:>11.1f} ms{:>10.{}f} s", line, row.costs[policy].first_token_seconds * 1e3, saved, digits);
  }
}

void add_moves(Table& table, const PlanOptions& options, const PlanResult& result, std::size_t policy) {
  if (options.planned == PlannedTier::device) return;
  table.line("");
  table.line("{}: hits by tier in per cent, and bytes moved", to_string(options.policies[policy]));
  table.line("{:>{}}{:>9}{:>9}{:>9}{:>14}{:>15}", to_string(options.planned), size_width, "device", "host", "storage", "swap-out",
             "swap-in");
  for (const PlanResult::Row& row : result.rows) {
    const TierCosts& costs = row.costs[policy];
    table.line("{}{:>9.2f}{:>9.2f}{:>9.2f}{:>14}{:>15}", size_columns(options, row.size),
               per_cent(costs.device_hits, result.blocks), per_cent(costs.host_hits, result.blocks),
               per_cent(costs.storage_hits, result.blocks), bytes_of(options, costs.swap_out), bytes_of(options, costs.swap_in));
  }
}

void add_wear(Table& table, const PlanOptions& options, const PlanResult& result, std::size_t policy) {
  if (options.planned != PlannedTier::storage) return;
  const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{:.3g}", *value) : std::string{"-"}; };
  table.line("");
  table.line("{}: storage; years at an endurance of {:g} drive writes per day", to_string(options.policies[policy]),
             options.machine.drive_writes_per_day);
  table.line("{:>{}}{:>12}{:>12}{:>20}{:>9}", to_string(options.planned), size_width, "read", "written", "drive writes a day",
             "years");
  for (const PlanResult::Row& row : result.rows) {
    const TierCosts& costs = row.costs[policy];
    table.line("{}{:>12}{:>12}{:>20}{:>9}", size_columns(options, row.size), bytes_of(options, costs.storage_reads),
               bytes_of(options, costs.storage_writes), number(costs.drive_writes_per_day), number(costs.drive_years));
  }
}

void add_targets(Table& table, const PlanOptions& options, const PlanResult& result) {
  if (result.targets.empty()) return;
  table.line("");
  table.line("smallest {} for a hit rate", to_string(options.planned));
  for (const PlanResult::Target& target : result.targets) {
    const std::string name = fmt::format("{:>10.2f} %  {:<9}", 100 * target.share, to_string(target.policy));
    if (!target.size) {
      table.line("{}no size", name);
    } else {
      table.line("{}{}{}", name, with_bytes(options, *target.size), target.exact ? "" : ", within 1 %");
    }
  }
}

json::value or_null(const std::optional<double>& number) { return number ? json::value(*number) : json::value(nullptr); }

json::object row_of(const PlanOptions& options, const PlanResult& result, std::uint64_t size, const TierCosts& costs) {
  const std::uint64_t block_bytes = count(options.machine.block_bytes);
  const auto moved = [&](std::uint64_t blocks) { return json::object{{"blocks", blocks}, {"bytes", blocks * block_bytes}}; };
  const auto hits = static_cast<double>(costs.hits());
  return {{"blocks", size},
          {"bytes", size * block_bytes},
          {"hits",
           json::object{
               {"device", costs.device_hits}, {"host", costs.host_hits}, {"storage", costs.storage_hits}, {"all", costs.hits()}}},
          {"misses", costs.misses},
          {"block_hit_rate", hits / static_cast<double>(result.blocks)},
          {"token_hit_rate", hits * options.machine.block_tokens / static_cast<double>(result.tokens)},
          {"moved", json::object{{"swap_out", moved(costs.swap_out)},
                                 {"swap_in", moved(costs.swap_in)},
                                 {"prefetch", moved(costs.storage_reads)},
                                 {"persist", moved(costs.storage_writes)}}},
          {"first_token_seconds", costs.first_token_seconds},
          {"prefill_seconds", costs.prefill_seconds},
          {"gpu_seconds_saved", costs.saved_seconds},
          {"drive_writes_per_day", or_null(costs.drive_writes_per_day)},
          {"drive_years", or_null(costs.drive_years)}};
}

}  // namespace

std::string to_table(const PlanOptions& options, const PlanResult& result) {
  Table table;
  const auto shown = std::ranges::find(options.policies, PlanPolicy::default_policy);
  const std::size_t policy = shown == options.policies.end() ? 0 : static_cast<std::size_t>(shown - options.policies.begin());
  add_head(table, options, result);
  add_hits(table, options, result, policy);
  add_moves(table, options, result, policy);
  add_wear(table, options, result, policy);
  add_targets(table, options, result);
  return table.take();
}

json::object to_json(const PlanOptions& options, const PlanResult& result) {
  const PlanMachine& machine = options.machine;
  json::object policies;
  for (std::size_t policy = 0; policy < options.policies.size(); ++policy) {
    json::array rows;
    for (const PlanResult::Row& row : result.rows) {
      json::object one = row_of(options, result, row.size, row.costs[policy]);
      if (options.policies[policy] == PlanPolicy::default_policy) one["share_of_way"] = or_null(row.share_of_way);
      rows.emplace_back(std::move(one));
    }
    policies[to_string(options.policies[policy])] = std::move(rows);
  }
  json::array targets;
  for (const PlanResult::Target& target : result.targets) {
    json::object one{{"policy", to_string(target.policy)}, {"share", target.share}, {"blocks", nullptr}, {"bytes", nullptr}};
    if (target.size) {
      one["blocks"] = *target.size;
      one["bytes"] = *target.size * count(machine.block_bytes);
      one["exact"] = target.exact;
    }
    targets.emplace_back(std::move(one));
  }
  return {{"source", options.source()},
          {"requests", result.requests},
          {"blocks", result.blocks},
          {"different_blocks", result.different_blocks},
          {"longest_prompt_blocks", result.longest},
          {"tokens", result.tokens},
          {"seconds", result.seconds},
          {"block_tokens", machine.block_tokens},
          {"block_bytes", count(machine.block_bytes)},
          {"planned", to_string(options.planned)},
          {"device_blocks", options.fixed.device},
          {"host_blocks", options.fixed.host},
          {"inclusion", to_string(options.fixed.inclusion)},
          {"write_policy", to_string(options.fixed.write_policy)},
          {"link_bytes_per_second", count(machine.link)},
          {"disk_bytes_per_second", count(machine.disk)},
          {"prefill_tokens_per_second", machine.prefill_speed},
          {"rated_drive_writes_per_day", machine.drive_writes_per_day},
          {"policies", std::move(policies)},
          {"targets", std::move(targets)}};
}

}  // namespace terrace::tools
