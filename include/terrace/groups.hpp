#pragma once

#include "terrace/export.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace terrace {

/// The kind of attention of a group: to which tokens a token attends. It decides which blocks a sequence still needs.
enum class GroupKind : std::uint8_t {
  full,            ///< all tokens before it
  sliding_window,  ///< the last `span_tokens` tokens, including itself
  chunked_local,   ///< the tokens before it in its chunk of `span_tokens` tokens
  recurrent,       ///< a state, as in Mamba: a block holds the state after its last token, and only the last block is needed
  cross,           ///< the tokens of an encoder; each request computes its own blocks, which are not shared
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

/// A KV cache group: layers that share a block table.
struct GroupConfig {
  GroupKind kind = GroupKind::full;
  /// The number of tokens in one block. For cross attention these are tokens of the encoder.
  std::uint32_t block_tokens = 1;
  /// The window of sliding_window or the chunk of chunked_local, in tokens; 0 for the other kinds.
  std::uint32_t span_tokens = 0;
  /// If true, the group never shortens a hit. This is for the layers of a draft model. If such a group lacks blocks of a hit, the
  /// request continues without these blocks.
  bool optional = false;
  /// The pool of the group's blocks. Groups whose blocks have the same size in bytes share a pool.
  PoolId pool{};
};

/// Returns the hash unit of the groups: the greatest common divisor of the block sizes of all groups that are cached, or
/// `wanted` if that is not 0 and divides it (CacheSystemOptions::hash_unit_tokens). Throws std::invalid_argument if `wanted` does
/// not divide it, if no group is cached, or if a block has no tokens.
[[nodiscard]] TERRACE_API std::uint32_t hash_unit(std::span<const GroupConfig> groups, std::uint32_t wanted = 0);

/// Returns the key under which a group keeps a block. Pools and stores hold blocks of several groups, so this key also names the
/// group. In group 0 it is the block's own key. A second call with the same group returns the block's own key again. (Two digests
/// never differ only in the two bytes that the group changes.)
[[nodiscard]] TERRACE_API BlockKey key_in_group(const BlockKey& key, GroupId group);

}  // namespace terrace
