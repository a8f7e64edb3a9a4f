#include "transfer/host/mapping.hpp"

#include "base/large_memory.hpp"
#include "transfer/host/first_touch.hpp"

#include <fmt/format.h>

#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

[[noreturn]] void fail(std::string_view what, Bytes size, std::string_view doing) {
  throw std::system_error{errno, std::generic_category(), fmt::format("{}: {} {}", what, doing, to_string(size))};
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
