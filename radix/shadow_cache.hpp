#pragma once

#include "radix/block_records.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// How well a block has proven itself, by how it came back. Kept while it is remembered.
///
///     fresh ──► near   used again while it was there, or back before the tier had turned over once since it left
///       └─────► far    back later than that (a near one that is back so late is far, too)
///
enum class Standing : std::uint8_t { fresh, far, near };
inline constexpr std::size_t standing_count = 3;

/// How long blocks of each standing stay beyond their last use, in turnovers (the time in which the tier takes in as many
/// blocks as it holds), compared with a fresh one. All 0: least recently used first.
struct Favour {
  std::array<double, standing_count> turnovers{};

  /// When a block last used at `last_use` counts as last used.
  [[nodiscard]] double age(Standing standing, std::uint64_t last_use, double turnover) const {
    return static_cast<double>(last_use) + turnovers[static_cast<std::size_t>(standing)] * turnover;
  }
};

/// How a block comes back that left `departures` departures ago.
[[nodiscard]] constexpr Standing standing_on_return(std::uint64_t departures, std::uint64_t capacity) {
  return departures <= capacity ? Standing::near : Standing::far;
}

/// What a cache of so many blocks would hit if it favoured blocks so: names and ages, no blocks. It knows no tree and needs
/// none: a parent's age is no less than its child's (it is used whenever the child is), so that by age alone a path would go
/// from its end too. O(1) a use; memory is taken once, at construction. Threads: one.
class ShadowCache {
 public:
  static constexpr std::size_t ghosts_per_block = 4;

  ShadowCache(std::size_t capacity, Favour favour);

  /// True where the block was there. `turnover`: how long one takes now, in stamps.
  bool use(const BlockKey& key, std::uint64_t stamp, double turnover);

  [[nodiscard]] const Favour& favour() const { return favour_; }
  [[nodiscard]] std::size_t blocks() const { return records_.ghosts(0) + records_.ghosts(1) + records_.ghosts(2); }
  [[nodiscard]] std::size_t ghosts() const { return records_.ghosts(ghost_line); }
  [[nodiscard]] std::size_t bytes_held() const { return records_.bytes_held(); }
  void check_invariants() const;

 private:
  /// Lines 0 to 2 hold what is there, by standing; this one what has left.
  static constexpr std::size_t ghost_line = standing_count;

  struct Block {
    std::uint64_t last = 0;       ///< stamp
    std::uint64_t departure = 0;  ///< the how manieth it was
    Standing standing = Standing::fresh;
    bool is_there = false;
  };
  using Records = BlockRecords<Block, standing_count + 1>;

  void give_up_one(double turnover);

  std::size_t capacity_;
  Favour favour_;
  std::uint64_t departures_ = 0;
  Records records_;
};

}  // namespace terrace
