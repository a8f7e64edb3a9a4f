#pragma once

#include <cstdint>
#include <cstdlib>

namespace terrace::test {

/// The first seed: TERRACE_SEED if it is set (to repeat a failure), otherwise `fallback`.
inline std::uint64_t seed_from_env_or(std::uint64_t fallback) {
  const char* const text = std::getenv("TERRACE_SEED");
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

}  // namespace terrace::test
