#pragma once

#include "base/block_key.hpp"
#include "base/counters.hpp"
#include "base/tier.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// How often values of each size were seen: bucket 0 counts zeros, bucket n those from 2^(n-1) to 2^n - 1, the last one all that
/// are larger, too.
struct Histogram {
  static constexpr std::size_t buckets = 32;
  std::array<std::uint64_t, buckets> counts{};

  void add(std::uint64_t value) {
    const auto bucket = static_cast<std::size_t>(std::bit_width(value));
    ++counts[bucket < buckets ? bucket : buckets - 1];
  }
  /// The smallest value that a bucket counts.
  [[nodiscard]] static constexpr std::uint64_t smallest(std::size_t bucket) {
    return bucket == 0 ? 0 : std::uint64_t{1} << (bucket - 1);
  }
  [[nodiscard]] std::uint64_t total() const;
};

/// Of the blocks that are followed. Lengths are counted in requests: those that were accepted between two events.
struct ResidencyTotals {
  struct OfTier {
    Histogram lifetime;  ///< from the block's coming to the tier to its going, however it went
    Histogram idle;      ///< of that, from its last use to its going
  };
  OfTier device;
  OfTier host;
  Histogram gaps;                ///< between two uses of a block that was in memory all the while
  std::uint64_t overlooked = 0;  ///< blocks that should have been followed, and that no place was left for

  friend ResidencyTotals operator-(const ResidencyTotals& now, const ResidencyTotals& before) { return difference(now, before); }
};

/// Follows how long blocks stay in device and host memory, how long they had not been used when they went, and how far apart
/// their uses are. It follows a fixed share of the keys, always the same ones, so that each block it follows is followed through
/// its whole life; what the rest does costs a look at the key, and nothing at all while this is off.
///
/// It counts in requests, not in seconds: whoever calls it reads no clock, the counts repeat from run to run, and the question
/// they answer (how much more traffic would a larger tier have kept this block through?) does not change with the load. A block
/// counts when it goes: those that live on are in no histogram yet. What a clear() takes is not counted: nobody gave it up for
/// want of room.
///
/// Memory: 32 bytes for each place, of which there are two for each block that is to be expected. None is allocated but by
/// follow(). Threads: one.
class ResidencySample {
 public:
  /// One in `one_in` keys from now on (rounded up to a power of two; 0: none), of at most so many blocks at a time. Blocks that
  /// are there already are followed when they come again. The totals go on.
  void follow(std::uint32_t one_in, std::uint64_t blocks);
  [[nodiscard]] bool on() const { return !places_.empty(); }
  /// While on().
  [[nodiscard]] bool follows(const BlockKey& key) const { return (key.prefix64() & mask_) == 0; }

  /// So many requests have been accepted.
  void set_now(std::uint64_t requests) { now_ = requests; }
  /// The block came to the tier, device or host; it left it; a request hit it. Of keys that are followed.
  void came(const BlockKey& key, Tier tier);
  void went(const BlockKey& key, Tier tier);
  void used(const BlockKey& key);
  /// Of all that is there.
  void forget();

  [[nodiscard]] const ResidencyTotals& totals() const { return totals_; }
  [[nodiscard]] std::size_t bytes_held() const { return places_.capacity() * sizeof(Place); }

 private:
  static constexpr std::size_t bucket_places = 8;
  static constexpr std::uint64_t absent = ~std::uint64_t{0};
  struct Place {
    std::uint64_t name = 0;
    std::uint64_t last_use = 0;
    std::array<std::uint64_t, 2> since{absent, absent};  ///< by tier; in neither, the place is free

    [[nodiscard]] bool free() const { return since[0] == absent && since[1] == absent; }
  };

  [[nodiscard]] Place* find(const BlockKey& key);
  [[nodiscard]] Place* find_free(const BlockKey& key);
  [[nodiscard]] std::size_t bucket_of(const BlockKey& key) const;

  std::uint64_t mask_ = 0;
  std::uint64_t now_ = 0;
  std::vector<Place> places_;  ///< buckets, each of neighbours: a power of two of them
  ResidencyTotals totals_;
};

}  // namespace terrace
