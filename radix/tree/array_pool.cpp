#include "radix/tree/array_pool.hpp"

#include "base/check.hpp"
#include "base/large_memory.hpp"

#include <cstring>

namespace terrace {
namespace {

constexpr std::uint32_t run_granules = 64;  ///< size of a span from which short arrays are cut

}  // namespace

ArrayPool::ArrayPool(std::size_t element_bytes) : element_bytes_{element_bytes} {
  TERRACE_CHECK(element_bytes >= sizeof(std::byte*) && element_bytes < SpanHeap::granule_bytes);
}

ArrayPool::~ArrayPool() { TERRACE_CHECK(mapped_bytes_ == 0); }

std::size_t ArrayPool::class_of(std::uint32_t capacity) {
  return capacity <= exact_max ? capacity : exact_max + (capacity - exact_max) / 2;
}

std::uint32_t ArrayPool::granules_of(std::uint32_t capacity) const {
  return static_cast<std::uint32_t>((capacity * element_bytes_ + SpanHeap::granule_bytes - 1) / SpanHeap::granule_bytes);
}

bool ArrayPool::is_span(std::uint32_t capacity) const {
  return capacity > short_max && granules_of(capacity) <= SpanHeap::granules_max;
}

std::uint32_t ArrayPool::capacity_for(std::uint32_t elements) const {
  TERRACE_CHECK(elements > 0);
  if (elements <= exact_max) return elements;
  if (elements <= short_max) return elements + elements % 2;
  if (!is_span(elements)) return elements;
  return static_cast<std::uint32_t>(SpanHeap::rounded(granules_of(elements)) * SpanHeap::granule_bytes / element_bytes_);
}

std::byte* ArrayPool::take(std::uint32_t capacity) {
  if (is_span(capacity)) return spans_.take(granules_of(capacity));
  if (capacity > short_max) {
    mapped_bytes_ += bytes_of(capacity);
    return static_cast<std::byte*>(map_memory(bytes_of(capacity), HugePages::no));
  }
  std::byte*& first = free_[class_of(capacity)];
  if (first == nullptr) return cut(bytes_of(capacity));
  std::byte* const arrays = first;
  std::memcpy(&first, arrays, sizeof first);
  return arrays;
}

std::byte* ArrayPool::cut(std::size_t bytes) {
  if (bytes > left_) {
    // The rest of the old span becomes a free array of a smaller class.
    if (const auto elements = static_cast<std::uint32_t>(left_ / element_bytes_); elements > 0) {
      put(cursor_, elements <= exact_max ? elements : elements - elements % 2);
    }
    cursor_ = spans_.take(run_granules);
    left_ = run_granules * SpanHeap::granule_bytes;
  }
  std::byte* const arrays = cursor_;
  cursor_ += bytes;
  left_ -= bytes;
  return arrays;
}

void ArrayPool::put(std::byte* arrays, std::uint32_t capacity) {
  if (is_span(capacity)) {
    spans_.put(arrays, granules_of(capacity));
  } else if (capacity > short_max) {
    unmap_memory(arrays, bytes_of(capacity));
    mapped_bytes_ -= bytes_of(capacity);
  } else {
    std::byte*& first = free_[class_of(capacity)];
    std::memcpy(arrays, &first, sizeof first);
    first = arrays;
  }
}

bool ArrayPool::can_shrink(std::uint32_t from, std::uint32_t to) const { return is_span(from) && is_span(to); }

void ArrayPool::shrink(std::byte* arrays, std::uint32_t from, std::uint32_t to) {
  TERRACE_CHECK(can_shrink(from, to) && from > to);
  const std::uint32_t kept = granules_of(to);
  spans_.put(arrays + kept * SpanHeap::granule_bytes, granules_of(from) - kept);
}

}  // namespace terrace
