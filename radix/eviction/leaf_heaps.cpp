#include "radix/eviction/leaf_heaps.hpp"

#include "base/check.hpp"

namespace terrace {

void LeafHeaps::set(std::size_t line, TenantIndex tenant, const LeafAge& age) {
  const auto heap = static_cast<std::uint32_t>(tenant * lines_ + line);
  if (heap >= heaps_.size()) make_heap(heap);
  where_.extend_to(std::size_t{age.node.value()} + 1);
  Place& place = where_[age.node.value()];
  if (place.heap != heap) {
    erase(age.node);
    place = {heap, static_cast<std::uint32_t>(heaps_[heap].size())};
    heaps_[heap].push_back(age);
    ++size_;
    heap_rise(heaps_[heap], place.at, placed(heap));
  } else {
    LeafAge& now = heaps_[heap][place.at];
    const bool older = age < now;
    now = age;
    older ? heap_rise(heaps_[heap], place.at, placed(heap)) : heap_sink(heaps_[heap], place.at, placed(heap));
  }
  refresh_top(heap);
}

void LeafHeaps::erase(NodeId node) {
  if (node.value() >= where_.size() || where_[node.value()].heap == nowhere) return;
  const Place place = where_[node.value()];
  where_[node.value()].heap = nowhere;
  --size_;
  heap_remove(heaps_[place.heap], place.at, placed(place.heap));
  refresh_top(place.heap);
}

/// Adds heaps for all lines of all tenants up to the tenant of this heap. When the second tenant comes, the tops of the first
/// tenant's heaps are recorded as well.
void LeafHeaps::make_heap(std::uint32_t heap) {
  const bool is_first = !has_tenants();
  heaps_.resize((heap / lines_ + 1) * lines_);
  if (!is_first) return;
  for (std::uint32_t line = 0; line < lines_; ++line) refresh_top(line);
}

void LeafHeaps::refresh_top(std::uint32_t heap) {
  if (!has_tenants()) return;
  IndexedHeap<LeafAge>& tops = tops_[heap % lines_];
  const auto tenant = static_cast<std::uint32_t>(heap / lines_);
  if (heaps_[heap].empty()) {
    tops.erase(tenant);
  } else {
    tops.set(tenant, heaps_[heap].front());
  }
}

const LeafAge* LeafHeaps::oldest(std::size_t line) const {
  if (!has_tenants()) return oldest(line, other_tenants);
  return tops_[line].empty() ? nullptr : &tops_[line].top().priority;
}

const LeafAge* LeafHeaps::oldest(std::size_t line, TenantIndex tenant) const {
  const std::size_t heap = tenant * lines_ + line;
  return heap >= heaps_.size() || heaps_[heap].empty() ? nullptr : &heaps_[heap].front();
}

std::size_t LeafHeaps::bytes_held() const {
  std::size_t bytes = heaps_.capacity() * sizeof(heaps_[0]) + where_.bytes_held();
  for (const auto& heap : heaps_) bytes += heap.bytes_held();
  for (const auto& tops : tops_) bytes += tops.bytes_held();
  return bytes;
}

void LeafHeaps::check_invariants() const {
  std::size_t all = 0;
  for (std::uint32_t heap = 0; heap < heaps_.size(); ++heap) {
    TERRACE_CHECK(is_heap_in_order(heaps_[heap]));
    all += heaps_[heap].size();
    for (std::uint32_t at = 0; at < heaps_[heap].size(); ++at) {
      const Place& place = where_[heaps_[heap][at].node.value()];
      TERRACE_CHECK(place.heap == heap);
      TERRACE_CHECK(place.at == at);
    }
    if (!has_tenants()) continue;
    const auto& tops = tops_[heap % lines_];
    const auto tenant = static_cast<std::uint32_t>(heap / lines_);
    TERRACE_CHECK(tops.contains(tenant) != heaps_[heap].empty());
    if (!heaps_[heap].empty()) TERRACE_CHECK(tops.priority(tenant).node == heaps_[heap].front().node);
  }
  TERRACE_CHECK(all == size_);
  for (const auto& tops : tops_) tops.check_invariants();
}

}  // namespace terrace
