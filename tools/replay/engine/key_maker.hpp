#pragma once

#include "base/check.hpp"
#include "terrace/keys.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <bit>
#include <cstddef>
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
  [[nodiscard]] std::vector<BlockKey> keys(std::span<const std::uint64_t> hash_ids) {
    std::vector<BlockKey> made;
    made.reserve(hash_ids.size());
    BlockKey parent = root_;
    for (const std::uint64_t id : hash_ids) {
      const auto [at, is_new] = known_.try_emplace(id);
      Known& known = at->second;
      if (is_new || known.parent != parent) known = {parent, make_key(parent, std::as_bytes(std::span{&id, 1}))};
      made.push_back(known.key);
      parent = known.key;
    }
    return made;
  }
  /// Extends `keys` to `blocks` entries by keys for content that only this request has: its own output. The same call always
  /// gives the same keys.
  void append_own(std::vector<BlockKey>& keys, std::uint64_t request, std::size_t blocks) const {
    while (keys.size() < blocks) {
      // This name is longer than a hash id, so it differs from the names of all other blocks.
      const std::array<std::uint64_t, 2> name{request, keys.size()};
      keys.push_back(make_key(keys.empty() ? root_ : keys.back(), std::as_bytes(std::span{name})));
    }
  }

 private:
  [[nodiscard]] static BlockKey make_key(const BlockKey& parent, std::span<const std::byte> name) {
    // A chain may begin at any key, because the next key depends on nothing else.
    KeyChain chain{parent, 1};
    TERRACE_CHECK(chain.append_opaque(name).has_value());
    return chain.keys().front();
  }

  static_assert(std::endian::native == std::endian::little, "names are encoded little-endian");

  struct Known {
    BlockKey parent;
    BlockKey key;
  };

  BlockKey root_;
  boost::unordered_flat_map<std::uint64_t, Known> known_;
};

}  // namespace terrace::tools
