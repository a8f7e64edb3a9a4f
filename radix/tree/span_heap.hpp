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

}  // namespace terrace
