#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace terrace::test {

/// How long a test waits for something that has to come. It is reached only if the test fails.
inline constexpr std::chrono::seconds patience{120};

/// The end of such a wait that begins now.
[[nodiscard]] inline std::chrono::steady_clock::time_point give_up_at() { return std::chrono::steady_clock::now() + patience; }

/// Waits until the condition is true. Returns false after `patience`.
[[nodiscard]] inline bool comes_true(const std::function<bool()>& condition) {
  const auto end = give_up_at();
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

}  // namespace terrace::test
