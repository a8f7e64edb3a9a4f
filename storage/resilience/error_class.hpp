#pragma once

#include "base/result.hpp"

#include <cstddef>

namespace terrace {

/// What a caller can do about an error.
enum class ErrorClass : unsigned char {
  none,       ///< no error
  missing,    ///< it is not there: a miss
  corrupt,    ///< it is there and does not verify: asking again gives the same
  transient,  ///< the way to the device or the device itself: the same call may succeed a little later
  refused,    ///< the call was not accepted, now or as it is: not a word about the device
  full,       ///< nothing more fits until something goes
};
inline constexpr std::size_t error_class_count = 6;

/// The class of an Errc, or of an errno in the generic or system category. What is in none of its tables is `refused`: it is not
/// tried again, and is held against no device. Threads: any. Allocates nothing.
[[nodiscard]] ErrorClass class_of(const ErrorCode& error) noexcept;
[[nodiscard]] const char* to_string(ErrorClass error_class) noexcept;

}  // namespace terrace
