#pragma once

#include "radix/tree/span_heap.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// Memory for the tree's per-node arrays. Short ones (up to 32 elements) by class of exactly so many elements (from 16 on, of
/// even numbers), recycled by class. Longer ones are spans (SpanHeap), whose memory serves for any length again: what one long
/// prompt has left is cut up for shorter ones, and the other way about. Once warm, nothing is allocated, but for arrays of
/// more than a megabyte (24,000 blocks), which the system gives and gets one by one. Threads: one.
class ArrayPool {
 public:
  /// `element_bytes`: of all arrays of a node together, per element; a multiple of 4.
  explicit ArrayPool(std::size_t element_bytes);
  ~ArrayPool();
  ArrayPool(const ArrayPool&) = delete;
  ArrayPool& operator=(const ArrayPool&) = delete;

  /// What is taken for `elements` (at least 1).
  [[nodiscard]] std::uint32_t capacity_for(std::uint32_t elements) const;
  /// Uninitialised, aligned to 8. `capacity` comes from capacity_for.
  [[nodiscard]] std::byte* take(std::uint32_t capacity);
  void put(std::byte* arrays, std::uint32_t capacity);
  /// Whether arrays can become smaller where they are.
  [[nodiscard]] bool can_shrink(std::uint32_t from, std::uint32_t to) const;
  /// Gives back what is behind the first `to` elements' memory. Where they can.
  void shrink(std::byte* arrays, std::uint32_t from, std::uint32_t to);

  /// From the system, used or not.
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
  std::array<std::byte*, class_count> free_{};  ///< short ones; each begins with the next
  std::byte* cursor_ = nullptr;                 ///< of the span that short ones are cut from
  std::size_t left_ = 0;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace terrace
