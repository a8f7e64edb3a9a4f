#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

namespace terrace::test {

/// The first seed: TERRACE_SEED if it is set (to repeat a failure), otherwise `fallback`.
inline std::uint64_t seed_from_env_or(std::uint64_t fallback) {
  const char* const text = std::getenv("TERRACE_SEED");
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

/// Whether this is a long run (TERRACE_LONG=1). In it, a test takes all of what it otherwise takes a sample of.
inline bool long_run() {
  const char* const text = std::getenv("TERRACE_LONG");
  return text != nullptr && std::string_view{text} != "0";
}

/// How many seeds a test takes: TERRACE_SEEDS if it is set, only the one of TERRACE_SEED, otherwise `few` or, in a long run,
/// `all`.
inline std::uint64_t seeds_from_env_or(std::uint64_t few, std::uint64_t all) {
  if (const char* const text = std::getenv("TERRACE_SEEDS")) return std::strtoull(text, nullptr, 10);
  if (std::getenv("TERRACE_SEED") != nullptr) return 1;
  return long_run() ? all : few;
}

/// Which cases of a list a test takes: about one of `of`, drawn from the seed; all of them in a long run.
class Sample {
 public:
  Sample(std::uint64_t seed, std::uint64_t of) : random_{seed}, of_{long_run() ? 1 : of} {}

  [[nodiscard]] std::uint64_t of() const { return of_; }
  /// How many cases to leave out before the next one.
  [[nodiscard]] std::uint64_t leaves_out() { return random_() % (2 * of_ - 1); }

 private:
  std::mt19937_64 random_;
  std::uint64_t of_;
};

}  // namespace terrace::test
