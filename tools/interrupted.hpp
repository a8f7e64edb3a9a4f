#pragma once

#include <stdexcept>

namespace terrace::tools {

/// A SIGINT or SIGTERM came, and what was made has gone: exit status 130.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error{"interrupted"} {}
};

}  // namespace terrace::tools
