#pragma once

#include "base/fifo.hpp"
#include "terrace/clock.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

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

/// Tells why blocks that requests ask for are not cached: it follows a share of the keys through the tiers, and remembers why
/// their copies were dropped. The share is chosen by the key, as in SHARDS (C. A. Waldspurger et al.: "Efficient MRC Construction
/// with SHARDS", FAST 2015), so a block is followed for its whole life. Each followed block counts for all blocks of its share.
/// When there are too many blocks to remember, the blocks that were dropped longest ago are forgotten; if few blocks were
/// dropped, the share is halved.
///
/// It reads no clock: the owner gives the time. Memory: at most 65,536 blocks, about 3 MiB. Cost of other blocks: one test of the
/// key, and nothing while it is off. Threads: one.
class MissReasons {
 public:
  static constexpr std::size_t blocks_max = 65'536;

  /// Follows one in `one_in` keys from now on, a power of two.
  void begin(std::uint32_t one_in = 4);
  [[nodiscard]] bool on() const { return one_in_ > 0; }
  [[nodiscard]] bool follows(const BlockKey& key) const { return (key.prefix64() & (one_in_ - 1)) == 0; }

  // Call these only while on(); keys that are not followed are ignored.

  void set_now(TimePoint now) { now_ = now; }
  /// came(): a copy of the block has become usable in the tier. went(): the copy has been dropped.
  void came(const BlockKey& key, Tier tier);
  void went(const BlockKey& key, Tier tier);
  /// The copy in storage did not verify.
  void damaged(const BlockKey& key);
  /// Everything that was cached is forgotten.
  void cleared();
  /// A request asks for the block, and must compute it. The block has `units` hash units.
  void missed(const BlockKey& key, std::uint32_t units);
  /// A request computes the block, although it is cached, because loading takes longer.
  void turned_down(const BlockKey& key, std::uint32_t units) {
    if (follows(key)) totals_[MissReason::turned_down] += std::uint64_t{units} * one_in_;
  }

  [[nodiscard]] const MissTotals& totals() const { return totals_; }
  [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }

 private:
  struct Block {
    std::uint8_t copies = 0;                         ///< a bit for each Tier
    MissReason reason = MissReason::evicted_device;  ///< only if there are no copies
    TimePoint gone{};                                ///< when the last copy was dropped; only if there are no copies
  };

  struct Gone {
    std::uint64_t name = 0;
    TimePoint when{};
  };

  [[nodiscard]] Block* block_of(const BlockKey& key);
  void forget_longest_gone();
  void make_room();

  std::uint32_t one_in_ = 0;  ///< 0: off
  TimePoint now_{};
  boost::unordered_flat_map<std::uint64_t, Block> blocks_;  ///< by BlockKey::prefix64
  Fifo<Gone> gone_;  ///< in the order of time; an entry is out of date if the block has been cached again
  MissTotals totals_;
};

}  // namespace terrace
