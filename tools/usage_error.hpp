#pragma once

#include <stdexcept>

namespace terrace::tools {

/// The user's input is invalid. The program writes one clear line to standard error and exits with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace terrace::tools
