#include "lab/benches.hpp"

#include "terrace/keys.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/key_maker.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "tools/replay/workload/trace_reader.hpp"
#include "tools/table.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

namespace terrace::tools {
namespace {

std::vector<RoomRequest> read_requests(const std::filesystem::path& trace, const RoomBenchOptions& options) {
  const std::uint32_t block_tokens = options.model.block_tokens;
  KeyMaker keys{root_key({})};
  TraceReader reader{TraceFile{trace}, block_tokens};
  std::vector<RoomRequest> requests;
  while (options.requests_max == 0 || requests.size() < options.requests_max) {
    auto request = reader.next();
    if (!request) break;
    request->hash_ids.resize(std::min<std::size_t>(request->hash_ids.size(), request->input_tokens / block_tokens));
    const std::chrono::duration<double, std::milli> arrival{request->timestamp_ms};
    requests.push_back(
        {std::chrono::round<Duration>(arrival), request->input_tokens, request->output_tokens, keys.keys(request->hash_ids)});
  }
  std::ranges::stable_sort(requests, {}, &RoomRequest::arrival);
  return requests;
}

double milliseconds(Duration time) { return std::chrono::duration<double, std::milli>{time}.count(); }

double mean_milliseconds(std::span<const Duration> times) {
  const Duration sum = std::accumulate(times.begin(), times.end(), Duration{});
  return times.empty() ? 0 : milliseconds(sum) / static_cast<double>(times.size());
}

/// `served` are all requests, of which those with a time have waited.
Row to_row(std::span<const Duration> times, std::uint64_t served) {
  Latencies all{std::chrono::microseconds{1}};
  for (const Duration each : times) all.add(each);
  const Percentiles of = all.microseconds();
  return {{"requests", times.size()},
          {"per_cent", per_cent(times.size(), served)},
          {"p50_ms", of.p50 / 1e3},
          {"p99_ms", of.p99 / 1e3},
          {"max_ms", of.max / 1e3}};
}

Row to_row(const RoomModel& model, const RoomResult& result) {
  /// The share of the time in which the link was busy in one direction.
  const auto link_per_cent = [&](Bytes moved) {
    const double busy = static_cast<double>(count(moved)) / static_cast<double>(count(model.link_bandwidth));
    return result.lasted > Duration{} ? 1e5 * busy / milliseconds(result.lasted) : 0;
  };
  return {{"device_blocks", model.device_blocks},
          {"inclusion", to_string(model.inclusion)},
          {"reserve_max", model.device_reserve_max},
          {"served", result.served},
          {"never_fit", result.never_fit},
          {"blocks", result.blocks},
          {"device_hits", result.device_hits},
          {"host_hits", result.host_hits},
          {"hits_per_cent", per_cent(result.device_hits + result.host_hits, result.blocks)},
          {"device_hits_per_cent", per_cent(result.device_hits, result.blocks)},
          {"queued", result.queued},
          {"slot_waits", to_row(result.slot_waits, result.served)},
          {"load_waits", to_row(result.load_waits, result.served)},
          {"first_token", to_row(result.first_tokens, result.served)},
          {"swapped_out_bytes", count(result.swapped_out)},
          {"swapped_in_bytes", count(result.swapped_in)},
          {"link_down_per_cent", link_per_cent(result.swapped_out)},
          {"link_up_per_cent", link_per_cent(result.swapped_in)},
          {"first_token_mean_ms", mean_milliseconds(result.first_tokens)},
          {"lasted_s", milliseconds(result.lasted) / 1e3}};
}

constexpr Column room_columns[] = {{"device_blocks", "device", 7},           {"inclusion", "", -14},
                                   {"reserve_max", "kept free", 10, 2},      {"hits_per_cent", "all", 8, 2},
                                   {"device_hits_per_cent", "device", 9, 2}, {"slot_waits.per_cent", "%", 9, 2},
                                   {"slot_waits.p50_ms", "p50", 8, 2},       {"slot_waits.max_ms", "max", 8, 2},
                                   {"load_waits.per_cent", "%", 9, 2},       {"load_waits.p50_ms", "p50", 8, 2},
                                   {"load_waits.max_ms", "max", 8, 2},       {"first_token.p50_ms", "p50", 8, 1},
                                   {"first_token_mean_ms", "mean", 8, 1},    {"link_down_per_cent", "down", 7, 2},
                                   {"link_up_per_cent", "up", 7, 2}};

}  // namespace

Row bench_room(const RoomBenchOptions& options) {
  boost::json::array rows;
  const RoomModel& given = options.model;
  print("In virtual time: blocks of {} tokens and {}, host {} blocks, policy {},\nlink {} each way, prompts {:.0f} and outputs "
        "{:.0f} tokens/s. Times in ms.\n",
        given.block_tokens, to_string(given.block_bytes), given.host_blocks, to_string(options.policy),
        to_string(given.link_bandwidth), given.prefill_speed, given.output_speed);
  for (const std::filesystem::path& trace : options.traces) {
    const std::vector<RoomRequest> requests = read_requests(trace, options);
    print("\n{}: {} requests\n{:33}{:>17}{:>25}{:>25}{:>16}{:>14}\n", trace.filename().string(), requests.size(), "", "hits, %",
          "waited for slots alone", "waited for host blocks", "first token", "link busy, %");
    print_head(room_columns);
    for (const std::uint32_t device_blocks : options.device_blocks) {
      for (const InclusionPolicy inclusion : options.inclusions) {
        for (const bool ahead : {false, true}) {
          RoomModel model = given;
          model.device_blocks = device_blocks;
          model.inclusion = inclusion;
          if (options.policy == EvictionPolicyName::lru) model.policy = lru_policy;
          if (ahead) model.device_reserve_max = options.reserve_max;
          Row row = to_row(model, serve_in_virtual_time(requests, model));
          row["trace"] = trace.string();
          add_row(rows, room_columns, std::move(row));
        }
      }
    }
  }
  return {{"policy", to_string(options.policy)},
          {"host_blocks", given.host_blocks},
          {"block_tokens", given.block_tokens},
          {"block_bytes", count(given.block_bytes)},
          {"link_bytes_per_second", count(given.link_bandwidth)},
          {"prefill_tokens_per_second", given.prefill_speed},
          {"output_tokens_per_second", given.output_speed},
          {"rows", std::move(rows)}};
}

}  // namespace terrace::tools
