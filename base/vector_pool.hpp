#pragma once

#include <utility>
#include <vector>

namespace terrace {

/// Emptied vectors, kept for their memory: what is made and done with at every step allocates only while it still grows.
/// Holds as many as were ever out at the same time. Threads: one.
template <class T>
class VectorPool {
 public:
  /// An empty one.
  [[nodiscard]] std::vector<T> take() {
    if (vectors_.empty()) return {};
    std::vector<T> vector = std::move(vectors_.back());
    vectors_.pop_back();
    return vector;
  }
  void give(std::vector<T> vector) {
    vector.clear();
    if (vector.capacity() > 0) vectors_.push_back(std::move(vector));
  }

 private:
  std::vector<std::vector<T>> vectors_;
};

}  // namespace terrace
