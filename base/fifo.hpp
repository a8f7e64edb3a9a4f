#pragma once

#include <boost/circular_buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace terrace {

/// A queue in a ring buffer. The buffer doubles when it is full, and never shrinks. A std::deque would allocate and free memory
/// all the time, even if it stays short. Threads: one.
template <class T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return ring_.empty(); }
  [[nodiscard]] std::size_t size() const { return ring_.size(); }
  /// The queue must not be empty.
  [[nodiscard]] const T& front() const { return ring_.front(); }
  void pop_front() { ring_.pop_front(); }
  void push_back(T item) {
    if (ring_.full()) ring_.set_capacity(std::max<std::size_t>(16, 2 * ring_.capacity()));
    ring_.push_back(std::move(item));
  }

 private:
  boost::circular_buffer<T> ring_;
};

}  // namespace terrace
