#pragma once

#include "terrace/types.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace terrace {

/// Anonymous memory from the kernel, zeroed and aligned to a huge page; or memory of another owner. Move-only; the destructor
/// unmaps memory from the kernel. Threads: one.
class Mapping {
 public:
  Mapping() = default;
  /// Maps `size` bytes, asks for huge pages, and touches every page, so that no later copy waits for a page fault. Throws
  /// std::system_error, with `what` and the size in its text, if there is not enough memory.
  Mapping(Bytes size, std::string_view what);
  /// Maps addresses only. A page is allocated when it is first touched (transfer/host/first_touch.hpp). Throws as the constructor
  /// does.
  [[nodiscard]] static Mapping reserve(Bytes size, std::string_view what);
  /// Refers to memory of another owner, which must stay valid as long as this object. The memory is not accessed.
  [[nodiscard]] static Mapping borrowed(std::span<std::byte> bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
  bool owned_ = true;
};

}  // namespace terrace
