#include "terrace/keys.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace terrace {
namespace {

/// The largest token number. It fits a signed number, because offsets relative to a block are signed.
constexpr auto token_max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

constexpr ExtraKind extra_kind(ItemKind kind) { return kind == ItemKind::media ? ExtraKind::media : ExtraKind::embedding_item; }

}  // namespace

bool PromptItems::Item::operator<(const Item& other) const {
  return std::tie(begin, kind, digest) < std::tie(other.begin, other.kind, other.digest);
}

Result<void> PromptItems::add(std::span<const PromptItem> items) {
  for (const PromptItem& item : items) {
    if (item.offset < position_) return Errc::invalid_argument;
    if (item.length == 0 || item.digest.empty()) return Errc::invalid_argument;
    if (item.offset > token_max || item.length > token_max - item.offset) return Errc::invalid_argument;
  }
  if (items.empty()) return {};
  const auto sorted_size = static_cast<std::ptrdiff_t>(items_.size());
  for (const PromptItem& item : items) {
    items_.push_back({item.kind, item.offset, item.offset + item.length, {item.digest.begin(), item.digest.end()}, 0});
  }
  const auto added = items_.begin() + sorted_size;
  std::sort(added, items_.end());
  // No item below next_ moves: these items begin before position_, and the added items do not.
  const auto changed = std::upper_bound(items_.begin() + static_cast<std::ptrdiff_t>(next_), added, *added);
  std::inplace_merge(changed, added, items_.end());

  std::uint64_t reach = changed == items_.begin() ? 0 : std::prev(changed)->media_reach;
  for (auto at = changed; at != items_.end(); ++at) {
    if (at->kind == ItemKind::media) reach = std::max(reach, at->end);
    at->media_reach = reach;
  }
  return {};
}

std::span<const ExtraKey> PromptItems::next_block(std::uint32_t tokens) {
  const std::uint64_t begin = position_;
  position_ += tokens;
  while (next_ < items_.size() && items_[next_].begin < position_) open_.push_back(next_++);
  overlaps_.clear();
  for (const std::size_t index : open_) {
    const Item& item = items_[index];
    overlaps_.push_back(
        {extra_kind(item.kind), item.digest, static_cast<std::int64_t>(item.begin) - static_cast<std::int64_t>(begin)});
  }
  std::erase_if(open_, [&](std::size_t index) { return items_[index].end <= position_; });
  return overlaps_;
}

std::optional<PromptItem> PromptItems::media_across(std::uint64_t token) const {
  // The first item whose media_reach is greater than `token` is the first media item that continues at this token.
  const auto found = std::upper_bound(items_.begin(), items_.end(), token,
                                      [](std::uint64_t at, const Item& item) { return at < item.media_reach; });
  if (found == items_.end() || found->begin >= token) return std::nullopt;
  return PromptItem{found->kind, found->begin, found->end - found->begin, found->digest};
}

void PromptItems::check_invariants() const {
  TERRACE_CHECK(std::ranges::is_sorted(items_, [](const Item& a, const Item& b) { return a < b; }));
  std::uint64_t reach = 0;
  for (const Item& item : items_) {
    TERRACE_CHECK(item.begin < item.end);
    if (item.kind == ItemKind::media) reach = std::max(reach, item.end);
    TERRACE_CHECK(item.media_reach == reach);
  }
  TERRACE_CHECK(next_ <= items_.size());
  TERRACE_CHECK(next_ == 0 || items_[next_ - 1].begin < position_);
  TERRACE_CHECK(next_ == items_.size() || items_[next_].begin >= position_);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < next_; ++i) {
    if (items_[i].end > position_) open.push_back(i);
  }
  TERRACE_CHECK(open == open_);
}

}  // namespace terrace
