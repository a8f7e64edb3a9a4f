#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace terrace::test {

/// Runs a World or an OffloadWorld to its end.
template <class AnyWorld>
void run_world(AnyWorld& world, int steps) {
  for (int i = 0; i < steps; ++i) {
    world.step();
    world.check();
  }
  world.wind_down();
}

/// For each of the seeds from 1 on: make(seed) twice, and expects the same end of both.
template <class Make>
void expect_same_ends(std::uint64_t seeds, int steps, const Make& make) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    std::array<std::uint64_t, 2> digests{};
    for (std::uint64_t& digest : digests) {
      auto world = make(seed);
      for (int i = 0; i < steps; ++i) world.step();
      world.wind_down();
      digest = world.digest();
    }
    EXPECT_EQ(digests[0], digests[1]) << "seed " << seed;
  }
}

/// Adds each count to that of `total`. A structure of counts has nothing but counts.
template <class Counts>
void add_counts(Counts& total, const Counts& more) {
  using Words = std::array<std::uint64_t, sizeof(Counts) / sizeof(std::uint64_t)>;
  auto sums = std::bit_cast<Words>(total);
  const auto added = std::bit_cast<Words>(more);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += added[i];
  total = std::bit_cast<Counts>(sums);
}

}  // namespace terrace::test
