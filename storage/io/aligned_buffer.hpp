#pragma once

#include "storage/io/io_engine.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace terrace {

[[nodiscard]] inline bool io_aligned(const std::byte* buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer) % io_alignment == 0;
}

/// A buffer of zeroed memory that direct I/O accepts. `bytes` is rounded up to whole pages. Throws std::bad_alloc.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes) : size_{(bytes + io_alignment - 1) / io_alignment * io_alignment} {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(io_alignment, size_)));
    if (!memory_) throw std::bad_alloc{};
    std::memset(memory_.get(), 0, size_);
  }

  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> span() const { return {memory_.get(), size_}; }
  [[nodiscard]] std::span<std::byte> span(std::size_t offset, std::size_t length) const { return span().subspan(offset, length); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace terrace
