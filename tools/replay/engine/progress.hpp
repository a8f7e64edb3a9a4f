#pragma once

#include "tools/progress_line.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>

namespace terrace::tools {

/// The progress of the requests, for a ProgressLine. Threads: show() from one, look() from any.
class Progress {
 public:
  explicit Progress(std::uint64_t requests_total) : requests_total_{requests_total} {}

  void show(std::uint64_t requests, std::uint64_t hits, std::uint64_t blocks) {
    requests_.store(requests, std::memory_order_relaxed);
    hits_.store(hits, std::memory_order_relaxed);
    blocks_.store(blocks, std::memory_order_relaxed);
  }
  [[nodiscard]] ProgressState look() const {
    const std::uint64_t requests = requests_.load(std::memory_order_relaxed);
    const std::uint64_t blocks = blocks_.load(std::memory_order_relaxed);
    const auto hits = static_cast<double>(hits_.load(std::memory_order_relaxed));
    const double share = blocks == 0 ? 0 : 100.0 * hits / static_cast<double>(blocks);
    return {requests, requests_total_, fmt::format("{} requests  hits {:.1f} %", requests, share)};
  }

 private:
  const std::uint64_t requests_total_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> blocks_{0};
};

}  // namespace terrace::tools
