#include "lab/index/index.hpp"

#include "lab/index/index_subject.hpp"
#include "lab/rounds.hpp"
#include "terrace/keys.hpp"
#include "tools/output.hpp"
#include "tools/replay/engine/key_maker.hpp"
#include "tools/replay/workload/trace_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace terrace::tools {
namespace {

using TracePrompts = std::vector<std::vector<BlockKey>>;

/// A hash id of the trace stands for several blocks. Each gets an id from the hash id and the number of the block.
TracePrompts read_prompts(const IndexBenchOptions& options) {
  const std::uint32_t parts = options.trace_block_tokens / options.block_tokens;
  KeyMaker keys{root_key({})};
  TraceReader trace{TraceFile{options.trace}, options.trace_block_tokens};
  TracePrompts prompts;
  std::vector<std::uint64_t> ids;
  while (const auto request = trace.next()) {
    ids.clear();
    for (std::uint32_t i = 0; i < request->input_tokens / options.block_tokens && i / parts < request->hash_ids.size(); ++i) {
      ids.push_back(request->hash_ids[i / parts] * parts + i % parts);
    }
    ids.resize(std::min<std::size_t>(ids.size(), options.blocks.front()));
    if (!ids.empty()) prompts.push_back(keys.keys(ids));
  }
  return prompts;
}

/// Adds the times of the requests to the figures of a subject. Returns the hits, which are the same in each round.
std::uint64_t replay_once(SubjectKind kind, const TracePrompts& prompts, std::uint32_t capacity, Figures& figures) {
  const auto subject = make_subject(kind, capacity);
  std::uint64_t hits = 0;
  std::vector<double> micros;
  micros.reserve(prompts.size());
  double sum = 0;
  for (const auto& prompt : prompts) {
    micros.push_back(1e6 * seconds_of([&] { hits += subject->serve(prompt); }));
    sum += micros.back();
  }
  std::ranges::sort(micros);
  figures.add("mean_us", sum / static_cast<double>(prompts.size()));
  figures.add("p50_us", micros[micros.size() / 2]);
  figures.add("p99_us", micros[micros.size() * 99 / 100]);
  figures.add("max_us", micros.back());
  return hits;
}

constexpr Column trace_columns[] = {{"subject", "", -16},         {"hit_percent", "hits, %", 9, 2},
                                    {"mean_us", "mean us", 9, 2}, {"floors", "floors", 8, 2},
                                    {"p50_us", "p50 us", 9, 2},   {"p99_us", "p99 us", 9, 2},
                                    {"max_us", "max us", 9, 1},   {"mblocks_per_second", "Mblocks/s", 11, 2}};

}  // namespace

Row bench_index_trace(const IndexBenchOptions& options) {
  if (options.trace_block_tokens % options.block_tokens != 0) {
    throw std::invalid_argument{
        fmt::format("--block-tokens {}: must divide the trace's {}", options.block_tokens, options.trace_block_tokens)};
  }
  const TracePrompts prompts = read_prompts(options);
  const std::uint32_t capacity = options.blocks.front();
  std::uint64_t blocks = 0;
  for (const auto& prompt : prompts) blocks += prompt.size();
  if (blocks == 0) throw std::runtime_error{fmt::format("{}: no request has a full block", options.trace.string())};

  std::array<Figures, subject_count> figures;
  std::array<std::uint64_t, subject_count> hits{};
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (std::size_t kind = 0; kind < subject_count; ++kind) {
      hits[kind] = replay_once(static_cast<SubjectKind>(kind), prompts, capacity, figures[kind]);
    }
  }
  constexpr auto floor = static_cast<std::size_t>(SubjectKind::floor);
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    if (static_cast<SubjectKind>(kind) == SubjectKind::terrace_adaptive) continue;
    if (hits[kind] != hits[floor]) throw std::runtime_error{"the indexes disagree on the hits: one of them is wrong"};
  }

  Row report{{"trace", options.trace.string()},      {"requests", prompts.size()}, {"blocks", blocks}, {"capacity", capacity},
             {"block_tokens", options.block_tokens}, {"rounds", options.rounds}};
  print("{} requests, {} blocks of {} tokens, {} cached at most; medians of {} rounds\n\n", prompts.size(), blocks,
        options.block_tokens, capacity, options.rounds);
  print_head(trace_columns);
  for (std::size_t kind = 0; kind < subject_count; ++kind) {
    const std::string_view subject = to_string(static_cast<SubjectKind>(kind));
    const double mean_us = figures[kind].median("mean_us");
    Row row{{"subject", subject},
            {"hits", hits[kind]},
            {"hit_percent", 100 * static_cast<double>(hits[kind]) / static_cast<double>(blocks)},
            {"floors", mean_us / figures[floor].median("mean_us")},
            {"mblocks_per_second", static_cast<double>(blocks) / (mean_us * static_cast<double>(prompts.size()))}};
    figures[kind].add_medians(row);
    print_row(trace_columns, row);
    report[subject] = std::move(row);
  }
  return report;
}

}  // namespace terrace::tools
