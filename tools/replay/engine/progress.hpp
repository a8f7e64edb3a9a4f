#pragma once

#include "terrace/types.hpp"
#include "tools/progress_line.hpp"

#include <atomic>
#include <cstdint>
#include <string>

namespace terrace::tools {

/// The progress of the requests, for a ProgressLine. Threads: show() from one, look() from any.
class Progress {
 public:
  explicit Progress(std::uint64_t requests_total) : requests_total_{requests_total} {}

  void show(std::uint64_t requests, std::uint64_t hits, std::uint64_t blocks);
  [[nodiscard]] ProgressState look() const;

 private:
  const std::uint64_t requests_total_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> blocks_{0};
};

/// The progress of the allocation of memory at the start of a replay, measured by the resident memory of the process. Threads:
/// one.
class StartProgress {
 public:
  /// `needed`: about how much memory will be allocated from now on.
  explicit StartProgress(Bytes needed);
  [[nodiscard]] ProgressState look() const;

 private:
  Bytes needed_;
  Bytes before_;
};

}  // namespace terrace::tools
