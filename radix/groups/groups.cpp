#include "radix/groups/groups.hpp"

#include "base/check.hpp"
#include "terrace/keys.hpp"

#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace terrace {

std::uint32_t hash_unit(std::span<const GroupConfig> groups, std::uint32_t wanted) {
  std::vector<std::uint32_t> block_tokens;
  for (const GroupConfig& group : groups) {
    if (group.kind != GroupKind::cross) block_tokens.push_back(group.block_tokens);
  }
  const std::uint32_t largest = hash_unit(block_tokens);
  if (wanted == 0) return largest;
  if (largest % wanted == 0) return wanted;
  throw std::invalid_argument{"a hash unit of " + std::to_string(wanted) + " tokens does not divide the blocks of all groups; " +
                              std::to_string(largest) + " tokens and the divisors of " + std::to_string(largest) + " do"};
}

BlockKey key_in_group(const BlockKey& key, GroupId group) {
  BlockKey named = key;
  // Change the bytes by which hash tables find keys.
  named.bytes[0] ^= static_cast<std::byte>(group.value() & 0xFF);
  named.bytes[1] ^= static_cast<std::byte>(group.value() >> 8);
  return named;
}

GroupRule::GroupRule(const GroupConfig& config, std::uint32_t unit_tokens) : config_{config} {
  const bool has_span = config.kind == GroupKind::sliding_window || config.kind == GroupKind::chunked_local;
  const std::string kind{to_string(config.kind)};
  if (config.block_tokens == 0) throw std::invalid_argument{"a group's blocks must have at least one token"};
  if (has_span && config.span_tokens == 0) {
    throw std::invalid_argument{"a " + kind + " group needs span_tokens: how far its tokens look back"};
  }
  if (!has_span && config.span_tokens != 0) {
    throw std::invalid_argument{"a " + kind + " group has no span; its span_tokens must be 0"};
  }
  if (config.kind == GroupKind::chunked_local && config.span_tokens % config.block_tokens != 0) {
    // Otherwise a block would span two chunks, and neither chunk would need the whole block.
    std::string text{"a chunk of "};
    text.append(std::to_string(config.span_tokens)).append(" tokens is not a whole number of blocks of ");
    throw std::invalid_argument{text.append(std::to_string(config.block_tokens))};
  }
  if (config.kind == GroupKind::cross) return;
  units_per_block_ = GroupKeys{unit_tokens, config.block_tokens}.units_per_block();
}

std::uint32_t GroupRule::first_needed(std::uint64_t tokens) const {
  std::uint64_t token = 0;
  switch (config_.kind) {
    case GroupKind::full:
    case GroupKind::cross: return 0;
    case GroupKind::sliding_window:
      // The window ends with the token at position `tokens`.
      token = tokens + 1 > config_.span_tokens ? tokens + 1 - config_.span_tokens : 0;
      break;
    case GroupKind::chunked_local: token = tokens - tokens % config_.span_tokens; break;
    case GroupKind::recurrent: token = tokens > 0 ? tokens - 1 : 0; break;
  }
  return static_cast<std::uint32_t>(token / config_.block_tokens);
}

std::uint32_t hit_alignment(std::span<const GroupRule> rules) {
  std::uint64_t units = 1;
  for (const GroupRule& rule : rules) {
    if (rule.cached() && !rule.config().optional) units = std::lcm(units, std::uint64_t{rule.units_per_block()});
    if (units > std::numeric_limits<std::uint32_t>::max()) {
      throw std::invalid_argument{
          "hits end at common multiples of the blocks of all groups, and these have none under 2^32 hash units"};
    }
  }
  return static_cast<std::uint32_t>(units);
}

}  // namespace terrace
