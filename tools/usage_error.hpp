#pragma once

#include <stdexcept>

namespace terrace::tools {

/// What the user gave cannot be: one clear line for standard error, and exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace terrace::tools
