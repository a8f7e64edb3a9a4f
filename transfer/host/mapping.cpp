#include "transfer/host/mapping.hpp"

#include "transfer/host/first_touch.hpp"

#include <fmt/format.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

/// Larger than the memory that any process can address. No sum in this file overflows for sizes below it.
constexpr std::size_t address_space = std::size_t{1} << 57;

[[noreturn]] void fail(std::string_view what, Bytes size, std::string_view doing) {
  throw std::system_error{errno, std::generic_category(), fmt::format("{}: {} {}", what, doing, to_string(size))};
}

/// Maps `size` bytes, aligned to a huge page: maps a little too much and unmaps what is outside. Returns null and sets errno if
/// that fails.
std::byte* map_aligned(std::size_t size) {
  if (size > address_space) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const mapped = ::mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t used = (size + page - 1) / page * page;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + used, size + huge_page - before - used);
  return begin + before;
}

}  // namespace

Mapping Mapping::reserve(Bytes size, std::string_view what) {
  Mapping mapping;
  if (count(size) == 0) return mapping;
  std::byte* const begin = map_aligned(count(size));
  if (begin == nullptr) fail(what, size, "cannot map");
  mapping.bytes_ = {begin, count(size)};
  return mapping;
}

Mapping::Mapping(Bytes size, std::string_view what) : Mapping{reserve(size, what)} {
  if (bytes_.empty()) return;
  TouchOptions one_thread;
  one_thread.threads = 1;
  if (const FirstTouch touched = first_touch(bytes_, one_thread); touched.error != 0) {
    errno = touched.error;
    fail(what, size, "cannot touch");
  }
}

Mapping Mapping::borrowed(std::span<std::byte> bytes) {
  Mapping mapping;
  mapping.bytes_ = bytes;
  mapping.owned_ = false;
  return mapping;
}

Mapping::~Mapping() {
  if (owned_ && !bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Mapping::Mapping(Mapping&& other) noexcept : bytes_{std::exchange(other.bytes_, {})}, owned_{other.owned_} {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(owned_, other.owned_);
  return *this;
}

}  // namespace terrace
