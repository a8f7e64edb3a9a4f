#include "tools/replay/engine/compute_batch.hpp"

#include "base/check.hpp"

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

}  // namespace

void ComputeBatch::add_hits(std::uint64_t request, std::span<const BlockKey> keys, std::span<const Source> sources,
                            std::span<const SlotId> table) {
  TERRACE_CHECK(sources.size() <= keys.size());
  TERRACE_CHECK(sources.size() <= table.size());
  if (sources.empty()) return;
  Hits given;
  given.request = request;
  given.blocks.reserve(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) given.blocks.push_back({keys[i], table[i], sources[i]});
  hits.push_back(std::move(given));
}

void ComputeBatch::add_tokens(std::uint64_t request, std::span<const BlockKey> keys, std::span<const SlotId> table,
                              std::uint32_t block_tokens, TokenRange tokens) {
  token_count += tokens.to - tokens.from;
  while (tokens.from < tokens.to) {
    const std::uint64_t block = tokens.from / block_tokens;
    TERRACE_CHECK(block < table.size());
    const std::uint64_t begin = block * block_tokens;
    const std::uint64_t end = std::min(tokens.to, begin + block_tokens);
    const BlockKey& key = block < keys.size() ? keys[block] : private_key(request);
    const auto within = [begin](std::uint64_t token) { return static_cast<std::uint32_t>(token - begin); };
    parts.push_back({key, table[block], within(tokens.from), within(end)});
    tokens.from = end;
  }
}

}  // namespace terrace::tools
