#pragma once

#include "tools/progress_line.hpp"

#include <cstdint>

namespace terrace::tools {

/// Says how far the replay is (ProgressLine).
class Progress {
 public:
  /// `requests_total`: 0 where it is not known.
  explicit Progress(std::uint64_t requests_total) : requests_total_{requests_total} {}

  /// Draws at most ten times a second.
  void show(std::uint64_t requests, std::uint64_t hits, std::uint64_t blocks);
  /// Erases the line, until the next show().
  void erase() { line_.erase(); }

 private:
  const std::uint64_t requests_total_;
  ProgressLine line_;
};

}  // namespace terrace::tools
