#include "tests/fuzz/admin_request.hpp"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  terrace::test::run_admin_request({reinterpret_cast<const char*>(data), size});
  return 0;
}
