#include "tests/fuzz/redis_replies.hpp"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  terrace::test::run_redis_replies({reinterpret_cast<const char*>(data), size});
  return 0;
}
