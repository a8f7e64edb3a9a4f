#pragma once

#include "terrace/result.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

namespace terrace {

/// Throws std::system_error with this code and a sentence that says why a store cannot be opened.
template <class... Args>
[[noreturn]] void refuse_store(ErrorCode error, fmt::format_string<Args...> sentence, Args&&... args) {
  throw std::system_error{static_cast<std::error_code>(error), fmt::format(sentence, std::forward<Args>(args)...)};
}

/// Throws as refuse_store() does, with the error of the result, if the result is an error.
template <class T, class... Args>
void require(const Result<T>& result, fmt::format_string<Args...> sentence, Args&&... args) {
  if (!result) refuse_store(result.error(), sentence, std::forward<Args>(args)...);
}

}  // namespace terrace
