#pragma once

#include "terrace/block_store.hpp"
#include "terrace/result.hpp"

namespace terrace {

/// Returns the class of an Errc, or of an errno in the generic or system category. An unknown error is `refused`: it is not
/// retried, and it does not count as a failure of the device. Threads: any. Allocates nothing.
[[nodiscard]] ErrorClass class_of(const ErrorCode& error) noexcept;
[[nodiscard]] const char* to_string(ErrorClass error_class) noexcept;

}  // namespace terrace
