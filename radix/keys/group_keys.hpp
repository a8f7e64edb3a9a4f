#pragma once

#include "base/block_key.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// Returns the hash unit of groups whose blocks have these numbers of tokens: their greatest common divisor. Throws
/// std::invalid_argument if there is no group, or if a number is 0.
[[nodiscard]] std::uint32_t hash_unit(std::span<const std::uint32_t> block_tokens);

/// Finds the keys of one group's blocks in a chain of keys that was made in hash units. So a prompt is hashed only once, whatever
/// block sizes the groups have. The key of a block is the key of its last unit, because that key names everything before it, too.
/// It does not name the group: blocks of different groups are told apart by where they are kept, or by key_in_group().
///
/// A plain value. Threads: any.
class GroupKeys {
 public:
  /// Throws std::invalid_argument, with both numbers in its text, if a block is not a whole number of units.
  GroupKeys(std::uint32_t unit_tokens, std::uint32_t block_tokens);

  [[nodiscard]] std::uint32_t units_per_block() const { return units_per_block_; }
  /// Returns the number of full blocks in `units` units. Units of an incomplete block do not count.
  [[nodiscard]] std::size_t blocks(std::size_t units) const { return units / units_per_block_; }
  /// Returns the number of units in `blocks` blocks.
  [[nodiscard]] std::size_t units(std::size_t blocks) const { return blocks * units_per_block_; }
  /// Returns the key of a full block. `chain` has the keys of the units. `block` must be less than blocks(chain.size()).
  [[nodiscard]] const BlockKey& key(std::span<const BlockKey> chain, std::size_t block) const;

 private:
  std::uint32_t units_per_block_;
};

}  // namespace terrace
