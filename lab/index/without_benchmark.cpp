// Replaces index.cpp in a build without Google Benchmark: `terrace-lab index` without a trace fails with a clear message.
#include "lab/index/index.hpp"

#include <stdexcept>

namespace terrace::tools {

void bench_index(const IndexBenchOptions&) {
  throw std::runtime_error{"this build has no Google Benchmark (TERRACE_PORTABLE), which bench index needs unless --trace is "
                           "given; the other benches do not need it"};
}

}  // namespace terrace::tools
