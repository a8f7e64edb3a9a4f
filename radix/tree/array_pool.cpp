#include "radix/tree/array_pool.hpp"

#include "base/check.hpp"
#include "base/large_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace terrace {
namespace {

constexpr std::size_t slab_bytes = huge_page_bytes;
constexpr std::uint32_t granules_a_slab = slab_bytes / SpanHeap::granule_bytes;

constexpr std::uint32_t run_granules = 64;  ///< size of a span from which short arrays are cut

}  // namespace

/// The header of each slab. A slab is aligned to its size. `free[i]` is the length of the free span whose first or last granule
/// is i, and 0 for all other granules. The granules of the header are never free. The entry behind the last granule is 0, too.
struct SpanHeap::Slab {
  std::array<std::uint16_t, granules_a_slab + 1> free;

  [[nodiscard]] std::byte* at(std::uint32_t granule) { return reinterpret_cast<std::byte*>(this) + granule * granule_bytes; }
  [[nodiscard]] std::uint32_t index_of(const std::byte* span) const {
    return static_cast<std::uint32_t>(span - reinterpret_cast<const std::byte*>(this)) / granule_bytes;
  }
  void mark(std::uint32_t begin, std::uint32_t length, std::uint32_t as) {
    free[begin] = free[begin + length - 1] = static_cast<std::uint16_t>(as);
  }
};

SpanHeap::~SpanHeap() {
  for (std::byte* const slab : slabs_) unmap_memory(slab, slab_bytes);
}

SpanHeap::Slab& SpanHeap::slab_of(std::byte* span) {
  return *reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(span) & ~(std::uintptr_t{slab_bytes} - 1));
}

/// The bin for free spans of this length: the highest one whose length is not greater.
std::uint32_t SpanHeap::bin_of(std::uint32_t granules) {
  if (granules < exact_bins) return granules;
  const auto high = static_cast<std::uint32_t>(std::bit_width(granules)) - 1;  // 2^high <= granules
  const std::uint32_t step = granules >> (high - 4) & (bins_a_doubling - 1);
  return exact_bins + (high - 5) * bins_a_doubling + step;
}

std::uint32_t SpanHeap::rounded(std::uint32_t granules) {
  TERRACE_CHECK(granules > 0 && granules <= granules_max);
  if (granules < exact_bins) return granules;
  const std::uint32_t step = std::bit_floor(granules) / bins_a_doubling;
  return (granules + step - 1) / step * step;
}

std::byte* SpanHeap::take(std::uint32_t granules) {
  const std::uint32_t wanted = rounded(granules);
  std::byte* span = find(wanted);
  if (span == nullptr) {
    add_slab();
    span = find(wanted);
  }
  Slab& slab = slab_of(span);
  const std::uint32_t begin = slab.index_of(span);
  const std::uint32_t length = slab.free[begin];
  remove(span, length);
  if (length > wanted) insert(slab.at(begin + wanted), length - wanted);
  if (slabs_.front() == reinterpret_cast<std::byte*>(&slab)) {
    first_slab_used_ = std::max(first_slab_used_, (begin + wanted) * granule_bytes);
  }
  return span;
}

void SpanHeap::put(std::byte* span, std::uint32_t granules) {
  Slab& slab = slab_of(span);
  std::uint32_t begin = slab.index_of(span);
  std::uint32_t length = granules;
  if (const std::uint32_t after = slab.free[begin + length]; after > 0) {
    remove(slab.at(begin + length), after);
    length += after;
  }
  if (const std::uint32_t before = slab.free[begin - 1]; before > 0) {
    begin -= before;
    remove(slab.at(begin), before);
    length += before;
  }
  insert(slab.at(begin), length);
}

/// Returns a span from the first filled bin whose spans are all long enough, or nullptr if there is none.
std::byte* SpanHeap::find(std::uint32_t granules) const {
  const std::uint32_t bin = bin_of(granules);
  std::uint64_t word = filled_[bin / 64] & ~std::uint64_t{0} << bin % 64;
  for (std::size_t i = bin / 64;;) {
    if (word != 0) return bins_[i * 64 + static_cast<std::size_t>(std::countr_zero(word))];
    if (++i == filled_.size()) return nullptr;
    word = filled_[i];
  }
}

void SpanHeap::add_slab() {
  // No huge pages for the first slab: a small tree uses only a part of it.
  auto* const memory = static_cast<std::byte*>(map_memory(slab_bytes, slabs_.empty() ? HugePages::no : HugePages::yes));
  slabs_.push_back(memory);  // the system has zeroed the memory, so the table has no free spans
  constexpr std::uint32_t head = (sizeof(Slab) + granule_bytes - 1) / granule_bytes;
  insert(memory + head * granule_bytes, granules_a_slab - head);
}

void SpanHeap::insert(std::byte* span, std::uint32_t granules) {
  Slab& slab = slab_of(span);
  slab.mark(slab.index_of(span), granules, granules);
  const std::uint32_t bin = bin_of(granules);
  ::new (span) Links{bins_[bin], nullptr};
  if (bins_[bin] != nullptr) reinterpret_cast<Links*>(bins_[bin])->previous = span;
  bins_[bin] = span;
  filled_[bin / 64] |= std::uint64_t{1} << bin % 64;
}

void SpanHeap::remove(std::byte* span, std::uint32_t granules) {
  Slab& slab = slab_of(span);
  slab.mark(slab.index_of(span), granules, 0);
  const std::uint32_t bin = bin_of(granules);
  const Links links = *reinterpret_cast<const Links*>(span);
  (links.previous == nullptr ? bins_[bin] : reinterpret_cast<Links*>(links.previous)->next) = links.next;
  if (links.next != nullptr) reinterpret_cast<Links*>(links.next)->previous = links.previous;
  if (bins_[bin] == nullptr) filled_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
}

std::size_t SpanHeap::bytes_held() const { return slabs_.empty() ? 0 : first_slab_used_ + (slabs_.size() - 1) * slab_bytes; }

void SpanHeap::check_invariants() const {
  std::size_t listed = 0;
  for (std::uint32_t bin = 0; bin < bin_count; ++bin) {
    TERRACE_CHECK((bins_[bin] != nullptr) == ((filled_[bin / 64] >> bin % 64 & 1) != 0));
    std::byte* previous = nullptr;
    for (std::byte* at = bins_[bin]; at != nullptr; at = reinterpret_cast<const Links*>(at)->next) {
      Slab& slab = slab_of(at);
      const std::uint32_t begin = slab.index_of(at);
      const std::uint32_t length = slab.free[begin];
      TERRACE_CHECK(length > 0 && bin_of(length) == bin);
      TERRACE_CHECK(slab.free[begin + length - 1] == length);
      TERRACE_CHECK(slab.free[begin - 1] == 0 && slab.free[begin + length] == 0);  // else the spans would have been merged
      TERRACE_CHECK(reinterpret_cast<const Links*>(at)->previous == previous);
      previous = at;
      ++listed;
    }
  }
  std::size_t marked = 0;
  for (std::byte* const memory : slabs_) {
    const Slab& slab = *reinterpret_cast<const Slab*>(memory);
    for (std::uint32_t i = 0; i < granules_a_slab; i += std::max<std::uint32_t>(slab.free[i], 1)) marked += slab.free[i] > 0;
  }
  TERRACE_CHECK(marked == listed);
}

// ---- short arrays ------------------------------------------------------------------------------------------------------------

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
