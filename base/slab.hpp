#pragma once

#include "base/check.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace terrace {

/// A table of short-lived objects that are found by number. add() returns the number, which is the index of the object. After
/// take() the number is reused. A hash table would sometimes move all its entries into new memory; this table allocates only if
/// it holds more objects than ever before. Threads: one.
template <class T>
class Slab {
 public:
  [[nodiscard]] std::uint32_t add(T thing) {
    ++size_;
    if (free_.empty()) {
      things_.emplace_back(std::move(thing));
      return static_cast<std::uint32_t>(things_.size() - 1);
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    things_[number].emplace(std::move(thing));
    return number;
  }
  /// Returns the object with this number, or null if there is none.
  [[nodiscard]] const T* find(std::uint64_t number) const {
    return number < things_.size() && things_[number] ? &*things_[number] : nullptr;
  }
  /// Returns the object with this number, which must exist. The reference is valid until the next add().
  [[nodiscard]] T& at(std::uint64_t number) {
    TERRACE_CHECK(find(number) != nullptr);
    return *things_[number];
  }
  [[nodiscard]] const T& at(std::uint64_t number) const {
    TERRACE_CHECK(find(number) != nullptr);
    return *things_[number];
  }
  /// Removes the object with this number, which must exist, and returns it.
  [[nodiscard]] T take(std::uint64_t number) {
    TERRACE_CHECK(find(number) != nullptr);
    T thing = std::move(*things_[number]);
    things_[number].reset();
    free_.push_back(static_cast<std::uint32_t>(number));
    --size_;
    return thing;
  }
  /// Calls visit(number, object) for each object, in the order of their numbers. It must not add or take objects.
  template <class Visit>
  void for_each(Visit visit) {
    for (std::uint32_t number = 0; number < things_.size(); ++number) {
      if (things_[number]) visit(number, *things_[number]);
    }
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t number = 0; number < things_.size(); ++number) {
      if (things_[number]) visit(number, *things_[number]);
    }
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  std::vector<std::optional<T>> things_;
  std::vector<std::uint32_t> free_;
  std::size_t size_ = 0;
};

}  // namespace terrace
