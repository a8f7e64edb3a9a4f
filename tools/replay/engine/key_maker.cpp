#include "tools/replay/engine/key_maker.hpp"

#include "base/check.hpp"
#include "terrace/keys.hpp"

#include <array>
#include <bit>

namespace terrace::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "names are encoded little-endian");

BlockKey make_key(const BlockKey& parent, std::span<const std::byte> name) {
  // A chain may begin at any key, because the next key depends on nothing else.
  KeyChain chain{parent, 1};
  TERRACE_CHECK(chain.append_opaque(name).has_value());
  return chain.keys().front();
}

}  // namespace

std::vector<BlockKey> KeyMaker::keys(std::span<const std::uint64_t> hash_ids) {
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

void KeyMaker::append_own(std::vector<BlockKey>& keys, std::uint64_t request, std::size_t blocks) const {
  while (keys.size() < blocks) {
    // This name is longer than a hash id, so it differs from the names of all other blocks.
    const std::array<std::uint64_t, 2> name{request, keys.size()};
    keys.push_back(make_key(keys.empty() ? root_ : keys.back(), std::as_bytes(std::span{name})));
  }
}

}  // namespace terrace::tools
