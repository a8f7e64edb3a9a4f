#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/large_memory.hpp"

#include <cstdint>
#include <optional>

namespace terrace {

/// Whether memory is next touched in huge pages or in small ones. Where a machine's memory is in fragments the kernel compacts it
/// to make huge pages, which can take a hundred times as long as touching small ones. So where huge pages come slowly, small
/// ones are tried; they stay where they come at least twice as fast, and huge ones are tried again later, ever more seldom.
/// A state machine without memory or a clock. Threads: one.
class PageChoice {
 public:
  /// Slower than this is slow, on any machine that has its memory in one piece.
  static constexpr Bytes slow_per_second = MiB * 512;

  explicit PageChoice(HugePages wish) : wish_{wish} {}

  [[nodiscard]] HugePages next() const;
  /// So many bytes were touched as next() said.
  void touched(Bytes bytes, Duration took);

 private:
  enum class State : std::uint8_t { huge, trying_small, small, trying_huge };
  static constexpr std::uint32_t stay_first = 16;

  HugePages wish_;
  State state_ = State::huge;
  double huge_seconds_ = 0;          ///< a byte, when they last came
  std::uint32_t stay_ = stay_first;  ///< pieces in small pages before huge ones are tried again
  std::uint32_t left_ = 0;
};

}  // namespace terrace
