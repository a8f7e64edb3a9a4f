#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace terrace {

/// A queue in a ring buffer. The buffer doubles when it is full, and never shrinks. A std::deque would allocate and free memory
/// all the time, even if it stays short. Threads: one.
template <class T>
class Fifo {
  static_assert(std::is_trivially_destructible_v<T>);  // pop_front() leaves the item where it is

 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// The queue must not be empty.
  [[nodiscard]] const T& front() const { return ring_[first_]; }
  void pop_front() {
    first_ = (first_ + 1) & (ring_.size() - 1);
    --size_;
  }
  void push_back(T item) {
    if (size_ == ring_.size()) grow();
    ring_[(first_ + size_) & (ring_.size() - 1)] = std::move(item);
    ++size_;
  }

 private:
  void grow() {
    std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(first_), ring_.end());
    first_ = 0;
    ring_.resize(std::max<std::size_t>(16, 2 * ring_.size()));
  }

  std::vector<T> ring_;  ///< its size is 0 or a power of 2
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace terrace
