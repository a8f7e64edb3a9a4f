#pragma once

#include "terrace.h"
#include "tests/capi/store_fixture.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace terrace::test {

inline constexpr std::uint32_t blocks = 16;
inline constexpr std::size_t block_bytes = 4096;

/// Arguments at random for calls of the C interface: wrong numbers of everything that is a number.
class Arguments {
 public:
  explicit Arguments(std::uint64_t seed) : random_{seed}, keys_(blocks), memory_(blocks * block_bytes) {
    for (std::uint32_t i = 0; i < blocks; ++i) keys_[i].bytes[0] = static_cast<std::uint8_t>(i + 1);
  }

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  /// A number that is mostly below n, and sometimes anything.
  template <class T>
  T number(std::uint64_t n) {
    return one_in(12) ? static_cast<T>(random_()) : static_cast<T>(below(n));
  }
  std::size_t block() { return below(blocks); }
  terrace_key* keys() { return keys_.data(); }
  std::byte* row(std::size_t n) { return memory_.data() + n * block_bytes; }
  std::byte* memory() { return memory_.data(); }

  void fill(std::size_t row_number, std::size_t key) { std::memset(row(row_number), static_cast<int>(key + 1), block_bytes); }
  bool has(std::size_t row_number, std::size_t key) {
    std::array<std::byte, block_bytes> expected{};
    expected.fill(static_cast<std::byte>(key + 1));
    return std::memcmp(row(row_number), expected.data(), block_bytes) == 0;
  }
  static void judge(terrace_status status) {
    EXPECT_LE(status, TERRACE_INTERNAL);
    EXPECT_NE(status, TERRACE_INTERNAL) << terrace_last_error();
    if (status != TERRACE_OK) {
      EXPECT_STRNE(terrace_last_error(), "");
    }
  }

 private:
  std::mt19937_64 random_;
  std::vector<terrace_key> keys_;
  std::vector<std::byte> memory_;
};

/// Queries that caches of both kinds answer.
inline void read_calls(Arguments& any, terrace_cache* cache) {
  terrace_place place{};
  Arguments::judge(terrace_cache_find_block(cache, any.keys() + any.block(), any.number<std::uint16_t>(2), &place));
  terrace_usage usage = made<terrace_usage>();
  Arguments::judge(terrace_cache_read_usage(cache, any.number<std::uint32_t>(4), any.number<std::uint16_t>(2), &usage));
  terrace_tree_counts tree = made<terrace_tree_counts>();
  Arguments::judge(terrace_cache_read_tree(cache, any.number<std::uint16_t>(2), &tree));
  const char* text = nullptr;
  Arguments::judge(terrace_cache_describe_tree(cache, any.number<std::size_t>(9), &text));
  if (any.one_in(50)) Arguments::judge(terrace_cache_measure_misses(cache));
  terrace_misses misses = made<terrace_misses>();
  Arguments::judge(terrace_cache_read_misses(cache, &misses));
}

}  // namespace terrace::test
