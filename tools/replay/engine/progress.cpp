#include "tools/replay/engine/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace terrace::tools {
namespace {

/// The resident memory of this process; 0 if it cannot be read.
Bytes resident() {
  std::ifstream statm{"/proc/self/statm"};
  std::uint64_t all = 0;
  std::uint64_t pages = 0;
  statm >> all >> pages;
  return Bytes{static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))} * pages;
}

}  // namespace

void Progress::show(std::uint64_t requests, std::uint64_t hits, std::uint64_t blocks) {
  requests_.store(requests, std::memory_order_relaxed);
  hits_.store(hits, std::memory_order_relaxed);
  blocks_.store(blocks, std::memory_order_relaxed);
}

ProgressState Progress::look() const {
  const std::uint64_t requests = requests_.load(std::memory_order_relaxed);
  const std::uint64_t blocks = blocks_.load(std::memory_order_relaxed);
  const auto hits = static_cast<double>(hits_.load(std::memory_order_relaxed));
  const double share = blocks == 0 ? 0 : 100.0 * hits / static_cast<double>(blocks);
  return {requests, requests_total_, fmt::format("{} requests  hits {:.1f} %", requests, share)};
}

StartProgress::StartProgress(Bytes needed) : needed_{needed}, before_{resident()} {}

ProgressState StartProgress::look() const {
  const Bytes now = resident();
  const Bytes got = std::min(needed_, now > before_ ? now - before_ : Bytes{});
  return {count(got), count(needed_), fmt::format("starting: {} of {}", to_string(got), to_string(needed_))};
}

}  // namespace terrace::tools
