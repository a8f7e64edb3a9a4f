#include "tests/fuzz/crafted_store.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size <= 4096) terrace::test::run_crafted_store(std::as_bytes(std::span{data, size}));
  return 0;
}
