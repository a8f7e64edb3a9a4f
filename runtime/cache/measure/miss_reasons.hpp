#pragma once

#include "base/fifo.hpp"
#include "terrace/clock.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>

namespace terrace {

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
  /// The copy in storage did not verify, or goes with one before it that did not.
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
