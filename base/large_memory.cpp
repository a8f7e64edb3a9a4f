#include "base/large_memory.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace terrace {
namespace {

std::size_t whole_pages(std::size_t bytes) { return (bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes; }

}  // namespace

void* map_memory(std::size_t bytes, HugePages huge) {
  const std::size_t size = whole_pages(bytes);
  // mmap() aligns to small pages only. So map one huge page more, and unmap what is outside the aligned range.
  void* const mapped = ::mmap(nullptr, size + huge_page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc{};
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  const std::size_t before = whole_pages(address) - address;
  auto* const memory = static_cast<std::byte*>(mapped) + before;
  if (before > 0) ::munmap(mapped, before);
  ::munmap(memory + size, huge_page_bytes - before);
  // This is only advice to the kernel. Without huge pages everything works, but more slowly.
  if (huge == HugePages::yes) ::madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

void unmap_memory(void* memory, std::size_t bytes) noexcept { ::munmap(memory, whole_pages(bytes)); }

}  // namespace terrace
