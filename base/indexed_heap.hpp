#pragma once

#include "base/check.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace {

/// A heap over dense integer handles that knows where each one stands: insert, remove and re-key cost O(log n), finding the
/// smallest costs O(1), and nothing is ever scanned or rebuilt. Four children a node (Williams' heap with arity 4): half the
/// levels, and the children compared at each lie in one or two cache lines.
///
/// `Priority` is ordered by <; the smallest is on top. Handles are small integers (they index a table). Here and not in radix/
/// because the stores keep their own. Threads: one.
template <class Priority>
class IndexedHeap {
 public:
  using Handle = std::uint32_t;
  struct Entry {
    Priority priority;
    Handle handle;
  };

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t bytes_held() const {
    return entries_.capacity() * sizeof(Entry) + where_.capacity() * sizeof(std::uint32_t);
  }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] bool contains(Handle handle) const { return handle < where_.size() && where_[handle] != nowhere; }
  /// The smallest. Must not be empty.
  [[nodiscard]] const Entry& top() const {
    TERRACE_CHECK(!entries_.empty());
    return entries_.front();
  }
  /// `handle` must be in the heap.
  [[nodiscard]] const Priority& priority(Handle handle) const {
    TERRACE_CHECK(contains(handle));
    return entries_[where_[handle]].priority;
  }

  /// Inserts, or re-keys what is there.
  void set(Handle handle, Priority priority) {
    if (!contains(handle)) {
      if (handle >= where_.size()) where_.resize(std::size_t{handle} + 1, nowhere);
      where_[handle] = static_cast<std::uint32_t>(entries_.size());
      entries_.push_back({std::move(priority), handle});
      rise(entries_.size() - 1);
      return;
    }
    const std::size_t at = where_[handle];
    const bool smaller = priority < entries_[at].priority;
    entries_[at].priority = std::move(priority);
    smaller ? rise(at) : sink(at);
  }

  /// Removes; false where it was not there.
  bool erase(Handle handle) {
    if (!contains(handle)) return false;
    const std::size_t at = where_[handle];
    where_[handle] = nowhere;
    Entry last = std::move(entries_.back());
    entries_.pop_back();
    if (at == entries_.size()) return true;
    const bool smaller = last.priority < entries_[at].priority;
    place(at, std::move(last));
    smaller ? rise(at) : sink(at);
    return true;
  }

  void check_invariants() const {
    std::size_t present = 0;
    for (const std::uint32_t at : where_) present += at != nowhere;
    TERRACE_CHECK(present == entries_.size());
    for (std::size_t at = 0; at < entries_.size(); ++at) {
      TERRACE_CHECK(where_[entries_[at].handle] == at);
      if (at > 0) TERRACE_CHECK(!(entries_[at].priority < entries_[(at - 1) / arity].priority));
    }
  }

 private:
  static constexpr std::size_t arity = 4;
  static constexpr std::uint32_t nowhere = 0xFFFF'FFFF;

  void place(std::size_t at, Entry entry) {
    where_[entry.handle] = static_cast<std::uint32_t>(at);
    entries_[at] = std::move(entry);
  }

  void rise(std::size_t at) {
    Entry moving = std::move(entries_[at]);
    while (at > 0) {
      const std::size_t parent = (at - 1) / arity;
      if (!(moving.priority < entries_[parent].priority)) break;
      place(at, std::move(entries_[parent]));
      at = parent;
    }
    place(at, std::move(moving));
  }

  void sink(std::size_t at) {
    Entry moving = std::move(entries_[at]);
    for (;;) {
      const std::size_t first = at * arity + 1;
      if (first >= entries_.size()) break;
      const std::size_t end = first + arity < entries_.size() ? first + arity : entries_.size();
      std::size_t smallest = first;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (entries_[child].priority < entries_[smallest].priority) smallest = child;
      }
      if (!(entries_[smallest].priority < moving.priority)) break;
      place(at, std::move(entries_[smallest]));
      at = smallest;
    }
    place(at, std::move(moving));
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> where_;  ///< by handle
};

}  // namespace terrace
