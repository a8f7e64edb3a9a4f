#pragma once

#include "base/check.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace {

// Operations on a heap (Williams) with four children for each node. It has half the levels of a binary heap, and the children
// that are compared at each level lie in one or two cache lines. `Entries` is a vector or a similar table. Its entries are
// ordered by <, and the smallest entry is first.
//
// The operations serve heaps that record the position of each entry: they call `placed(at)` each time that they have put an entry
// at position `at`. heap_rise() moves an entry towards the top, heap_sink() towards the bottom, until it is in order.

template <class Entries, class Placed>
void heap_rise(Entries& entries, std::size_t at, Placed&& placed) {
  auto moving = std::move(entries[at]);
  while (at > 0) {
    const std::size_t parent = (at - 1) / 4;
    if (!(moving < entries[parent])) break;
    entries[at] = std::move(entries[parent]);
    placed(at);
    at = parent;
  }
  entries[at] = std::move(moving);
  placed(at);
}

template <class Entries, class Placed>
void heap_sink(Entries& entries, std::size_t at, Placed&& placed) {
  auto moving = std::move(entries[at]);
  for (;;) {
    const std::size_t first = at * 4 + 1;
    if (first >= entries.size()) break;
    const std::size_t end = first + 4 < entries.size() ? first + 4 : entries.size();
    std::size_t smallest = first;
    for (std::size_t child = first + 1; child < end; ++child) {
      if (entries[child] < entries[smallest]) smallest = child;
    }
    if (!(entries[smallest] < moving)) break;
    entries[at] = std::move(entries[smallest]);
    placed(at);
    at = smallest;
  }
  entries[at] = std::move(moving);
  placed(at);
}

/// Removes the entry at `at`. The last entry takes its place and then moves to its correct position.
template <class Entries, class Placed>
void heap_remove(Entries& entries, std::size_t at, Placed&& placed) {
  auto last = std::move(entries.back());
  entries.pop_back();
  if (at == entries.size()) return;
  const bool smaller = last < entries[at];
  entries[at] = std::move(last);
  smaller ? heap_rise(entries, at, placed) : heap_sink(entries, at, placed);
}

/// Returns true if no entry is smaller than its parent.
template <class Entries>
[[nodiscard]] bool is_heap_in_order(const Entries& entries) {
  for (std::size_t at = 1; at < entries.size(); ++at) {
    if (entries[at] < entries[(at - 1) / 4]) return false;
  }
  return true;
}

/// A priority queue whose entries are found by handle. Inserting an entry, removing it or changing its priority costs O(log n),
/// and reading the smallest entry costs O(1). The heap is never scanned or rebuilt. Handles are small integers, because they
/// index a table. `Priority` is ordered by <; the smallest is on top.
///
/// This class is in base/, because radix/, transfer/, storage/ and runtime/ all use it. Threads: one.
template <class Priority>
class IndexedHeap {
 public:
  using Handle = std::uint32_t;
  struct Entry {
    Priority priority;
    Handle handle;

    friend bool operator<(const Entry& a, const Entry& b) { return a.priority < b.priority; }
  };

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t bytes_held() const {
    return entries_.capacity() * sizeof(Entry) + where_.capacity() * sizeof(std::uint32_t);
  }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] bool contains(Handle handle) const { return handle < where_.size() && where_[handle] != nowhere; }
  /// Returns the entry with the smallest priority. The heap must not be empty.
  [[nodiscard]] const Entry& top() const {
    TERRACE_CHECK(!entries_.empty());
    return entries_.front();
  }
  /// `handle` must be in the heap.
  [[nodiscard]] const Priority& priority(Handle handle) const {
    TERRACE_CHECK(contains(handle));
    return entries_[where_[handle]].priority;
  }

  /// Inserts the handle, or changes its priority if it is in the heap.
  void set(Handle handle, Priority priority) {
    if (!contains(handle)) {
      if (handle >= where_.size()) where_.resize(std::size_t{handle} + 1, nowhere);
      where_[handle] = static_cast<std::uint32_t>(entries_.size());
      entries_.push_back({std::move(priority), handle});
      heap_rise(entries_, entries_.size() - 1, placed());
      return;
    }
    const std::size_t at = where_[handle];
    const bool smaller = priority < entries_[at].priority;
    entries_[at].priority = std::move(priority);
    smaller ? heap_rise(entries_, at, placed()) : heap_sink(entries_, at, placed());
  }

  /// Removes the handle. Returns false if it was not in the heap.
  bool erase(Handle handle) {
    if (!contains(handle)) return false;
    const std::size_t at = where_[handle];
    where_[handle] = nowhere;
    heap_remove(entries_, at, placed());
    return true;
  }

  void check_invariants() const {
    std::size_t present = 0;
    for (const std::uint32_t at : where_) present += at != nowhere;
    TERRACE_CHECK(present == entries_.size());
    for (std::size_t at = 0; at < entries_.size(); ++at) TERRACE_CHECK(where_[entries_[at].handle] == at);
    TERRACE_CHECK(is_heap_in_order(entries_));
  }

 private:
  static constexpr std::uint32_t nowhere = 0xFFFF'FFFF;

  [[nodiscard]] auto placed() {
    return [this](std::size_t at) { where_[entries_[at].handle] = static_cast<std::uint32_t>(at); };
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> where_;  ///< the position in entries_, by handle
};

}  // namespace terrace
