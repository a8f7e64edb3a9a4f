#pragma once

#include "lab/rows.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace terrace::tools {

struct IndexBenchOptions {
  /// The numbers of cached blocks at which to measure. A trace is replayed with the first.
  std::vector<std::uint32_t> blocks = {10'000, 100'000, 1'000'000};
  unsigned rounds = 5;
  std::filesystem::path trace;  ///< empty: prompts of several lengths, without a trace
  std::uint32_t trace_block_tokens = 512;
  std::uint32_t block_tokens = 64;  ///< must divide trace_block_tokens: each hash id of the trace becomes several blocks
};

/// Measures the control plane, together with the baselines (index_subject.hpp) in the same run: at several sizes and lengths of
/// prompts, or over a trace, of which each request is one whole cycle with known keys. The subjects take turns. Prints medians
/// and ratios, and returns the report.
///
/// Throws std::invalid_argument for invalid sizes, UsageError for a trace that cannot be read, and std::runtime_error if the
/// subjects disagree on the hits.
[[nodiscard]] Row bench_index(const IndexBenchOptions& options);

/// The part of bench_index() for a trace.
[[nodiscard]] Row bench_index_trace(const IndexBenchOptions& options);

}  // namespace terrace::tools
