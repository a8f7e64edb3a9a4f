#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Memory by the span: runs of granules of 256 bytes, cut from slabs of 2 MiB, merged with their neighbours when they come back,
/// so that what was one long array can be many short ones and one again. The smallest span that fits is taken (by bins: exact
/// up to 32 granules, then sixteen sizes a doubling, to which requests are rounded up). What is free is noted in the slab's
/// first granules, so that to merge touches no neighbour's memory. O(1). Nothing goes back to the system but with the heap.
/// Threads: one.
class SpanHeap {
 public:
  static constexpr std::size_t granule_bytes = 256;
  static constexpr std::uint32_t granules_max = 4096;  ///< of a span

  SpanHeap() = default;
  ~SpanHeap();
  SpanHeap(const SpanHeap&) = delete;
  SpanHeap& operator=(const SpanHeap&) = delete;

  /// What take() makes of so many granules, at most granules_max: the size of a bin.
  [[nodiscard]] static std::uint32_t rounded(std::uint32_t granules);
  /// Uninitialised, aligned to a granule.
  [[nodiscard]] std::byte* take(std::uint32_t granules);
  /// The whole of a span, or a part: what is left stays taken.
  void put(std::byte* span, std::uint32_t granules);

  /// From the system: all slabs, but of the first, which is not asked of the system in huge pages, what was ever used.
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  struct Slab;
  /// In the first bytes of a free span.
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
  std::array<std::uint64_t, (bin_count + 63) / 64> filled_{};  ///< a bit a bin
  std::vector<std::byte*> slabs_;
  std::size_t first_slab_used_ = 0;  ///< bytes
};

}  // namespace terrace
