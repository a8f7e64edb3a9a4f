#include "radix/tree/flat_index.hpp"

#include "base/check.hpp"

#include <utility>

namespace terrace {
namespace {

constexpr Copy absent;

}  // namespace

// ---- the table ---------------------------------------------------------------------------------------------------------------

std::optional<NodeId> FlatIndex::find(const BlockKey& key) const {
  const Bucket found = table_.find(hash(key), [&](Bucket bucket) {
    return bucket == Bucket{key, bucket.row()} && rows_[bucket.row()].key == key;
  });
  return found.empty() ? std::nullopt : std::optional{NodeId{found.row()}};
}

NodeId FlatIndex::add(const BlockKey& key, TenantId tenant) {
  if (const std::optional<NodeId> there = find(key)) return *there;
  std::uint32_t number = free_;
  if (number == none) {
    number = static_cast<std::uint32_t>(rows_.size());
    TERRACE_CHECK(number < (1U << row_bits) - 1);  // the word of an empty bucket has no row
    rows_.push_back({});
  } else {
    free_ = rows_[number].next;
    rows_[number] = {};
  }
  Row& row = rows_[number];
  row.key = key;
  row.tenant = tenant_index(tenant);
  row.live = 1;
  table_.insert({key, number}, hash_of());
  ++blocks_;
  return NodeId{number};
}

/// Tenants beyond the first 65,535 count as no tenant.
std::uint16_t FlatIndex::tenant_index(TenantId tenant) {
  if (tenant == TenantId{}) return 0;
  const auto found = tenant_indices_.find(tenant);
  if (found != tenant_indices_.end()) return found->second;
  if (tenants_.size() > std::numeric_limits<std::uint16_t>::max()) return 0;
  const auto number = static_cast<std::uint16_t>(tenants_.size());
  tenants_.push_back(tenant);
  tenant_indices_.emplace(tenant, number);
  return number;
}

// ---- copies and pins ---------------------------------------------------------------------------------------------------------

const Copy* FlatIndex::copies(NodeId block, Tier tier) const {
  return tier == Tier::device ? &absent : &rows_[block.value()].copies[index(tier) - 1];
}

void FlatIndex::set_copy(NodeId block, Tier tier, Copy copy) {
  TERRACE_CHECK(tier != Tier::device);
  Row& now = row(block);
  Copy& place = now.copies[index(tier) - 1];
  const bool was = place.present();
  place = copy;
  if (was != copy.present()) {
    resident_[index(tier)] += copy.present() ? 1U : ~std::uint64_t{0};
    if (tier == Tier::host && now.pins > 0) pinned_resident_ += copy.present() ? 1U : ~std::uint64_t{0};
  }
  if (tier == Tier::host) refresh(block);
  leave_if_empty(block);
}

void FlatIndex::pin(NodeId block) {
  Row& now = row(block);
  TERRACE_CHECK(now.pins < pins_max);
  if (now.pins == 0 && now.copies[0].present()) ++pinned_resident_;
  now.pins = (now.pins + 1) & pins_max;
  refresh(block);
}

void FlatIndex::unpin(NodeId block) {
  Row& now = row(block);
  TERRACE_CHECK(now.pins > 0);
  now.pins = (now.pins - 1) & pins_max;
  if (now.pins > 0) return;
  if (now.copies[0].present()) --pinned_resident_;
  refresh(block);
  leave_if_empty(block);
}

void FlatIndex::leave_if_empty(NodeId block) {
  Row& now = row(block);
  if (now.pins > 0 || now.copies[0].present() || now.copies[1].present()) return;
  if (now.hidden != 0) --hidden_;
  else table_.erase({now.key, block.value()}, hash_of());
  now.live = 0;
  now.next = std::exchange(free_, block.value());
  --blocks_;
}

// ---- the order of eviction ---------------------------------------------------------------------------------------------------

/// Adds the block to the order of eviction as the newest, or removes it.
void FlatIndex::refresh(NodeId block) {
  const Row& now = row(block);
  const bool evictable = now.pins == 0 && now.copies[0].state() == CopyState::ready;
  if (evictable && now.listed == 0) list(block);
  if (!evictable && now.listed != 0) unlist(block);
}

void FlatIndex::list(NodeId block) {
  Row& now = row(block);
  now.listed = 1;
  now.next = none;
  now.previous = newest_;
  (newest_ == none ? oldest_ : rows_[newest_].next) = block.value();
  newest_ = block.value();
}

void FlatIndex::unlist(NodeId block) {
  Row& now = row(block);
  (now.previous == none ? oldest_ : rows_[now.previous].next) = now.next;
  (now.next == none ? newest_ : rows_[now.next].previous) = now.previous;
  now.next = now.previous = none;
  now.listed = 0;
}

void FlatIndex::touch(NodeId block, std::uint64_t stamp) {
  if (stamp <= last_use(block)) return;
  Row& now = row(block);
  now.last_use_low = static_cast<std::uint32_t>(stamp);
  now.last_use_high = static_cast<std::uint32_t>(stamp >> 32U) & 0xFFU;
  if (now.listed == 0) return;
  unlist(block);
  list(block);
}

std::uint64_t FlatIndex::last_use(NodeId block) const {
  const Row& now = rows_[block.value()];
  return std::uint64_t{now.last_use_high} << 32U | now.last_use_low;
}

std::optional<NodeId> FlatIndex::victim() const {
  if (oldest_ == none) return std::nullopt;
  return NodeId{oldest_};
}

void FlatIndex::hide_all() {
  for (std::uint32_t number = 0; number < rows_.size(); ++number) {
    Row& now = rows_[number];
    if (now.live == 0 || now.hidden != 0) continue;
    now.hidden = 1;
    ++hidden_;
  }
  table_.clear();
  // A block without copies and pins has been removed before.
}

// ---- checks ------------------------------------------------------------------------------------------------------------------

std::size_t FlatIndex::bytes_held() const {
  return rows_.bytes_held() + table_.bytes_held() + tenants_.capacity() * sizeof(TenantId);
}

void FlatIndex::check_invariants() const {
  std::uint64_t blocks = 0;
  std::uint64_t hidden = 0;
  std::uint64_t pinned = 0;
  std::uint64_t listed = 0;
  std::array<std::uint64_t, tier_count> resident{};
  for (std::uint32_t number = 0; number < rows_.size(); ++number) {
    const Row& now = rows_[number];
    if (now.live == 0) continue;
    ++blocks;
    hidden += now.hidden;
    TERRACE_CHECK(now.pins > 0 || now.copies[0].present() || now.copies[1].present());
    for (const Tier tier : {Tier::host, Tier::storage}) resident[index(tier)] += now.copies[index(tier) - 1].present() ? 1 : 0;
    if (now.pins > 0 && now.copies[0].present()) ++pinned;
    const bool evictable = now.pins == 0 && now.copies[0].state() == CopyState::ready;
    TERRACE_CHECK((now.listed != 0) == evictable);
    listed += now.listed;
    if (now.hidden == 0) TERRACE_CHECK(find(now.key) == NodeId{number});
  }
  TERRACE_CHECK(blocks == blocks_ && hidden == hidden_ && pinned == pinned_resident_ && resident == resident_);
  TERRACE_CHECK(table_.size() == blocks_ - hidden_);
  std::uint32_t before = none;
  for (std::uint32_t at = oldest_; at != none; before = at, at = rows_[at].next) {
    TERRACE_CHECK(rows_[at].previous == before && listed-- > 0);
  }
  TERRACE_CHECK(before == newest_ && listed == 0);
}

}  // namespace terrace
