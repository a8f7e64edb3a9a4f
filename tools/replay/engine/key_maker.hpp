#pragma once

#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace terrace::tools {

/// Turns the hash ids of a trace into block keys. Each id is the opaque name of its block, and its key is chained to the key
/// before it. The maker keeps each id's key with the parent for which it was made, because an id nearly always comes with the
/// same parent. If the parent differs, it makes a new key, so that a trace with colliding ids cannot mix up two prefixes.
/// Threads: one.
class KeyMaker {
 public:
  explicit KeyMaker(const BlockKey& root) : root_{root} {}

  [[nodiscard]] const BlockKey& root() const { return root_; }
  [[nodiscard]] std::vector<BlockKey> keys(std::span<const std::uint64_t> hash_ids);
  /// Extends `keys` to `blocks` entries by keys for content that only this request has: its own output. The same call always
  /// gives the same keys.
  void append_own(std::vector<BlockKey>& keys, std::uint64_t request, std::size_t blocks) const;

 private:
  struct Known {
    BlockKey parent;
    BlockKey key;
  };

  BlockKey root_;
  boost::unordered_flat_map<std::uint64_t, Known> known_;
};

}  // namespace terrace::tools
