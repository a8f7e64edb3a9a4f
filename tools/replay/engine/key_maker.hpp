#pragma once

#include "base/block_key.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace terrace::tools {

/// Makes a trace's hash ids into block keys: each id is the opaque name of its block, chained to the key before it. Remembers
/// each id's key and under which parent it was made, since an id nearly always comes with the same one; where it does not, the
/// key is made anew, so that a trace with colliding ids cannot mix up two prefixes. Threads: one.
class KeyMaker {
 public:
  explicit KeyMaker(const BlockKey& root) : root_{root} {}

  [[nodiscard]] const BlockKey& root() const { return root_; }
  [[nodiscard]] std::vector<BlockKey> keys(std::span<const std::uint64_t> hash_ids);
  /// Makes `keys` longer, up to `blocks`, by blocks whose content no other request has: what `request` writes itself. The same
  /// ones whenever it is asked.
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
