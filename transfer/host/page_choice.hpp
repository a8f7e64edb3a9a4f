#pragma once

#include "base/large_memory.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <cstdint>

namespace terrace {

/// Chooses whether memory is next touched in huge pages or in small ones. If the memory of a machine is fragmented, the kernel
/// compacts it to make huge pages, which can take a hundred times as long as touching small ones. So if touching huge pages is
/// slow, small pages are tried. They stay in use if touching them is at least twice as fast; then huge pages are tried again
/// later, at growing intervals.
///
/// A state machine that touches no memory and reads no clock. Threads: one.
class PageChoice {
 public:
  /// A speed below this counts as slow. Every machine with unfragmented memory is faster.
  static constexpr Bytes slow_per_second = MiB * 512;

  explicit PageChoice(HugePages wish) : wish_{wish} {}

  /// Returns whether to use huge pages next.
  [[nodiscard]] HugePages next() const;
  /// Reports that `bytes` were touched in the pages that next() has returned, and how long this took.
  void touched(Bytes bytes, Duration took);

 private:
  enum class State : std::uint8_t { huge, trying_small, small, trying_huge };
  static constexpr std::uint32_t stay_first = 16;

  HugePages wish_;
  State state_ = State::huge;
  double huge_seconds_ = 0;          ///< seconds per byte when huge pages were last used
  std::uint32_t stay_ = stay_first;  ///< the number of chunks in small pages before huge pages are tried again
  std::uint32_t left_ = 0;
};

}  // namespace terrace
