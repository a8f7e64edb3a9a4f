#pragma once

#include "terrace/types.hpp"

#include <algorithm>
#include <cstddef>
#include <new>

namespace terrace {

/// The size of a huge page. One TLB entry maps a huge page; small pages need 512 entries for the same memory. With small pages,
/// each random read of a table of a hundred megabytes also costs a walk of the page tables, which takes about as long as the read
/// itself.
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

/// The size of a cache line. An aligned row of this size needs one memory access.
inline constexpr std::size_t cache_line_bytes = 64;

/// Maps zeroed memory from the kernel in small pages, aligned to a huge page. Returns null and sets errno if that fails.
[[nodiscard]] std::byte* map_aligned(std::size_t bytes) noexcept;

/// Maps zeroed memory from the kernel, aligned to a huge page. `bytes` is rounded up to whole huge pages. The kernel allocates a
/// page when it is first accessed. The caller releases the memory by unmap_memory() with the same `bytes`. Threads: any. Errors:
/// throws std::bad_alloc.
[[nodiscard]] void* map_memory(std::size_t bytes, HugePages huge);
void unmap_memory(void* memory, std::size_t bytes) noexcept;

/// An allocator for vectors that are small in most configurations and large in some. Vectors of one huge page or more are mapped
/// with huge pages. All begin at a cache line.
template <class T>
struct LargeAllocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{std::max(alignof(T), cache_line_bytes)};

  LargeAllocator() = default;
  template <class U>
  LargeAllocator(const LargeAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators convert

  [[nodiscard]] T* allocate(std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    return static_cast<T*>(bytes < huge_page_bytes ? ::operator new(bytes, alignment) : map_memory(bytes, HugePages::yes));
  }
  void deallocate(T* memory, std::size_t n) noexcept {
    const std::size_t bytes = n * sizeof(T);
    bytes < huge_page_bytes ? ::operator delete(memory, alignment) : unmap_memory(memory, bytes);
  }

  friend bool operator==(const LargeAllocator&, const LargeAllocator&) { return true; }
};

}  // namespace terrace
