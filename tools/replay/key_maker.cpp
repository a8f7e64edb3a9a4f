#include "tools/replay/key_maker.hpp"

#include "base/check.hpp"
#include "radix/block_keys.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace terrace::tools {
namespace {

BlockKey make_key(const BlockKey& parent, std::uint64_t hash_id) {
  static_assert(std::endian::native == std::endian::little, "ids are encoded little-endian");
  std::array<std::byte, sizeof hash_id> name;
  std::memcpy(name.data(), &hash_id, sizeof hash_id);
  // A chain may begin at any key: the next one depends on nothing else.
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
    if (is_new || known.parent != parent) known = {parent, make_key(parent, id)};
    made.push_back(known.key);
    parent = known.key;
  }
  return made;
}

}  // namespace terrace::tools
