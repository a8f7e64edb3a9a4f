#pragma once

#include <string_view>

namespace terrace {

/// Selects the engine that does file I/O.
enum class IoChoice : unsigned char {
  automatic,  ///< io_uring if it is available, else threads
  uring,
  threads,
};
[[nodiscard]] std::string_view to_string(IoChoice choice);

}  // namespace terrace
