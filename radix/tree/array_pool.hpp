#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Allocates spans: runs of granules of 256 bytes, cut from slabs of 2 MiB. A span that is put back merges with its free
/// neighbours, so the memory of one long array can be used for many short arrays and later for a long one again. All memory is
/// returned to the system when the heap is destroyed, and none before. Every call takes constant time.
///
/// take() chooses the smallest free span that fits. Free spans are kept in bins: one bin for each length up to 32 granules, then
/// sixteen bins for each doubling, to which requests are rounded up. The first granules of a slab hold a table of its free
/// spans. So merging does not touch the memory of the neighbours.
///
/// Threads: one.
class SpanHeap {
 public:
  static constexpr std::size_t granule_bytes = 256;
  static constexpr std::uint32_t granules_max = 4096;  ///< length of the longest span

  SpanHeap() = default;
  ~SpanHeap();
  SpanHeap(const SpanHeap&) = delete;
  SpanHeap& operator=(const SpanHeap&) = delete;

  /// Returns the number of granules that take() uses for this number of granules (at most granules_max): the length of a bin.
  [[nodiscard]] static std::uint32_t rounded(std::uint32_t granules);
  /// Returns uninitialised memory, aligned to a granule.
  [[nodiscard]] std::byte* take(std::uint32_t granules);
  /// Takes back a span, or a part of one; the rest of the span stays taken.
  void put(std::byte* span, std::uint32_t granules);

  /// Bytes taken from the system. The first slab does not use huge pages, so only the part of it that was ever used counts.
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  struct Slab;
  /// The list of a bin; stored in the first bytes of each free span.
  struct Links {
    std::byte* next = nullptr;
    std::byte* previous = nullptr;
  };
  static constexpr std::uint32_t exact_bins = 32;
  static constexpr std::uint32_t bins_a_doubling = 16;
  static constexpr std::uint32_t bin_count = exact_bins + 8 * bins_a_doubling + 1;

  [[nodiscard]] static std::uint32_t bin_of(std::uint32_t granules);
  [[nodiscard]] static Slab& slab_of(std::byte* span);
  [[nodiscard]] std::byte* find(std::uint32_t granules) const;
  void add_slab();
  void insert(std::byte* span, std::uint32_t granules);
  void remove(std::byte* span, std::uint32_t granules);

  std::array<std::byte*, bin_count> bins_{};
  std::array<std::uint64_t, (bin_count + 63) / 64> filled_{};  ///< one bit per bin: it is not empty
  std::vector<std::byte*> slabs_;
  std::size_t first_slab_used_ = 0;  ///< bytes
};

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
