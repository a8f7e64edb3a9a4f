#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/types.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// The behaviour of one direction of an emulated link. "Every n-th" counts commands from 1; 0 means never.
struct LinkDirection {
  Bytes bytes_per_second{};  ///< 0: no limit
  /// The delay of every command before its bytes move.
  Duration latency{};
  /// Each command takes longer by a random time up to this. The time is uniformly distributed, by the seed of the link.
  Duration jitter_max{};
  /// The stream stalls for `stall` before the bytes of every n-th command.
  std::uint64_t stall_every = 0;
  Duration stall{};
  /// Every n-th command ends with io_failed, after half of its first block was written.
  std::uint64_t fail_every = 0;
};

struct LinkModel {
  std::array<LinkDirection, direction_count> directions{};  ///< by Direction
  std::uint64_t seed = 1;

  [[nodiscard]] LinkDirection& operator[](Direction direction) { return directions[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] const LinkDirection& operator[](Direction direction) const {
    return directions[static_cast<std::size_t>(direction)];
  }
};

/// Faults that a verification must detect; 0 switches a fault off. Commands and blocks are counted per direction, so that runs
/// repeat.
struct EmulatedFaults {
  /// Flips one bit of every n-th block that is swapped out, in the host slot. If a command copies only some layers, the bit is in
  /// these.
  std::uint64_t flip_every = 0;
  /// Reports every n-th swap-in as done first, and moves its bytes `late_by` later, as a late DMA would.
  std::uint64_t late_every = 0;
  Duration late_by = std::chrono::milliseconds{5};
  /// Copies do not wait for compute, and compute begins each work `compute_lag` late, so that a missing fence becomes visible.
  bool ignore_fences = false;
  Duration compute_lag = std::chrono::milliseconds{2};
};

}  // namespace terrace
