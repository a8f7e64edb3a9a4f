#pragma once

#include "terrace/result.hpp"

#include <cstddef>

namespace terrace {

/// Classifies errors by what a caller can do about them.
enum class ErrorClass : unsigned char {
  none,       ///< no error
  missing,    ///< the data is not there: a miss
  corrupt,    ///< the data is there, and its checksum does not match; a retry gives the same result
  transient,  ///< a failure of the device or of the way to it; the same call may succeed later
  refused,    ///< the call was not accepted, now or in this form; it says nothing about the device
  full,       ///< no space until something is removed
};
inline constexpr std::size_t error_class_count = 6;

/// Returns the class of an Errc, or of an errno in the generic or system category. An unknown error is `refused`: it is not
/// retried, and it does not count as a failure of the device. Threads: any. Allocates nothing.
[[nodiscard]] ErrorClass class_of(const ErrorCode& error) noexcept;
[[nodiscard]] const char* to_string(ErrorClass error_class) noexcept;

}  // namespace terrace
