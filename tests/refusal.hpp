#pragma once

#include <string>

namespace terrace::test {

/// The sentence of the error with which `call` fails; empty if it does not fail.
template <class Error, class Call>
[[nodiscard]] std::string refusal_of(const Call& call) {
  try {
    (void)call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace terrace::test
