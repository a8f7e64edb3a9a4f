#include "lab/index/index.hpp"

#include "lab/index/index_subject.hpp"
#include "terrace/keys.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/key_maker.hpp"
#include "tools/replay/workload/trace_reader.hpp"
#include "tools/report_file.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <string>

namespace terrace::tools {
namespace {

using Prompts = std::vector<std::vector<BlockKey>>;

/// A hash id of the trace stands for several blocks. Each gets an id from the hash id and the number of the block.
Prompts read_prompts(const IndexTraceOptions& options) {
  const std::uint32_t parts = options.trace_block_tokens / options.block_tokens;
  KeyMaker keys{root_key({})};
  TraceReader trace{TraceFile{options.trace}, options.trace_block_tokens};
  Prompts prompts;
  std::vector<std::uint64_t> ids;
  while (const auto request = trace.next()) {
    ids.clear();
    for (std::uint32_t i = 0; i < request->input_tokens / options.block_tokens && i / parts < request->hash_ids.size(); ++i) {
      ids.push_back(request->hash_ids[i / parts] * parts + i % parts);
    }
    ids.resize(std::min<std::size_t>(ids.size(), options.capacity));
    if (!ids.empty()) prompts.push_back(keys.keys(ids));
  }
  return prompts;
}

struct Round {
  std::uint64_t hits = 0;
  double seconds = 0;
  double p50_us = 0;
  double p99_us = 0;
  double max_us = 0;
};

Round replay_once(SubjectKind kind, const Prompts& prompts, std::uint32_t capacity, std::vector<double>& micros) {
  const auto subject = make_subject(kind, capacity);
  Round round;
  micros.clear();
  for (const auto& prompt : prompts) {
    const auto begin = std::chrono::steady_clock::now();
    round.hits += subject->serve(prompt);
    micros.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  for (const double each : micros) round.seconds += each / 1e6;
  std::ranges::sort(micros);
  round.p50_us = micros[micros.size() / 2];
  round.p99_us = micros[micros.size() * 99 / 100];
  round.max_us = micros.back();
  return round;
}

double median_of(std::vector<Round>& rounds, double Round::*member) {
  std::ranges::sort(rounds, {}, member);
  return rounds[rounds.size() / 2].*member;
}

}  // namespace

void bench_index_trace(const IndexTraceOptions& options) {
  const Prompts prompts = read_prompts(options);
  std::uint64_t blocks = 0;
  for (const auto& prompt : prompts) blocks += prompt.size();
  if (blocks == 0) throw std::runtime_error{fmt::format("{}: no request has a full block", options.trace.string())};

  std::array<std::vector<Round>, subject_count> rounds;
  std::vector<double> micros;
  micros.reserve(prompts.size());
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t kind = 0; kind < subject_count; ++kind) {
      rounds[kind].push_back(replay_once(static_cast<SubjectKind>(kind), prompts, options.capacity, micros));
    }
  }
  const std::uint64_t hits = rounds[static_cast<std::size_t>(SubjectKind::floor)].front().hits;
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    if (static_cast<SubjectKind>(kind) == SubjectKind::terrace_adaptive) continue;
    if (rounds[kind].front().hits != hits) throw std::runtime_error{"the indexes disagree on the hits: one of them is wrong"};
  }

  const double requests = static_cast<double>(prompts.size());
  const double floor_seconds = median_of(rounds[static_cast<std::size_t>(SubjectKind::floor)], &Round::seconds);
  boost::json::object report{
      {"trace", options.trace.string()}, {"requests", prompts.size()},           {"blocks", blocks},
      {"capacity", options.capacity},    {"block_tokens", options.block_tokens}, {"rounds", options.rounds}};
  print("{} requests, {} blocks of {} tokens, {} cached at most; medians of {} rounds\n\n", prompts.size(), blocks,
        options.block_tokens, options.capacity, options.rounds);
  print("{:<16}{:>8}{:>9}{:>8}{:>9}{:>9}{:>9}{:>11}\n", "", "hits", "mean us", "floors", "p50 us", "p99 us", "max us",
        "Mblocks/s");
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    const double seconds = median_of(rounds[kind], &Round::seconds);
    const double hit_share = static_cast<double>(rounds[kind].front().hits) / static_cast<double>(blocks);
    boost::json::object row{{"hits", rounds[kind].front().hits},
                            {"mean_us", seconds / requests * 1e6},
                            {"p50_us", median_of(rounds[kind], &Round::p50_us)},
                            {"p99_us", median_of(rounds[kind], &Round::p99_us)},
                            {"max_us", median_of(rounds[kind], &Round::max_us)},
                            {"blocks_per_second", static_cast<double>(blocks) / seconds},
                            {"floors", seconds / floor_seconds}};
    print("{:<16}{:>7.2f}%{:>9.2f}{:>8.2f}{:>9.2f}{:>9.2f}{:>9.1f}{:>11.2f}\n", to_string(static_cast<SubjectKind>(kind)),
          100 * hit_share, row["mean_us"].as_double(), row["floors"].as_double(), row["p50_us"].as_double(),
          row["p99_us"].as_double(), row["max_us"].as_double(), row["blocks_per_second"].as_double() / 1e6);
    report[to_string(static_cast<SubjectKind>(kind))] = std::move(row);
  }
  if (!options.report.empty()) write_report(options.report, json_text(report));
}

}  // namespace terrace::tools
