#include "radix/eviction/leaf_heaps.hpp"

#include "base/check.hpp"

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
  } else if (place.order == order && place.newer == none && !(age < age_in_list(age.node.value()))) {
    place.rank = age.rank;  // it was the newest leaf, and still is
    place.depth = age.depth;
    return refresh_top(order);
  } else {
    take_out(place);
  }
  insert(order, age);
  refresh_top(order);
}

void LeafHeaps::erase(NodeId node) {
  if (node.value() >= where_.size() || where_[node.value()].order == none) return;
  take_out(where_[node.value()]);
  where_[node.value()].order = none;
  --size_;
}

/// Inserts the leaf into the list at the position of its age if only few leaves are newer, otherwise into the heap.
void LeafHeaps::insert(std::uint32_t order, const LeafAge& age) {
  Order& into = orders_[order];
  Place& place = where_[age.node.value()];
  place = {.rank = age.rank, .depth = age.depth, .order = order, .newer = none, .older = into.newest};
  // Retained leaves go to the heap: they would stay the newest in the list for a long time, and then other leaves could not be
  // added.
  int newer = age.priority() > usual_priority ? newer_max + 1 : 0;
  while (newer <= newer_max && place.older != none && age < age_in_list(place.older)) {
    place.newer = place.older;
    place.older = where_[place.older].older;
    ++newer;
  }
  if (newer > newer_max) {
    place.newer = in_heap;
    place.older = static_cast<std::uint32_t>(into.heap.size());
    into.heap.push_back(age);
    heap_rise(into.heap, place.older, placed(into));
    return;
  }
  (place.newer == none ? into.newest : where_[place.newer].older) = age.node.value();
  (place.older == none ? into.oldest : where_[place.older].newer) = age.node.value();
}

/// Removes a leaf from its list or heap. `place` keeps its values.
void LeafHeaps::take_out(const Place& place) {
  Order& from = orders_[place.order];
  if (place.newer == in_heap) {
    heap_remove(from.heap, place.older, placed(from));
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
  orders_.resize((order / lines_ + 1) * lines_);
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
  if (order.oldest == none && order.heap.empty()) return std::nullopt;
  if (order.oldest == none) return order.heap.front();
  const LeafAge listed = age_in_list(order.oldest);
  return order.heap.empty() || listed < order.heap.front() ? listed : order.heap.front();
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
  for (const Order& order : orders_) bytes += order.heap.bytes_held();
  for (const auto& tops : tops_) bytes += tops.bytes_held();
  return bytes;
}

void LeafHeaps::check_invariants() const {
  std::size_t all = 0;
  for (std::uint32_t number = 0; number < orders_.size(); ++number) {
    const Order& order = orders_[number];
    TERRACE_CHECK(is_heap_in_order(order.heap));
    all += order.heap.size();
    for (std::uint32_t at = 0; at < order.heap.size(); ++at) {
      const Place& place = where_[order.heap[at].node.value()];
      TERRACE_CHECK(place.order == number && place.newer == in_heap && place.older == at);
    }
    std::uint32_t older = none;
    for (std::uint32_t node = order.oldest; node != none; older = node, node = where_[node].newer) {
      TERRACE_CHECK(where_[node].order == number && where_[node].newer != in_heap && where_[node].older == older);
      TERRACE_CHECK(older == none || age_in_list(older) < age_in_list(node));
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
