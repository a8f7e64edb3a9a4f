#pragma once

#include "base/block_key.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// The hash unit for groups whose blocks have so many tokens each: the longest run of tokens of which every block is a whole
/// number. Throws std::invalid_argument where there is no group, or a block without tokens.
[[nodiscard]] std::uint32_t hash_unit(std::span<const std::uint32_t> block_tokens);

/// How a group's blocks follow from a chain that is made in hash units, so that a prompt is hashed once whatever the groups'
/// block sizes: a block's key is that of its last unit, which names all that comes before it too. It is the key of that unit,
/// and not of another message: the groups are told apart by where their blocks are kept, not by keys.
class GroupKeys {
 public:
  /// Throws std::invalid_argument, with both numbers, where a block is not a whole number of units.
  GroupKeys(std::uint32_t unit_tokens, std::uint32_t block_tokens);

  [[nodiscard]] std::uint32_t units_per_block() const { return units_per_block_; }
  /// Full blocks in so many units; units of an unfinished block do not count.
  [[nodiscard]] std::size_t blocks(std::size_t units) const { return units / units_per_block_; }
  /// Units that so many blocks cover.
  [[nodiscard]] std::size_t units(std::size_t blocks) const { return blocks * units_per_block_; }
  /// The key of a full block. `block` must be less than blocks(chain.size()).
  [[nodiscard]] const BlockKey& key(std::span<const BlockKey> chain, std::size_t block) const;

 private:
  std::uint32_t units_per_block_;
};

}  // namespace terrace
