// The entry of a fuzzer. TERRACE_FUZZED names the function of fuzzed.hpp that it calls.
#include "tests/fuzz/fuzzed.hpp"

#include <cstddef>
#include <cstdint>

#ifndef TERRACE_FUZZED  // the file is read without the build, by tools/lint
#define TERRACE_FUZZED run_admin_request
#endif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  terrace::test::TERRACE_FUZZED({reinterpret_cast<const char*>(data), size});
  return 0;
}
