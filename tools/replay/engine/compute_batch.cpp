#include "tools/replay/engine/compute_batch.hpp"

#include "base/check.hpp"
#include "radix/groups/groups.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace terrace::tools {
namespace {

/// A block that never becomes full has no key, and no other request reads it. So any content that is specific to the request will
/// do.
BlockKey private_key(std::uint64_t request) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &request, sizeof request);
  return key;
}

/// The key of a block of the group: that of its last hash unit.
BlockKey key_of(std::span<const BlockKey> keys, std::size_t block, const BatchGroup& group) {
  return key_in_group(keys[(block + 1) * group.units - 1], group.id);
}

}  // namespace

void ComputeBatch::add_hits(std::uint64_t request, std::span<const BlockKey> keys, std::span<const Source> sources,
                            std::span<const SlotId> table, const BatchGroup& group, std::optional<LayerRange> layers) {
  TERRACE_CHECK(sources.size() <= keys.size());
  const std::size_t blocks = sources.size() / group.units;
  TERRACE_CHECK(blocks <= table.size());
  if (group.first >= blocks || (layers && layers->first >= group.layers)) return;
  if (layers) layers->count = std::min(layers->count, group.layers - layers->first);
  Hits given;
  given.request = request;
  given.group = group.id;
  given.pool = group.pool;
  given.first = group.first;
  given.units = group.counted && !layers ? group.units : 0;
  given.layers = layers;
  given.blocks.reserve(blocks - group.first);
  for (std::size_t block = group.first; block < blocks; ++block) {
    TERRACE_CHECK(table[block] != group.null);
    const auto from = sources.subspan(block * group.units, group.units);
    given.blocks.push_back({key_of(keys, block, group), table[block], *std::ranges::max_element(from)});
  }
  hits.push_back(std::move(given));
}

void ComputeBatch::add_tokens(std::uint64_t request, std::span<const BlockKey> keys, std::span<const SlotId> table,
                              std::uint32_t block_tokens, TokenRange tokens, const BatchGroup& group) {
  if (group.counted) token_count += tokens.to - tokens.from;
  while (tokens.from < tokens.to) {
    const std::uint64_t block = tokens.from / block_tokens;
    TERRACE_CHECK(block < table.size());
    const std::uint64_t begin = block * block_tokens;
    const std::uint64_t end = std::min(tokens.to, begin + block_tokens);
    const BlockKey key = (block + 1) * group.units <= keys.size() ? key_of(keys, block, group) : private_key(request);
    const auto within = [begin](std::uint64_t token) { return static_cast<std::uint32_t>(token - begin); };
    if (table[block] != group.null) {
      parts.push_back({key, table[block], within(tokens.from), within(end), group.id, group.pool});
    }
    tokens.from = end;
  }
}

}  // namespace terrace::tools
