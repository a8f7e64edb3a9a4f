#include "tools/replay/engine/verifier.hpp"

#include "base/check.hpp"
#include "radix/groups/groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
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

static_assert(std::endian::native == std::endian::little, "content is written a word at a time");

/// Words handled at a time: whole cache lines, and a constant number, so that the compiler uses vector instructions.
constexpr std::size_t chunk_words = 32;
constexpr std::size_t chunk_bytes = chunk_words * sizeof(std::uint64_t);
using Chunk = std::array<std::uint64_t, chunk_words>;

class ContentWords {
 public:
  explicit ContentWords(const BlockKey& key) {
    std::memcpy(&first_, key.bytes.data(), sizeof first_);
    std::memcpy(&step_, key.bytes.data() + sizeof first_, sizeof step_);
    step_ |= 1;
  }

  [[nodiscard]] Chunk chunk(std::size_t first_word) const {
    const std::uint64_t base = first_ + first_word * step_;
    Chunk words;
    for (std::size_t i = 0; i < chunk_words; ++i) words[i] = base + i * step_;
    return words;
  }

 private:
  std::uint64_t first_ = 0;
  std::uint64_t step_ = 0;
};

std::size_t differing_byte(const Chunk& expected, std::span<const std::byte> found) {
  const auto want = std::as_bytes(std::span{expected});
  return static_cast<std::size_t>(std::mismatch(found.begin(), found.end(), want.begin()).first - found.begin());
}

constexpr std::uint64_t sample_every = 16;

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

void fill_content(std::span<std::byte> part, const BlockKey& key, std::size_t offset) {
  TERRACE_CHECK(offset % sizeof(std::uint64_t) == 0);
  const ContentWords words{key};
  std::size_t word = offset / sizeof(std::uint64_t);
  for (; part.size() >= chunk_bytes; part = part.subspan(chunk_bytes), word += chunk_words) {
    const Chunk chunk = words.chunk(word);
    std::memcpy(part.data(), chunk.data(), chunk_bytes);
  }
  const Chunk last = words.chunk(word);
  std::memcpy(part.data(), last.data(), part.size());
}

std::optional<std::size_t> first_difference(std::span<const std::byte> part, const BlockKey& key, std::size_t offset) {
  TERRACE_CHECK(offset % sizeof(std::uint64_t) == 0);
  const ContentWords words{key};
  for (std::size_t at = 0; at < part.size(); at += chunk_bytes) {
    const Chunk expected = words.chunk((offset + at) / sizeof(std::uint64_t));
    const auto found = part.subspan(at, std::min(chunk_bytes, part.size() - at));
    if (found.size() == chunk_bytes) {
      Chunk there;
      std::memcpy(there.data(), found.data(), chunk_bytes);
      std::uint64_t difference = 0;
      for (std::size_t i = 0; i < chunk_words; ++i) difference |= there[i] ^ expected[i];
      if (difference == 0) continue;
    }
    const std::size_t byte = differing_byte(expected, found);
    if (byte < found.size()) return offset + at + byte;
  }
  return std::nullopt;
}

std::string describe(const Mismatch& mismatch) {
  return fmt::format("request {}, block {}, key {}, found in {}, slot {}, byte {}", mismatch.request, mismatch.block,
                     to_hex(mismatch.key).substr(0, 16), to_string(mismatch.found_in), mismatch.slot.value(), mismatch.byte);
}

std::size_t BlockShape::offset_of(std::uint32_t token) const {
  if (token >= tokens) return count(bytes);
  constexpr std::uint64_t word = sizeof(std::uint64_t);
  return count(bytes) * token / tokens / word * word;
}

Verifier::Verifier(Verify verify, std::vector<BlockShape> shapes) : verify_{verify}, shapes_{std::move(shapes)} {
  Bytes largest{};
  for (const BlockShape& shape : shapes_) largest = std::max(largest, shape.bytes);
  scratch_.resize(count(largest));
}

void Verifier::run(ComputeBatch& batch, BlockAccess& access) {
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  for (ComputeBatch::Hits& hits : batch.hits) compare(hits, access);
  const auto compared = std::chrono::steady_clock::now();
  for (const ComputeBatch::Part& part : batch.parts) write(part, access);
  const std::lock_guard lock{mutex_};
  totals_.verify_seconds += Seconds{compared - begin}.count();
  totals_.content_seconds += Seconds{std::chrono::steady_clock::now() - compared}.count();
}

void Verifier::compare(ComputeBatch::Hits& hits, BlockAccess& access) {
  const BlockShape& shape = shapes_[hits.group.value()];
  const std::span<std::byte> scratch = std::span{scratch_}.first(count(shape.bytes));
  std::uint64_t blocks = 0;
  for (std::size_t i = 0; i < hits.blocks.size(); ++i) {
    if (!chosen()) continue;
    ++blocks;
    const ComputeBatch::HitBlock& block = hits.blocks[i];
    std::span<const std::byte> bytes = access.read(hits.pool, block.slot, scratch);
    std::size_t begin = 0;
    if (hits.layers) {
      const std::size_t layer = bytes.size() / shape.layers;
      begin = hits.layers->first * layer;
      bytes = bytes.subspan(begin, hits.layers->count * layer);
    }
    const auto byte = first_difference(bytes, block.key, count(shape.begin) + begin);
    if (!byte) continue;
    const std::lock_guard lock{mutex_};
    if (++totals_.mismatches == 1)
      totals_.first_mismatch = Mismatch{hits.request, hits.first + i, block.key, block.found_in, block.slot, *byte};
  }
  hits.compared = blocks * hits.units;
  const std::lock_guard lock{mutex_};
  totals_.compared += hits.compared;
  if (hits.layers) totals_.layered_blocks += blocks;
  else if (hits.units == 0) totals_.group_blocks += blocks;
}

void Verifier::write(const ComputeBatch::Part& part, BlockAccess& access) {
  const BlockShape& shape = shapes_[part.group.value()];
  const std::span<std::byte> scratch = std::span{scratch_}.first(count(shape.bytes));
  const std::size_t begin = shape.offset_of(part.from);
  const std::size_t end = shape.offset_of(part.to);
  if (begin == end) return;
  // The bytes of the block's other tokens must stay. If the device's memory is not directly accessible, the block is read first.
  const bool whole = begin == 0 && end == scratch.size();
  if (!whole) (void)access.read(part.pool, part.slot, scratch);
  const std::span<std::byte> target = access.write_target(part.pool, part.slot, scratch);
  fill_content(target.subspan(begin, end - begin), part.key, count(shape.begin) + begin);
  access.written(part.pool, part.slot, scratch);
}

bool Verifier::chosen() {
  if (verify_ == Verify::none) return false;
  return verify_ == Verify::all || hits_++ % sample_every == 0;
}

VerifierTotals Verifier::totals() const {
  const std::lock_guard lock{mutex_};
  return totals_;
}

}  // namespace terrace::tools
