// `terrace bench index` without a trace in a build without Google Benchmark: it says so.
#include "tools/bench/index/index.hpp"

#include <stdexcept>

namespace terrace::tools {

void bench_index(const IndexBenchOptions&) {
  throw std::runtime_error{
      "this build has no Google Benchmark (TERRACE_PORTABLE), which bench index needs without --trace; other benches do without"};
}

}  // namespace terrace::tools
