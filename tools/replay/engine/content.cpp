#include "tools/replay/engine/content.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace terrace::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "content is written a word at a time");

/// Words handled at a time: whole cache lines, and a constant number, so that the compiler uses vector instructions.
constexpr std::size_t chunk_words = 32;
constexpr std::size_t chunk_bytes = chunk_words * sizeof(std::uint64_t);
using Chunk = std::array<std::uint64_t, chunk_words>;

class Words {
 public:
  explicit Words(const BlockKey& key) {
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

}  // namespace

void fill_content(std::span<std::byte> part, const BlockKey& key, std::size_t offset) {
  TERRACE_CHECK(offset % sizeof(std::uint64_t) == 0);
  const Words words{key};
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
  const Words words{key};
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

}  // namespace terrace::tools
