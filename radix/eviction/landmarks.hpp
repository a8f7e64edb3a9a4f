#pragma once

#include "terrace/policies.hpp"

#include <algorithm>
#include <cstdint>

namespace terrace {

/// The blocks of a prefix that a policy looks at in place of all: the first eight, and every eighth block after them.
struct Landmarks {
  static constexpr std::uint32_t dense_until = 8;
  static constexpr std::uint32_t stride = 8;

  /// Returns the depth of landmark `i`.
  [[nodiscard]] static constexpr std::uint32_t depth(std::uint32_t i) {
    return i < dense_until ? i : dense_until + (i - dense_until) * stride;
  }
  /// Returns the number of landmarks before this depth.
  [[nodiscard]] static constexpr std::uint32_t before(std::uint32_t depth) {
    return depth <= dense_until ? depth : dense_until + (depth - dense_until + stride - 1) / stride;
  }

  /// Calls `visit(depth, stands_for)` for the sampled blocks of a run from depth `from` on. A block is sampled if the upper 32
  /// bits of its key's prefix64() are less than `below`. If few blocks are, only landmarks are looked at: one after the first
  /// eight blocks is eight times as likely to be sampled, because it stands for eight blocks.
  template <class Visit>
  static void for_each_sampled(const BlockRun& blocks, std::uint32_t from, std::uint64_t below, const Visit& visit) {
    const auto look_at = [&](std::uint32_t depth, std::uint32_t stands_for) {
      if ((blocks.keys[depth - blocks.begin].prefix64() >> 32U) < below * stands_for) visit(depth, stands_for);
    };
    const std::uint32_t end = blocks.end();
    std::uint32_t depth = from;
    // If more than one block in eight is sampled, a stride of eight blocks would miss some of them.
    const bool strides = below * stride <= std::uint64_t{1} << 32U;
    const std::uint32_t each_until = strides ? std::min(end, dense_until) : end;
    for (; depth < each_until; ++depth) look_at(depth, 1);
    if (depth < end) depth = Landmarks::depth(before(depth));
    for (; depth < end; depth += stride) look_at(depth, stride);
  }
};
static_assert(Landmarks::depth(Landmarks::before(7)) == 7 && Landmarks::depth(Landmarks::before(9)) == 16 &&
              Landmarks::before(17) == 10);

}  // namespace terrace
