#pragma once

#include <stdexcept>

namespace terrace::tools {

/// A SIGINT or SIGTERM came, and unfinished results were removed. The exit status is 130.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error{"interrupted"} {}
};

}  // namespace terrace::tools
