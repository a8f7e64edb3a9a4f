#pragma once

#include <cstdint>

namespace terrace::tools {

/// Tokens [from, to) of a sequence.
struct TokenRange {
  std::uint64_t from = 0;
  std::uint64_t to = 0;

  [[nodiscard]] std::uint64_t size() const { return to - from; }
};

}  // namespace terrace::tools
