#pragma once

#include "base/check.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace terrace {

/// Things under a number of ours, while they are under way: the number is where the thing stands, and is used again once it was
/// taken out. A hash table of names that come and go cleans up after them now and then, all at once, in new memory; this
/// allocates only where more are under way than ever before. Threads: one.
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
  /// Null: nothing has this number now.
  [[nodiscard]] const T* find(std::uint64_t number) const {
    return number < things_.size() && things_[number] ? &*things_[number] : nullptr;
  }
  /// Something must have this number. The reference is good until the next add().
  [[nodiscard]] T& at(std::uint64_t number) {
    TERRACE_CHECK(find(number) != nullptr);
    return *things_[number];
  }
  /// The same.
  [[nodiscard]] T take(std::uint64_t number) {
    TERRACE_CHECK(find(number) != nullptr);
    T thing = std::move(*things_[number]);
    things_[number].reset();
    free_.push_back(static_cast<std::uint32_t>(number));
    --size_;
    return thing;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  std::vector<std::optional<T>> things_;
  std::vector<std::uint32_t> free_;
  std::size_t size_ = 0;
};

}  // namespace terrace
