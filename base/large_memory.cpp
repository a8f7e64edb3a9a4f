#include "base/large_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace terrace {
namespace {

std::size_t whole_pages(std::size_t bytes) { return (bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes; }

}  // namespace

std::byte* map_aligned(std::size_t bytes) noexcept {
  // Larger than the memory that any process can address, so that the sums below do not overflow.
  constexpr std::size_t address_space = std::size_t{1} << 57;
  if (bytes > address_space) {
    errno = ENOMEM;
    return nullptr;
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size = (bytes + page - 1) / page * page;
  // mmap() aligns to small pages only. So map one huge page more, and unmap what is outside the aligned range.
  void* const mapped = ::mmap(nullptr, size + huge_page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  const std::size_t before = whole_pages(address) - address;
  auto* const memory = static_cast<std::byte*>(mapped) + before;
  if (before > 0) ::munmap(mapped, before);
  ::munmap(memory + size, huge_page_bytes - before);
  return memory;
}

void* map_memory(std::size_t bytes, HugePages huge) {
  const std::size_t size = whole_pages(bytes);
  void* const memory = map_aligned(size);
  if (memory == nullptr) throw std::bad_alloc{};
  // This is only advice to the kernel. Without huge pages everything works, but more slowly.
  if (huge == HugePages::yes) ::madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

void unmap_memory(void* memory, std::size_t bytes) noexcept { ::munmap(memory, whole_pages(bytes)); }

}  // namespace terrace
