#pragma once

#include "base/block_key.hpp"
#include "base/strong_id.hpp"
#include "radix/tree/copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace terrace {

/// What a token of a group's layers attends to, and so which blocks a sequence still needs.
enum class GroupKind : std::uint8_t {
  full,            ///< all tokens before it
  sliding_window,  ///< the last `span_tokens`, itself included
  chunked_local,   ///< those before it in its chunk of `span_tokens`
  recurrent,       ///< a state (Mamba and the like): a block holds the state after its last token, and the last block says it all
  cross,           ///< an encoder's tokens; each request computes its own, nothing is shared
};

[[nodiscard]] constexpr std::string_view to_string(GroupKind k) {
  switch (k) {
    case GroupKind::full: return "full";
    case GroupKind::sliding_window: return "sliding-window";
    case GroupKind::chunked_local: return "chunked-local";
    case GroupKind::recurrent: return "recurrent";
    case GroupKind::cross: return "cross";
  }
  return "?";
}

/// Layers that share a block table.
struct GroupConfig {
  GroupKind kind = GroupKind::full;
  /// Of one block; of encoder tokens for cross attention.
  std::uint32_t block_tokens = 1;
  /// Of sliding_window and chunked_local; 0 for the others.
  std::uint32_t span_tokens = 0;
  /// Never vetoes a hit: a draft model's layers. Where it cannot serve what the others can, the request does without it.
  bool optional = false;
  /// Whose slots its blocks live in. Groups with blocks of as many bytes share one.
  PoolId pool;
};

/// The hash unit of groups: the greatest common divisor of the block sizes of those that are cached.
[[nodiscard]] std::uint32_t hash_unit(std::span<const GroupConfig> groups);

/// The key under which a group keeps a block: pools and stores hold several groups' blocks. Group 0's is the block's own. The
/// same call leads back. (Two digests never differ in the group's two bytes alone.)
[[nodiscard]] BlockKey key_in_group(const BlockKey& key, GroupId group);

/// A group's arithmetic, in blocks of its own and in hash units. Pure; any thread.
class GroupRule {
 public:
  /// Throws std::invalid_argument, saying what is wrong, where the block is not a whole number of units or the span does not fit
  /// the kind.
  GroupRule(const GroupConfig& config, std::uint32_t unit_tokens);

  [[nodiscard]] const GroupConfig& config() const { return config_; }
  /// Its blocks hang together: each needs all before it. Others stand alone, and a sequence needs the last few.
  [[nodiscard]] bool chained() const { return config_.kind == GroupKind::full; }
  [[nodiscard]] bool cached() const { return config_.kind != GroupKind::cross; }
  [[nodiscard]] std::uint32_t units_per_block() const { return units_per_block_; }
  /// Blocks that hold so many units, the last one partly.
  [[nodiscard]] std::uint32_t blocks_for(std::uint32_t units) const {
    return static_cast<std::uint32_t>((std::uint64_t{units} + units_per_block_ - 1) / units_per_block_);
  }
  [[nodiscard]] std::uint32_t full_blocks(std::uint32_t units) const { return units / units_per_block_; }
  /// Of a cross attention group: for so many tokens of the encoder.
  [[nodiscard]] std::uint32_t encoder_blocks(std::uint32_t tokens) const {
    return static_cast<std::uint32_t>((std::uint64_t{tokens} + config_.block_tokens - 1) / config_.block_tokens);
  }

  /// The first block that any token from position `tokens` on needs. All before it may be given up once so many tokens are
  /// computed; and a hit of so many tokens (a whole number of blocks) wants the blocks from it up to the hit's end.
  [[nodiscard]] std::uint32_t first_needed(std::uint64_t tokens) const;
  /// A sequence is to get the blocks [from, to), and its first `units` hash units are to be computed now. Returns the first of
  /// these blocks that needs a slot. In a recurrent group that is the block of the last of these units, because the states of
  /// the blocks before it are not kept. In other groups it is `from`.
  [[nodiscard]] std::uint32_t first_new(std::uint32_t from, std::uint32_t to, std::uint32_t units) const {
    if (config_.kind != GroupKind::recurrent) return from;
    const std::uint32_t last = blocks_for(units) > 0 ? blocks_for(units) - 1 : 0;
    return std::clamp(last, from, to);
  }

 private:
  GroupConfig config_;
  std::uint32_t units_per_block_ = 1;
};

/// On what boundary a hit may end: the least common multiple, in units, of the required groups' blocks.
[[nodiscard]] std::uint32_t hit_alignment(std::span<const GroupRule> rules);

/// The longest hit, in units and at most `limit`, that every required group can serve, on a common boundary. `there` answers
///
///     std::uint32_t chain(std::size_t group, std::uint32_t blocks)  leading blocks that a chained group has, of so many at most
///     bool has(std::size_t group, std::uint32_t block)              whether another group has this block
///
/// A group shortens the hit to what it can serve; that may be less than another, asked before, could; so all are asked until
/// none shortens it (the fixed point of vLLM's hybrid coordinator). Each block of a group is asked for about once: where one is
/// missing, every boundary whose needs include it is ruled out, and first_needed() only grows.
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
          // A boundary after the missing block needs it too.
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
