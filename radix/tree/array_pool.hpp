#pragma once

#include "radix/tree/span_heap.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// Memory for the arrays of tree nodes. After a warm-up, the pool takes no more memory from the system, except for arrays of more
/// than 1 MiB (24,000 blocks): each of these is mapped when it is taken, and unmapped when it is put back. All of these must be
/// put back before the pool is destroyed.
///
/// Short arrays (up to 32 elements) have size classes: one class for each size up to 16 elements, and one for each even size
/// above. An array that is put back serves the next request of its class. Longer arrays are spans of a SpanHeap. There, the
/// memory of one long array can later hold several short ones, and vice versa.
///
/// Threads: one.
class ArrayPool {
 public:
  /// `element_bytes`: bytes per element, summed over all arrays of a node. A multiple of 4.
  explicit ArrayPool(std::size_t element_bytes);
  ~ArrayPool();
  ArrayPool(const ArrayPool&) = delete;
  ArrayPool& operator=(const ArrayPool&) = delete;

  /// Returns the capacity to take for `elements` elements (at least 1). It is at least `elements`.
  [[nodiscard]] std::uint32_t capacity_for(std::uint32_t elements) const;
  /// Returns uninitialised memory, aligned to 8 bytes. `capacity` comes from capacity_for().
  [[nodiscard]] std::byte* take(std::uint32_t capacity);
  /// Takes the memory back. `capacity` is its current capacity.
  void put(std::byte* arrays, std::uint32_t capacity);
  /// Returns true if arrays of capacity `from` can shrink to capacity `to` in place.
  [[nodiscard]] bool can_shrink(std::uint32_t from, std::uint32_t to) const;
  /// Frees the memory behind the first `to` elements. Call only if can_shrink(from, to).
  void shrink(std::byte* arrays, std::uint32_t from, std::uint32_t to);

  /// Bytes taken from the system, in use or not.
  [[nodiscard]] std::size_t bytes_held() const { return spans_.bytes_held() + mapped_bytes_; }
  void check_invariants() const { spans_.check_invariants(); }

 private:
  static constexpr std::uint32_t exact_max = 16;
  static constexpr std::uint32_t short_max = 32;
  static constexpr std::size_t class_count = exact_max + (short_max - exact_max) / 2 + 1;

  [[nodiscard]] static std::size_t class_of(std::uint32_t capacity);
  [[nodiscard]] std::size_t bytes_of(std::uint32_t capacity) const { return (capacity * element_bytes_ + 7) / 8 * 8; }
  [[nodiscard]] std::uint32_t granules_of(std::uint32_t capacity) const;
  [[nodiscard]] bool is_span(std::uint32_t capacity) const;
  [[nodiscard]] std::byte* cut(std::size_t bytes);

  std::size_t element_bytes_;
  SpanHeap spans_;
  std::array<std::byte*, class_count> free_{};  ///< free short arrays by class; each begins with a pointer to the next
  std::byte* cursor_ = nullptr;                 ///< the unused rest of the span from which short arrays are cut
  std::size_t left_ = 0;                        ///< bytes of that rest
  std::size_t mapped_bytes_ = 0;
};

}  // namespace terrace
