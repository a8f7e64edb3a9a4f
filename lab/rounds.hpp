#pragma once

#include "base/random.hpp"
#include "terrace/keys.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <numeric>
#include <vector>

/// Functions that several benches share.
namespace terrace::tools {

/// The median of at least one value; of two in the middle, the upper one.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Returns how long `f` takes.
template <class F>
[[nodiscard]] double seconds_of(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The processor time of this thread. On a busy machine a call may take longer than this.
[[nodiscard]] inline double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Prompts of random tokens, the same for the same seed.
[[nodiscard]] inline std::vector<std::vector<TokenId>> random_prompts(std::uint64_t seed, std::uint32_t prompts,
                                                                      std::uint32_t tokens) {
  constexpr TokenId vocabulary = 150'000;
  Random random{seed};
  std::vector<std::vector<TokenId>> drawn(prompts, std::vector<TokenId>(tokens));
  for (auto& prompt : drawn) {
    for (TokenId& token : prompt) token = static_cast<TokenId>(random.below(vocabulary));
  }
  return drawn;
}

/// Returns all numbers below `count` in a scattered order: no number directly follows its predecessor. The step has no common
/// factor with `count`, so each number comes once.
[[nodiscard]] inline std::vector<std::uint32_t> scattered_order(std::uint32_t count) {
  std::uint64_t step = std::uint64_t{count} / 2 + 1;
  while (std::gcd(std::uint64_t{count}, step) != 1) ++step;
  std::vector<std::uint32_t> order;
  order.reserve(count);
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    at = (at + step) % count;
    order.push_back(static_cast<std::uint32_t>(at));
  }
  return order;
}

}  // namespace terrace::tools
