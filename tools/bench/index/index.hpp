#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace terrace::tools {

struct IndexBenchOptions {
  /// Cached blocks to measure at.
  std::vector<std::uint32_t> blocks = {10'000, 100'000, 1'000'000};
  unsigned repetitions = 5;
  std::filesystem::path report;  ///< JSON; empty: none
};

/// Measures the control plane by itself at several sizes, with the baselines (index_subject.hpp) beside it in the same run, and
/// prints medians and ratios. Google Benchmark underneath.
void bench_index(const IndexBenchOptions& options);

struct IndexTraceOptions {
  std::filesystem::path trace;
  std::uint32_t trace_block_tokens = 512;
  std::uint32_t block_tokens = 64;  ///< divides trace_block_tokens: each hash id of the trace becomes several blocks
  std::uint32_t capacity = 40'000;  ///< cached blocks
  unsigned rounds = 5;
  std::filesystem::path report;
};

/// Replays a trace's control plane alone: every request one whole cycle, keys known, each subject in turn, `rounds` times. Throws
/// UsageError for a trace that cannot be read; std::runtime_error where the subjects disagree on the hits.
void bench_index_trace(const IndexTraceOptions& options);

}  // namespace terrace::tools
