#pragma once

#include <cstdint>

namespace terrace::test {

/// How often this thread has called write(), which is how an eventfd wakes another thread.
[[nodiscard]] std::uint64_t writes_of_this_thread();

}  // namespace terrace::test
