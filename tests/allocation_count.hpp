#pragma once

// Counts allocations: replaces operator new of the program. For one source file of a program.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

std::size_t allocations = 0;
bool counting = true;

void* allocate(std::size_t size) {
  allocations += counting;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc{};
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
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
