#pragma once

#include "radix/tree/copy.hpp"
#include "terrace/groups.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace terrace {

/// The arithmetic of one group, in its own blocks and in hash units. A plain value. Threads: any.
class GroupRule {
 public:
  /// Throws std::invalid_argument, with the reason in its text, if the block is not a whole number of units or the span does not
  /// fit the kind.
  GroupRule(const GroupConfig& config, std::uint32_t unit_tokens);

  [[nodiscard]] const GroupConfig& config() const { return config_; }
  /// Returns true if each block depends on all blocks before it. Blocks of other groups are unchained, and a sequence needs only
  /// the last few of them.
  [[nodiscard]] bool chained() const { return config_.kind == GroupKind::full; }
  [[nodiscard]] bool cached() const { return config_.kind != GroupKind::cross; }
  [[nodiscard]] std::uint32_t units_per_block() const { return units_per_block_; }
  /// Returns the number of blocks that hold `units` units. The last block may be partly filled.
  [[nodiscard]] std::uint32_t blocks_for(std::uint32_t units) const {
    if (units_per_block_ == 1) return units;
    return static_cast<std::uint32_t>((std::uint64_t{units} + units_per_block_ - 1) / units_per_block_);
  }
  [[nodiscard]] std::uint32_t full_blocks(std::uint32_t units) const {
    return units_per_block_ == 1 ? units : units / units_per_block_;
  }
  /// For a cross attention group: returns the number of blocks for `tokens` tokens of the encoder.
  [[nodiscard]] std::uint32_t encoder_blocks(std::uint32_t tokens) const {
    return static_cast<std::uint32_t>((std::uint64_t{tokens} + config_.block_tokens - 1) / config_.block_tokens);
  }

  /// Returns the first block that any token from position `tokens` on needs. When `tokens` tokens are computed, the blocks before
  /// it may be freed. A hit of `tokens` tokens (a whole number of blocks) needs the blocks from it to the end of the hit.
  [[nodiscard]] std::uint32_t first_needed(std::uint64_t tokens) const;
  /// Returns the first of the blocks [from, to) of a sequence that needs a slot, if the first `units` hash units are computed
  /// now. In a recurrent group this is the block of the last of these units, because the states of the blocks before it are not
  /// kept. In other groups it is `from`.
  [[nodiscard]] std::uint32_t first_new(std::uint32_t from, std::uint32_t to, std::uint32_t units) const {
    if (config_.kind != GroupKind::recurrent) return from;
    const std::uint32_t last = blocks_for(units) > 0 ? blocks_for(units) - 1 : 0;
    return std::clamp(last, from, to);
  }

 private:
  GroupConfig config_;
  std::uint32_t units_per_block_ = 1;
};

/// Returns the alignment of hits, in units: a hit may end only at a multiple of it. It is the least common multiple of the block
/// sizes of all required groups. Throws std::invalid_argument if it does not fit into 32 bits.
[[nodiscard]] std::uint32_t hit_alignment(std::span<const GroupRule> rules);

/// Returns the longest hit, in units, that every required group can serve. It is at most `limit` and a multiple of `alignment`.
/// `there` must have two functions:
///
///     std::uint32_t chain(std::size_t group, std::uint32_t blocks)  leading blocks that a chained group has, up to `blocks`
///     bool has(std::size_t group, std::uint32_t block)              whether an unchained group has this block
///
/// Each group shortens the hit to the length that it can serve. The shorter hit may need other blocks of the groups that were
/// checked before, so all groups are checked again until no group shortens the hit. (vLLM's hybrid coordinator finds the same
/// fixed point.) Each block of a group is checked about once: a missing block excludes every boundary that needs it, and a
/// shorter hit never needs later blocks.
template <class There>
[[nodiscard]] std::uint32_t longest_common_hit(std::span<const GroupRule> rules, std::uint32_t unit_tokens,
                                               std::uint32_t alignment, std::uint32_t limit, There&& there) {
  std::uint32_t hit = limit - limit % alignment;
  for (bool shortened = true; shortened && hit > 0;) {
    shortened = false;
    for (std::size_t g = 0; g < rules.size() && hit > 0; ++g) {
      const GroupRule& rule = rules[g];
      if (rule.config().optional || !rule.cached()) continue;
      std::uint32_t served = hit;
      if (rule.chained()) {
        served = there.chain(g, rule.full_blocks(hit)) * rule.units_per_block();
        served -= served % alignment;
      } else {
        for (std::uint32_t end = rule.full_blocks(served); served > 0; end = rule.full_blocks(served)) {
          const std::uint32_t first = rule.first_needed(std::uint64_t{served} * unit_tokens);
          std::uint32_t block = end;
          while (block > first && there.has(g, block - 1)) --block;
          if (block == first) break;
          // A hit that ends after the missing block would need that block, too.
          served = (block - 1) * rule.units_per_block();
          served -= served % alignment;
        }
      }
      if (served < hit) {
        hit = served;
        shortened = true;
      }
    }
  }
  return hit;
}

}  // namespace terrace
