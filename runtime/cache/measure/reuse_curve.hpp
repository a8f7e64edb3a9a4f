#pragma once

#include "runtime/cache/measure/lru_stack.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace terrace {

/// The number of blocks in the group of a path that begins at this depth: 1, 1, 2, 4, 8, then 16 for each group, and from depth
/// 512 on a thirty-second of the depth, up to 1024.
[[nodiscard]] constexpr std::uint32_t sample_group(std::size_t depth) {
  const std::size_t most = std::clamp<std::size_t>(depth / 32, 16, 1024);
  return static_cast<std::uint32_t>(std::bit_floor(std::clamp<std::size_t>(depth, 1, most)));
}

/// Picks few blocks of a path that stand for all of them. The path is cut into groups, and one block of each is picked; its
/// weight is the size of the group. Which one it is follows from the key of the group's first block, so two paths that share the
/// picked block agree on it. Blocks that many paths share are near the root, where groups are small. The parts of a path that
/// were used together are longer than the groups they lie in, or lie in small groups. So the weight of the picked blocks is close
/// to the number of blocks in each such part, while a pick of each block by its own hash (C. A. Waldspurger et al.: "Efficient
/// MRC Construction with SHARDS", FAST 2015) has a large error for blocks that are used much more often than others.
///
/// Calls visit(key, weight) for the picked blocks at depth `from` and deeper, first block first. A path of n blocks has about
/// 5 + n / 16 of them, and about 300 if it has 100,000.
template <class Visit>
void sample_path(std::span<const BlockKey> keys, std::size_t from, Visit visit) {
  for (std::size_t depth = 0; depth < keys.size();) {
    const std::uint32_t group = sample_group(depth);
    if (depth + group > from) {
      std::uint64_t number = 0;  // not the bytes of prefix64(), which name the block
      std::memcpy(&number, keys[depth].bytes.data() + sizeof number, sizeof number);
      const std::size_t picked = depth + (number & (group - 1));
      if (picked >= from && picked < keys.size()) visit(keys[picked], group);
    }
    depth += group;
  }
}

/// A block that stands for `weight` blocks of its path (sample_path).
struct ReuseSample {
  std::uint64_t block = 0;  ///< BlockKey::prefix64
  std::uint32_t weight = 0;
  bool asked = false;  ///< a request asked for it; if false, it was computed after the prompt
};

/// Estimates the hit ratio of LRU caches of all sizes at once, from samples that are taken while a cache serves. The blocks of a
/// request are used from the last to the first, as in a cache that evicts leaves first.
///
/// The curve covers the last half to full hour, so that it follows the workload. It knows at most `items_max` samples, about 4
/// MiB. If there are more, the samples that were unused longest are forgotten, and the curve ends at the remaining size:
/// covered().
///
/// No I/O. Threads: one.
class ReuseCurve {
 public:
  static constexpr std::size_t items_max = 65'536;
  static constexpr Duration half_window = std::chrono::minutes{30};

  /// Counts the samples of one request, first block first, and then uses them.
  void use(std::span<const ReuseSample> request, TimePoint now);

  /// The blocks that requests have asked for within the window, by the weight of the samples.
  [[nodiscard]] double asked() const { return windows_[0].asked + windows_[1].asked; }
  /// The share of these blocks that a cache of this size would have hit: 0 to 1; 0 if nothing was asked for.
  [[nodiscard]] double hit_ratio(double blocks) const;
  /// Sizes up to this one are measured. Larger ones have the hit ratio of this one.
  [[nodiscard]] double covered() const;
  /// Number of different blocks that the samples stand for.
  [[nodiscard]] std::uint32_t different() const { return stack_.weight(); }

 private:
  static constexpr std::size_t buckets_per_octave = 8;
  static constexpr std::size_t buckets = 32 * buckets_per_octave;

  struct Window {
    std::array<double, buckets> hits{};  ///< by distance: bucket b has those from 2^(b/8) to 2^((b+1)/8) blocks
    double asked = 0;
  };

  void turn(TimePoint now);
  [[nodiscard]] LruStack::Item item_of(std::uint64_t block);

  LruStack stack_;
  boost::unordered_flat_map<std::uint64_t, LruStack::Item> items_;  ///< by block
  std::vector<std::uint64_t> blocks_;                               ///< by item
  std::vector<LruStack::Item> free_;
  std::array<Window, 2> windows_;  ///< the current half and the one before it
  TimePoint turned_{};             ///< when the current half began
  bool begun_ = false;
  bool forgot_ = false;
  std::uint32_t covered_ = 0;  ///< the smallest weight that was left after samples were forgotten
};

}  // namespace terrace
