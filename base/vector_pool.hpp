#pragma once

#include <utility>
#include <vector>

namespace terrace {

/// Moves the elements of `from` to `out`, which loses those that it had. The vectors are swapped, so that their memory is used
/// again.
template <class T>
void take_all(std::vector<T>& from, std::vector<T>& out) {
  out.clear();
  out.swap(from);
}

/// Keeps emptied vectors so that their memory is used again. Code that fills and drops vectors at every step then allocates only
/// while its vectors still grow. The pool holds as many vectors as were ever in use at the same time. Threads: one.
template <class T>
class VectorPool {
 public:
  /// Returns an empty vector, which may have capacity.
  [[nodiscard]] std::vector<T> take() {
    if (vectors_.empty()) return {};
    std::vector<T> vector = std::move(vectors_.back());
    vectors_.pop_back();
    return vector;
  }
  /// Takes a vector back and empties it.
  void give(std::vector<T> vector) {
    vector.clear();
    if (vector.capacity() > 0) vectors_.push_back(std::move(vector));
  }

 private:
  std::vector<std::vector<T>> vectors_;
};

}  // namespace terrace
