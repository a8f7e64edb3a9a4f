#include "radix/eviction/leaf_heaps.hpp"

#include "base/check.hpp"

#include <iterator>

namespace terrace {
namespace {

/// The largest number of newer leaves with which a leaf still goes to the list. Concurrent requests end in a different order than
/// they began.
constexpr int newer_max = 8;

}  // namespace

void LeafHeaps::set(std::size_t line, TenantIndex tenant, const LeafAge& age) {
  const auto order = static_cast<std::uint32_t>(tenant * lines_ + line);
  if (order >= orders_.size()) make_order(order);
  where_.extend_to(std::size_t{age.node.value()} + 1);
  Place& place = where_[age.node.value()];
  if (place.order == none) {
    ++size_;
  } else if (place.order == order && stays_in_place(place, age)) {
    place.rank = age.rank;
    place.depth = age.depth;
    return refresh_top(order);
  } else {
    take_out(place, age.node);
  }
  insert(order, age);
  refresh_top(order);
}

/// Returns true if a leaf of the list keeps its neighbours with this age.
bool LeafHeaps::stays_in_place(const Place& place, const LeafAge& age) const {
  return place.newer != in_others && age.priority() == usual_priority && (place.older == none || age_of(place.older) < age) &&
         (place.newer == none || age < age_of(place.newer));
}

void LeafHeaps::erase(NodeId node) {
  if (node.value() >= where_.size() || where_[node.value()].order == none) return;
  take_out(where_[node.value()], node);
  where_[node.value()].order = none;
  --size_;
}

/// Inserts the leaf into the list at the position of its age if only few leaves are newer, otherwise into the set.
void LeafHeaps::insert(std::uint32_t order, const LeafAge& age) {
  Order& into = orders_[order];
  Place& place = where_[age.node.value()];
  place = {.rank = age.rank, .depth = age.depth, .order = order, .newer = none, .older = into.newest};
  // Leaves of another priority go to the set: in the list they would stay at an end for a long time.
  int newer = age.priority() != usual_priority ? newer_max + 1 : 0;
  while (newer <= newer_max && place.older != none && age < age_of(place.older)) {
    place.newer = place.older;
    place.older = where_[place.older].older;
    ++newer;
  }
  if (newer > newer_max) {
    place.newer = in_others;
    into.others.insert(age);
    return;
  }
  (place.newer == none ? into.newest : where_[place.newer].older) = age.node.value();
  (place.older == none ? into.oldest : where_[place.older].newer) = age.node.value();
}

/// Removes a leaf from its list or set. `place` keeps its values.
void LeafHeaps::take_out(const Place& place, NodeId node) {
  Order& from = orders_[place.order];
  if (place.newer == in_others) {
    from.others.erase(age_of(node.value()));
  } else {
    (place.newer == none ? from.newest : where_[place.newer].older) = place.older;
    (place.older == none ? from.oldest : where_[place.older].newer) = place.newer;
  }
  refresh_top(place.order);
}

/// Adds orders for all lines of all tenants up to the tenant of this order. When the second tenant is added, the oldest leaves of
/// the first tenant are recorded, too.
void LeafHeaps::make_order(std::uint32_t order) {
  const bool is_first = !has_tenants();
  make_orders((order / lines_ + 1) * lines_);
  if (!is_first) return;
  for (std::uint32_t line = 0; line < lines_; ++line) refresh_top(line);
}

void LeafHeaps::refresh_top(std::uint32_t order) {
  if (!has_tenants()) return;
  IndexedHeap<LeafAge>& tops = tops_[order % lines_];
  const auto tenant = static_cast<std::uint32_t>(order / lines_);
  if (const std::optional<LeafAge> oldest = oldest_of(orders_[order])) {
    tops.set(tenant, *oldest);
  } else {
    tops.erase(tenant);
  }
}

std::optional<LeafAge> LeafHeaps::oldest_of(const Order& order) const {
  if (order.oldest == none && order.others.empty()) return std::nullopt;
  if (order.oldest == none) return *order.others.begin();
  const LeafAge listed = age_of(order.oldest);
  return order.others.empty() || listed < *order.others.begin() ? listed : *order.others.begin();
}

std::optional<LeafAge> LeafHeaps::newest_of(const Order& order, Priority priority) const {
  std::optional<LeafAge> newest;
  if (priority == usual_priority && order.newest != none) newest = age_of(order.newest);
  if (order.others.empty()) return newest;
  const auto after = order.others.upper_bound(LeafAge::last_of(priority));
  if (after == order.others.begin()) return newest;
  const LeafAge& other = *std::prev(after);
  return other.priority() == priority && (!newest || *newest < other) ? std::optional{other} : newest;
}

std::optional<LeafAge> LeafHeaps::newest(std::size_t line, Priority priority) const {
  std::optional<LeafAge> newest;
  for (std::size_t order = line; order < orders_.size(); order += lines_) {
    const std::optional<LeafAge> leaf = newest_of(orders_[order], priority);
    if (leaf && (!newest || *newest < *leaf)) newest = leaf;
  }
  return newest;
}

std::optional<LeafAge> LeafHeaps::newest(std::size_t line, Priority priority, TenantIndex tenant) const {
  const std::size_t order = tenant * lines_ + line;
  return order >= orders_.size() ? std::nullopt : newest_of(orders_[order], priority);
}

std::optional<std::size_t> LeafHeaps::line_of(NodeId node) const {
  if (node.value() >= where_.size() || where_[node.value()].order == none) return std::nullopt;
  return where_[node.value()].order % lines_;
}

std::optional<LeafAge> LeafHeaps::oldest(std::size_t line) const {
  if (!has_tenants()) return oldest(line, other_tenants);
  if (tops_[line].empty()) return std::nullopt;
  return tops_[line].top().priority;
}

std::optional<LeafAge> LeafHeaps::oldest(std::size_t line, TenantIndex tenant) const {
  const std::size_t order = tenant * lines_ + line;
  return order >= orders_.size() ? std::nullopt : oldest_of(orders_[order]);
}

std::size_t LeafHeaps::bytes_held() const {
  std::size_t bytes = orders_.capacity() * sizeof(Order) + where_.bytes_held();
  // A node of a set has a leaf, three links and a colour.
  for (const Order& order : orders_) bytes += order.others.size() * (sizeof(LeafAge) + 4 * sizeof(void*));
  for (const auto& tops : tops_) bytes += tops.bytes_held();
  return bytes;
}

void LeafHeaps::check_invariants() const {
  std::size_t all = 0;
  for (std::uint32_t number = 0; number < orders_.size(); ++number) {
    const Order& order = orders_[number];
    all += order.others.size();
    for (const LeafAge& leaf : order.others) {
      const Place& place = where_[leaf.node.value()];
      TERRACE_CHECK(place.order == number && place.newer == in_others && place.rank == leaf.rank && place.depth == leaf.depth);
    }
    std::uint32_t older = none;
    for (std::uint32_t node = order.oldest; node != none; older = node, node = where_[node].newer) {
      TERRACE_CHECK(where_[node].order == number && where_[node].newer != in_others && where_[node].older == older);
      TERRACE_CHECK(older == none || age_of(older) < age_of(node));
      ++all;
    }
    TERRACE_CHECK(order.newest == older);
    if (!has_tenants()) continue;
    const auto& tops = tops_[number % lines_];
    const auto tenant = static_cast<std::uint32_t>(number / lines_);
    const std::optional<LeafAge> oldest = oldest_of(order);
    TERRACE_CHECK(tops.contains(tenant) == oldest.has_value());
    if (oldest) TERRACE_CHECK(tops.priority(tenant).node == oldest->node);
  }
  TERRACE_CHECK(all == size_);
  for (const auto& tops : tops_) tops.check_invariants();
}

}  // namespace terrace
