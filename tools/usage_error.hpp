#pragma once

#include "terrace/config.hpp"

#include <stdexcept>
#include <utility>

namespace terrace::tools {

/// The user's input is invalid. The program writes one clear line to standard error and exits with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Runs `work()` and returns its result. Throws UsageError in place of an Error.
template <class Error = ConfigError, class Work>
auto as_usage(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error& error) {
    throw UsageError{error.what()};
  }
}

}  // namespace terrace::tools
