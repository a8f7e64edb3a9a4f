#include "lab/room/room.hpp"

#include "terrace/keys.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/key_maker.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "tools/replay/workload/trace_reader.hpp"
#include "tools/report_file.hpp"
#include "tools/table.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
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

Percentiles percentiles(std::span<const Duration> times) {
  Latencies all{std::chrono::microseconds{1}};
  for (const Duration each : times) all.add(each);
  return all.microseconds();
}

double milliseconds(Duration time) { return std::chrono::duration<double, std::milli>{time}.count(); }

double mean_milliseconds(std::span<const Duration> times) {
  const Duration sum = std::accumulate(times.begin(), times.end(), Duration{});
  return times.empty() ? 0 : milliseconds(sum) / static_cast<double>(times.size());
}

boost::json::object to_json(std::span<const Duration> times) {
  const Percentiles of = percentiles(times);
  return {{"requests", times.size()}, {"p50_us", of.p50}, {"p99_us", of.p99}, {"max_us", of.max}};
}

boost::json::object to_json(const RoomResult& result) {
  return {{"served", result.served},
          {"never_fit", result.never_fit},
          {"blocks", result.blocks},
          {"device_hits", result.device_hits},
          {"host_hits", result.host_hits},
          {"queued", result.queued},
          {"slot_waits", to_json(result.slot_waits)},
          {"load_waits", to_json(result.load_waits)},
          {"first_token", to_json(result.first_tokens)},
          {"swapped_out_bytes", count(result.swapped_out)},
          {"swapped_in_bytes", count(result.swapped_in)},
          {"first_token_mean_ms", mean_milliseconds(result.first_tokens)},
          {"lasted_s", milliseconds(result.lasted) / 1e3}};
}

/// The share of the time in which the link was busy in one direction, in per cent.
double link_share(Bytes moved, const RoomModel& model, const RoomResult& result) {
  const double busy = static_cast<double>(count(moved)) / static_cast<double>(count(model.link_bandwidth));
  return result.lasted > Duration{} ? 1e5 * busy / milliseconds(result.lasted) : 0;
}

void print_header(std::string_view trace, std::size_t requests) {
  print("\n{}: {} requests\n{:37}{:>16} {:>24} {:>24} {:>15} {:>13}\n", trace, requests, "", "hits, %", "waited for slots alone",
        "waited for host blocks", "first token", "link busy, %");
  print("{:>7} {:<14}{:>14} {:>7} {:>8} {:>8} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}\n", "device", "inclusion",
        "kept free, %", "all", "device", "%", "p50", "max", "%", "p50", "max", "p50", "mean", "down", "up");
}

void print_row(const RoomModel& model, const RoomResult& result) {
  const Percentiles slots = percentiles(result.slot_waits);
  const Percentiles loads = percentiles(result.load_waits);
  print(
      "{:>7} {:<14}{:>14.0f} {:>7.2f} {:>8.2f} {:>8.2f} {:>7.2f} {:>7.2f} {:>8.2f} {:>7.2f} {:>7.2f} {:>7.1f} {:>7.1f} {:>6.2f} "
      "{:>6.2f}\n",
      model.device_blocks, to_string(model.inclusion), model.device_reserve_max * 100,
      per_cent(result.device_hits + result.host_hits, result.blocks), per_cent(result.device_hits, result.blocks),
      per_cent(result.slot_waits.size(), result.served), slots.p50 / 1e3, slots.max / 1e3,
      per_cent(result.load_waits.size(), result.served), loads.p50 / 1e3, loads.max / 1e3,
      percentiles(result.first_tokens).p50 / 1e3, mean_milliseconds(result.first_tokens),
      link_share(result.swapped_out, model, result), link_share(result.swapped_in, model, result));
}

}  // namespace

void bench_room(const RoomBenchOptions& options) {
  boost::json::array rows;
  const RoomModel& given = options.model;
  print("In virtual time: blocks of {} tokens and {}, host {} blocks, policy {},\nlink {} each way, prompts {:.0f} and outputs "
        "{:.0f} tokens/s. Times in ms.\n",
        given.block_tokens, to_string(given.block_bytes), given.host_blocks, to_string(options.policy),
        to_string(given.link_bandwidth), given.prefill_speed, given.output_speed);
  for (const std::filesystem::path& trace : options.traces) {
    const std::vector<RoomRequest> requests = read_requests(trace, options);
    print_header(trace.filename().string(), requests.size());
    for (const std::uint32_t device_blocks : options.device_blocks) {
      for (const InclusionPolicy inclusion : options.inclusions) {
        for (const bool ahead : {false, true}) {
          RoomModel model = given;
          model.device_blocks = device_blocks;
          model.inclusion = inclusion;
          if (options.policy == EvictionPolicyName::lru) model.policy = lru_policy;
          if (ahead) model.device_reserve_max = options.reserve_max;
          const RoomResult result = serve_in_virtual_time(requests, model);
          print_row(model, result);
          flush_output();
          boost::json::object row = to_json(result);
          row["trace"] = trace.string();
          row["device_blocks"] = device_blocks;
          row["inclusion"] = to_string(inclusion);
          row["reserve_max"] = model.device_reserve_max;
          rows.push_back(std::move(row));
        }
      }
    }
  }
  if (!options.report.empty()) {
    write_report(options.report, json_text(boost::json::object{{"policy", to_string(options.policy)},
                                                               {"host_blocks", given.host_blocks},
                                                               {"block_tokens", given.block_tokens},
                                                               {"block_bytes", count(given.block_bytes)},
                                                               {"link_bytes_per_second", count(given.link_bandwidth)},
                                                               {"prefill_tokens_per_second", given.prefill_speed},
                                                               {"output_tokens_per_second", given.output_speed},
                                                               {"rows", std::move(rows)}}));
  }
}

}  // namespace terrace::tools
