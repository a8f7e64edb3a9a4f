#pragma once

#include "base/bytes.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace terrace {

/// Anonymous memory straight from the kernel: zeroed, and aligned to a huge page where it is at least one large. Move-only;
/// unmaps when destroyed. Threads: one.
class Mapping {
 public:
  Mapping() = default;
  /// Huge pages asked for, and every page touched, so that no copy later waits for one. Throws std::system_error, with `what` and
  /// the size in its text, where the memory is not to be had.
  Mapping(Bytes size, std::string_view what);
  /// Addresses alone: no page is there before somebody touches it (transfer/host/first_touch.hpp). Throws as above.
  [[nodiscard]] static Mapping reserve(Bytes size, std::string_view what);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace terrace
