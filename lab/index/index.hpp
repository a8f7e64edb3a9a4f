#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace terrace::tools {

struct IndexBenchOptions {
  /// The numbers of cached blocks at which to measure.
  std::vector<std::uint32_t> blocks = {10'000, 100'000, 1'000'000};
  unsigned repetitions = 5;
  std::filesystem::path report;  ///< JSON file; empty: no report
};

/// Measures the control plane at several sizes, together with the baselines (index_subject.hpp) in the same run, and prints
/// medians and ratios. It uses Google Benchmark.
void bench_index(const IndexBenchOptions& options);

struct IndexTraceOptions {
  std::filesystem::path trace;
  std::uint32_t trace_block_tokens = 512;
  std::uint32_t block_tokens = 64;  ///< must divide trace_block_tokens: each hash id of the trace becomes several blocks
  std::uint32_t capacity = 40'000;  ///< number of cached blocks
  unsigned rounds = 5;
  std::filesystem::path report;
};

/// Replays the control plane of a trace: each request is one whole cycle with known keys. The subjects take turns, `rounds`
/// times. Throws UsageError for a trace that cannot be read; std::runtime_error if the subjects disagree on the hits.
void bench_index_trace(const IndexTraceOptions& options);

}  // namespace terrace::tools
