#include "radix/array_pool.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <bit>

namespace terrace {
namespace {

constexpr std::size_t slab_bytes = std::size_t{1} << 20;

}  // namespace

std::size_t ArrayPool::class_of(std::uint32_t capacity) {
  if (capacity <= 8) return capacity - 1;
  // 8 < capacity: four classes per doubling, from the two bits below the highest.
  const auto high = static_cast<std::uint32_t>(std::bit_width(capacity - 1)) - 1;  // 2^high < capacity <= 2^(high + 1)
  const std::uint32_t quarter = (capacity - 1 - (1U << high)) >> (high - 2);
  return 8 + (high - 3) * 4 + quarter;
}

std::uint32_t ArrayPool::capacity_for(std::uint32_t elements) {
  TERRACE_CHECK(elements > 0);
  if (elements <= 8) return elements;
  const auto high = static_cast<std::uint32_t>(std::bit_width(elements - 1)) - 1;
  const std::uint32_t step = 1U << (high - 2);
  return (elements + step - 1) / step * step;
}

std::byte* ArrayPool::take(std::uint32_t capacity) {
  const std::size_t size_class = class_of(capacity);
  if (size_class >= free_.size()) free_.resize(size_class + 1);
  if (auto& list = free_[size_class]; !list.empty()) {
    std::byte* const arrays = list.back();
    list.pop_back();
    return arrays;
  }
  const std::size_t bytes = (capacity * element_bytes_ + 7) / 8 * 8;
  if (bytes > left_) {
    // What is left of the old slab is lost: less than one node's arrays in a megabyte.
    const std::size_t size = std::max(bytes, slab_bytes);
    slabs_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    bytes_held_ += size;
    cursor_ = slabs_.back().get();
    left_ = size;
  }
  std::byte* const arrays = cursor_;
  cursor_ += bytes;
  left_ -= bytes;
  return arrays;
}

void ArrayPool::put(std::byte* arrays, std::uint32_t capacity) { free_[class_of(capacity)].push_back(arrays); }

}  // namespace terrace
