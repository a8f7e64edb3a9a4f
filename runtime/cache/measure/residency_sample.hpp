#pragma once

#include "terrace/clock.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Measures how long blocks stay in device and host memory, how long they were unused before they were evicted, and the time
/// between their uses. It follows a fixed share of the keys. The share is always the same, so that a sampled block is followed
/// for its whole life. For other blocks the cost is one test of the key, and nothing while sampling is off.
///
/// Time is counted in requests, not in seconds. So the class reads no clock, the counts repeat from run to run, and the result
/// does not depend on the load. It answers the question: by how much more traffic would a larger tier have kept this block? A
/// block is counted when it leaves a tier. Blocks that are still cached are in no histogram yet. Blocks that clear() removes are
/// not counted, because they did not leave for lack of slots.
///
/// Memory: 32 bytes per place, with two places for each expected block. Only follow() allocates. Threads: one.
class ResidencySample {
 public:
  /// From now on, follows one in `one_in` keys (rounded up to a power of two; 0: none), and at most about `blocks` / `one_in`
  /// blocks at a time. Blocks that are cached already are followed after their next arrival. The totals are kept.
  void follow(std::uint32_t one_in, std::uint64_t blocks);
  [[nodiscard]] bool on() const { return !places_.empty(); }
  /// Call it only while on().
  [[nodiscard]] bool follows(const BlockKey& key) const { return (key.prefix64() & mask_) == 0; }

  /// Sets the time: the number of requests accepted so far.
  void set_now(std::uint64_t requests) { now_ = requests; }
  /// A copy of the block was made in the tier (device or host), or was dropped. Call these only for keys that are followed.
  void came(const BlockKey& key, Tier tier);
  void went(const BlockKey& key, Tier tier);
  /// A request hit these blocks. Does nothing unless on().
  void used(std::span<const BlockKey> keys);
  /// Forgets all followed blocks.
  void forget();

  [[nodiscard]] const ResidencyTotals& totals() const { return totals_; }
  [[nodiscard]] std::size_t bytes_held() const { return places_.capacity() * sizeof(Place); }

 private:
  static constexpr std::size_t bucket_places = 8;
  static constexpr std::uint64_t absent = ~std::uint64_t{0};
  struct Place {
    std::uint64_t name = 0;
    std::uint64_t last_use = 0;
    std::array<std::uint64_t, 2> since{absent, absent};  ///< by tier; if both are `absent`, the place is free

    [[nodiscard]] bool free() const { return since[0] == absent && since[1] == absent; }
  };

  [[nodiscard]] Place* find(const BlockKey& key);
  [[nodiscard]] Place* find_free(const BlockKey& key);
  [[nodiscard]] std::size_t bucket_of(const BlockKey& key) const;

  std::uint64_t mask_ = 0;
  std::uint64_t now_ = 0;
  std::vector<Place> places_;  ///< in buckets of adjacent places; the size is a power of two
  ResidencyTotals totals_;
};

}  // namespace terrace
