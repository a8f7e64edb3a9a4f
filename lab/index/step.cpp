#include "lab/benches.hpp"
#include "lab/index/trace_prompts.hpp"
#include "lab/rounds.hpp"
#include "terrace/cache.hpp"
#include "terrace/policies.hpp"
#include "terrace/system.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

/// The calls of a request, in the order of the table.
enum class Call : std::uint8_t { acquire, commit, release, poll, all };
constexpr std::array<std::string_view, 5> call_names{"acquire", "commit", "release", "poll", "all"};

/// One cache that the trace is replayed through.
struct StepSubject {
  std::uint32_t host_blocks = 0;
  EvictionPolicyName policy = EvictionPolicyName::adaptive;
};

CacheSystemOptions options_of(const StepBenchOptions& options, const StepSubject& subject) {
  constexpr Bytes block{64};  // the bytes of a block cost nearly nothing, so the time is that of the decisions
  CacheSystemOptions system;
  system.ranks = {RankOptions{.device = InstantGpu{}}};
  if (options.device == BenchDevice::emulated) system.ranks = {RankOptions{.device = EmulatedGpu{}}};
  system.pools = {
      {.block_bytes = block, .device_blocks = Blocks{options.device_blocks}, .host_blocks = Blocks{subject.host_blocks}}};
  system.inclusion = options.inclusion;
  system.policy = subject.policy == EvictionPolicyName::lru ? lru_policy : adaptive_policy;
  system.loads = LoadPolicy::always;
  return system;
}

/// The times of a replay, in microseconds.
class StepTimes {
 public:
  template <class F>
  void time(Call call, F&& f) {
    const double micros = 1e6 * seconds_of(f);
    of_request_[static_cast<std::size_t>(call)] += micros;
    of_request_[static_cast<std::size_t>(Call::all)] += micros;
    if (call == Call::poll) longest_poll_ = std::max(longest_poll_, micros);
  }
  void end_request() {
    for (std::size_t call = 0; call < of_request_.size(); ++call) micros_[call].push_back(of_request_[call]);
    of_request_ = {};
  }
  void add_to(std::array<Figures, call_names.size()>& figures) {
    for (std::size_t call = 0; call < micros_.size(); ++call) {
      figures[call].add_micros(std::move(micros_[call]));
    }
    figures[static_cast<std::size_t>(Call::poll)].add("longest_us", longest_poll_);
  }

 private:
  std::array<double, call_names.size()> of_request_{};
  std::array<std::vector<double>, call_names.size()> micros_;
  double longest_poll_ = 0;
};

/// Serves the requests one after the other, each in two steps of an engine. Returns the hits.
std::uint64_t replay_steps(const CacheSystemOptions& options, const TracePrompts& prompts, StepTimes& times) {
  CacheSystem system{options};
  Cache& cache = system.cache();
  std::uint64_t hits = 0;
  std::uint64_t id = 0;
  for (const auto& prompt : prompts) {
    times.time(Call::poll, [&] { static_cast<void>(cache.poll()); });
    AcquireRequest request;
    request.id = RequestId{++id};
    request.keys = prompt;
    Result<Lease> lease = Errc::unknown_request;
    times.time(Call::acquire, [&] { lease = cache.acquire(request); });
    if (!lease) throw std::runtime_error{fmt::format("request {}: {}", id, lease.error().message())};
    times.time(Call::poll, [&] { cache.end_step(); });
    while (cache.state(*lease) == RequestState::waiting) times.time(Call::poll, [&] { static_cast<void>(cache.poll()); });
    hits += cache.request_stats(*lease)->found.sum();
    bool committed = false;
    times.time(Call::commit, [&] { committed = cache.commit(*lease, prompt, Fence{}).has_value(); });
    if (!committed) throw std::runtime_error{fmt::format("request {} is not ready: its blocks did not arrive", id)};
    times.time(Call::release, [&] { cache.release(std::move(*lease), Fence{}); });
    times.time(Call::poll, [&] { cache.end_step(); });
    times.end_request();
  }
  cache.drain();
  return hits;
}

constexpr Column step_columns[] = {
    {"host_blocks", "host", 7},       {"policy", "", -9},           {"call", "", -8},
    {"hit_percent", "hits, %", 8, 2}, {"mean_us", "mean us", 9, 2}, {"p50_us", "p50 us", 9, 2},
    {"p99_us", "p99 us", 9, 2},       {"max_us", "max us", 10, 1},  {"longest_us", "one poll", 9, 1}};

}  // namespace

Row bench_step(const StepBenchOptions& options) {
  const TracePrompts prompts =
      read_prompts(options.trace, options.trace_block_tokens, options.block_tokens, options.device_blocks);
  const std::uint64_t blocks = block_count(prompts);
  std::vector<StepSubject> subjects;
  for (const std::uint32_t host_blocks : options.host_blocks) {
    for (const EvictionPolicyName policy : options.policies) subjects.push_back({host_blocks, policy});
  }
  std::vector<std::array<Figures, call_names.size()>> figures(subjects.size());
  std::vector<std::uint64_t> hits(subjects.size());
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      StepTimes times;
      hits[i] = replay_steps(options_of(options, subjects[i]), prompts, times);
      times.add_to(figures[i]);
    }
  }
  print("{} requests, {} blocks of {} tokens, {} on the device ({}), {}; of a request, medians of {} rounds\n\n", prompts.size(),
        blocks, options.block_tokens, options.device_blocks, to_string(options.device), to_string(options.inclusion),
        options.rounds);
  print_head(step_columns);
  boost::json::array rows;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    for (std::size_t call = 0; call < call_names.size(); ++call) {
      Row row{{"host_blocks", subjects[i].host_blocks},
              {"policy", to_string(subjects[i].policy)},
              {"call", call_names[call]},
              {"hits", hits[i]},
              {"hit_percent", 100 * static_cast<double>(hits[i]) / static_cast<double>(blocks)}};
      figures[i][call].add_medians(row);
      add_row(rows, step_columns, std::move(row));
    }
  }
  return {{"trace", options.trace.string()},
          {"requests", prompts.size()},
          {"blocks", blocks},
          {"block_tokens", options.block_tokens},
          {"device", to_string(options.device)},
          {"device_blocks", options.device_blocks},
          {"inclusion", to_string(options.inclusion)},
          {"rounds", options.rounds},
          {"steps", std::move(rows)}};
}

}  // namespace terrace::tools
