#pragma once

#include "terrace/types.hpp"

#include <vector>

namespace terrace::tools {

struct TouchBenchOptions {
  Bytes size = GiB;
  std::vector<unsigned> threads{1, 2};
  unsigned rounds = 5;
};

/// Measures the first touch of host memory for each number of threads, with and without huge pages, in turns. Prints the medians,
/// and how much of the memory got huge pages. Throws std::invalid_argument if there is nothing to measure, std::system_error if
/// there is not enough memory.
void bench_touch(const TouchBenchOptions& options);

}  // namespace terrace::tools
