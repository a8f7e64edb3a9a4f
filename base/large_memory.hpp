#pragma once

#include <cstddef>
#include <new>

namespace terrace {

/// A huge page, where the processor and the kernel have any: one entry of the TLB for what otherwise takes 512. A table of a
/// hundred megabytes that is read here and there costs a walk of the page tables a look without them, as much as the look itself.
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

/// Whether to ask for huge pages. Not where little of the memory may ever be used: they come whole.
enum class HugePages : bool { no, yes };

/// Zeroed memory straight from the system, aligned to a huge page; nothing of it is there before it is touched. `bytes` is
/// rounded up to whole huge pages. Throws std::bad_alloc. Threads: any.
[[nodiscard]] void* map_memory(std::size_t bytes, HugePages huge);
void unmap_memory(void* memory, std::size_t bytes) noexcept;

/// For vectors that are small in most caches and large in some: from one huge page on they are mapped.
template <class T>
struct LargeAllocator {
  using value_type = T;

  LargeAllocator() = default;
  template <class U>
  LargeAllocator(const LargeAllocator<U>&) {}  // NOLINT: allocators convert

  [[nodiscard]] T* allocate(std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    return static_cast<T*>(bytes < huge_page_bytes ? ::operator new(bytes) : map_memory(bytes, HugePages::yes));
  }
  void deallocate(T* memory, std::size_t n) noexcept {
    const std::size_t bytes = n * sizeof(T);
    bytes < huge_page_bytes ? ::operator delete(memory) : unmap_memory(memory, bytes);
  }

  friend bool operator==(const LargeAllocator&, const LargeAllocator&) { return true; }
};

}  // namespace terrace
