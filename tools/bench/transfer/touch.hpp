#pragma once

#include "base/bytes.hpp"

#include <vector>

namespace terrace::tools {

struct TouchBenchOptions {
  Bytes size = GiB;
  std::vector<unsigned> threads{1, 2};
  unsigned rounds = 5;
};

/// How long the first touch of host memory takes, by the number of threads and with huge pages and without, in turns. Prints
/// the medians, and what came in huge pages.
/// Throws std::invalid_argument where there is nothing to measure, std::system_error where there is no memory.
void bench_touch(const TouchBenchOptions& options);

}  // namespace terrace::tools
