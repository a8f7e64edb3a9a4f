#include "runtime/shared/block_layout.hpp"

#include "base/check.hpp"
#include "terrace/types.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

namespace terrace {
namespace {

std::string groups_of(const CacheSystemOptions& options) {
  std::string text;
  const std::vector<GroupConfig>& groups = options.groups;
  if (groups.size() <= 1 && (groups.empty() || groups.front().kind == GroupKind::full)) return text;
  for (const GroupConfig& group : groups) {
    text += fmt::format("{} {} {} {};", to_string(group.kind), group.block_tokens, group.span_tokens,
                        count(options.pools.at(group.pool.value()).block_bytes));
  }
  return text;
}

std::string parts_of(const RankOptions& rank) {
  std::string text;
  for (std::size_t entry = 0; entry < rank.regions.size(); ++entry) {
    if (rank.regions[entry].empty()) continue;
    text += fmt::format("{}:", entry);
    for (const DeviceRegion& region : rank.regions[entry]) text += fmt::format(" {}/{}", region.layer, region.bytes);
    text += ';';
  }
  return text;
}

/// A message of fields, each with its length.
class Message {
 public:
  explicit Message(std::string scheme) : text_{std::move(scheme)} {}
  Message& add(std::string_view field) {
    for (unsigned shift = 0; shift < 64; shift += 8) text_ += static_cast<char>(std::uint64_t{field.size()} >> shift & 0xFFU);
    text_ += field;
    return *this;
  }
  Message& add(const Digest& digest) { return add({reinterpret_cast<const char*>(digest.data()), digest.size()}); }
  Message& add(const BlockLayout& layout) { return add(std::to_string(layout.shares)).add(layout.groups).add(layout.parts); }
  [[nodiscard]] Digest digest() const {
    Digest digest{};
    unsigned size = 0;
    const int made =
        EVP_Digest(text_.data(), text_.size(), reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha256(), nullptr);
    TERRACE_CHECK(made == 1 && size == digest.size());
    return digest;
  }

 private:
  std::string text_;
};

}  // namespace

BlockLayout layout_of(const CacheSystemOptions& options) {
  BlockLayout layout;
  if (options.rank_payload == RankPayload::sharded) layout.shares = static_cast<std::uint32_t>(options.ranks.size());
  layout.groups = groups_of(options);
  struct Run {
    std::string parts;
    std::size_t ranks = 0;
  };
  std::vector<Run> runs;
  for (const RankOptions& rank : options.ranks) {
    std::string parts = parts_of(rank);
    if (runs.empty() || runs.back().parts != parts) runs.push_back({std::move(parts)});
    ++runs.back().ranks;
  }
  const bool has_parts = std::ranges::any_of(runs, [](const Run& run) { return !run.parts.empty(); });
  for (std::size_t i = 0; has_parts && i < runs.size(); ++i) {
    // If all ranks are alike, `shares` is their number.
    if (runs.size() > 1 && runs[i].ranks > 1) layout.parts += fmt::format("{}*", runs[i].ranks);
    layout.parts += runs[i].parts + "|";
  }
  return layout;
}

Digest file_fingerprint(const Digest& fingerprint, const BlockLayout& layout) {
  return Message{"terrace file store 1"}.add(fingerprint).add(layout).digest();
}

std::string describe(const Digest& fingerprint, const BlockLayout& layout) {
  std::string text =
      fmt::format("fingerprint {}, ranks side by side: {}", to_hex(BlockKey{fingerprint}).substr(0, 16), layout.shares);
  if (!layout.groups.empty()) text += fmt::format(", groups: {}", std::ranges::count(layout.groups, ';'));
  if (!layout.parts.empty()) text += fmt::format(", parts: {}", std::ranges::count(layout.parts, '/'));
  return text;
}

Digest shared_fingerprint(const SharedMeaning& meaning) {
  return Message{"terrace shared store 2"}
      .add(meaning.fingerprint)
      .add(meaning.weights_revision)
      .add(std::to_string(count(meaning.block_bytes)))
      .add(meaning.layout)
      .digest();
}

}  // namespace terrace
