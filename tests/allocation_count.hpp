#pragma once

// Counts allocations, and what of them is alive: replaces operator new of the program. For one source file of a program, and one
// thread.

#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

std::size_t allocations = 0;
bool counting = true;
std::size_t living_bytes = 0;  ///< as the allocator rounds them

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

/// What the other side of a seam allocates is its own affair: it has threads of its own.
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
