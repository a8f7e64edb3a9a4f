#include "tests/fuzz/shared_values.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  terrace::test::run_shared_values(std::as_bytes(std::span{data, size}));
  return 0;
}
