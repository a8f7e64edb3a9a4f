#include "terrace/keys.hpp"

#include "base/check.hpp"

#include <numeric>
#include <stdexcept>
#include <string>

namespace terrace {

std::uint32_t hash_unit(std::span<const std::uint32_t> block_tokens) {
  if (block_tokens.empty()) throw std::invalid_argument{"a hash unit needs at least one group"};
  std::uint32_t unit = 0;
  for (const std::uint32_t tokens : block_tokens) {
    if (tokens == 0) throw std::invalid_argument{"a group's blocks must have at least one token"};
    unit = std::gcd(unit, tokens);
  }
  return unit;
}

GroupKeys::GroupKeys(std::uint32_t unit_tokens, std::uint32_t block_tokens) {
  if (unit_tokens == 0 || block_tokens == 0 || block_tokens % unit_tokens != 0) {
    std::string text{"a group's block of "};
    text.append(std::to_string(block_tokens)).append(" tokens is not a whole number of hash units of ");
    throw std::invalid_argument{text.append(std::to_string(unit_tokens)).append(" tokens")};
  }
  units_per_block_ = block_tokens / unit_tokens;
}

const BlockKey& GroupKeys::key(std::span<const BlockKey> chain, std::size_t block) const {
  TERRACE_CHECK(block < blocks(chain.size()));
  return chain[units(block + 1) - 1];
}

}  // namespace terrace
