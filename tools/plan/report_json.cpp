#include "tools/plan/report.hpp"

#include <boost/json.hpp>

namespace terrace::tools {
namespace {

namespace json = boost::json;

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

json::object to_json(const PlanOptions& options, const PlanResult& result) {
  const PlanMachine& machine = options.machine;
  json::object policies;
  for (std::size_t policy = 0; policy < options.policies.size(); ++policy) {
    json::array rows;
    for (const PlanResult::Row& row : result.rows) rows.emplace_back(row_of(options, result, row.size, row.costs[policy]));
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
