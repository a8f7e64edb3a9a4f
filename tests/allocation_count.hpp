#pragma once

// Counts allocations and the bytes that are still allocated. It replaces operator new of the program, so include it in only one
// source file. It counts on one thread.
// NOLINTBEGIN(google-build-namespaces,misc-definitions-in-headers): one source file includes it

#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

std::size_t allocations = 0;
bool counting = true;
std::size_t living_bytes = 0;  ///< including the rounding of the allocator

void* allocate(std::size_t size) {
  allocations += counting;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc{};
  living_bytes += ::malloc_usable_size(memory);
  return memory;
}

void deallocate(void* memory) noexcept {
  living_bytes -= ::malloc_usable_size(memory);
  std::free(memory);
}

/// Excludes allocations of the other side of a seam, which has threads of its own.
class Uncounted {
 public:
  Uncounted() : before_{std::exchange(counting, false)} {}
  ~Uncounted() { counting = before_; }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  bool before_;
};

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { deallocate(memory); }
void operator delete[](void* memory) noexcept { deallocate(memory); }
void operator delete(void* memory, std::size_t) noexcept { deallocate(memory); }
void operator delete[](void* memory, std::size_t) noexcept { deallocate(memory); }
// NOLINTEND(google-build-namespaces,misc-definitions-in-headers)
