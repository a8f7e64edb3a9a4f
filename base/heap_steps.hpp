#pragma once

#include <cstddef>
#include <utility>

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

/// Removes the entry at `at`. The last entry takes its place and then moves to where it belongs.
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

}  // namespace terrace
