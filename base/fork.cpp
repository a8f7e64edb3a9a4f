#include "base/fork.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>

namespace terrace {
namespace {

constexpr std::size_t bits = 64;
constexpr std::size_t descriptors_max = std::size_t{1} << 20;  // the kernel's usual limit (fs.nr_open); later ones stay open

// Bit i % 64 of word i / 64: a child closes descriptor i. The handler below may only use functions that are safe in a signal
// handler, because another thread may have been at any point when the process forked.
constinit std::array<std::atomic<std::uint64_t>, descriptors_max / bits> closed_in_children{};
constinit std::atomic<std::size_t> words_used{0};
constinit std::atomic<std::uint32_t> forks{0};

void after_fork_in_child() {
  forks.fetch_add(1, std::memory_order_relaxed);
  const std::size_t words = words_used.load(std::memory_order_relaxed);
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t left = closed_in_children[word].exchange(0, std::memory_order_relaxed);
    for (; left != 0; left &= left - 1) ::close(static_cast<int>(word * bits) + std::countr_zero(left));
  }
}

void watch_forks() noexcept {
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

bool has_bit(int fd) { return fd >= 0 && static_cast<std::size_t>(fd) < descriptors_max; }

}  // namespace

HomeProcess::HomeProcess() noexcept {
  watch_forks();
  forks_ = forks.load(std::memory_order_relaxed);
}

bool HomeProcess::is_here() const noexcept { return forks_ == forks.load(std::memory_order_relaxed); }

int close_in_children(int fd) noexcept {
  if (!has_bit(fd)) return fd;
  watch_forks();
  const auto at = static_cast<std::size_t>(fd);
  closed_in_children[at / bits].fetch_or(std::uint64_t{1} << at % bits, std::memory_order_relaxed);
  std::size_t words = words_used.load(std::memory_order_relaxed);
  while (words < at / bits + 1 && !words_used.compare_exchange_weak(words, at / bits + 1, std::memory_order_relaxed)) continue;
  return fd;
}

void leave_to_children(int fd) noexcept {
  if (!has_bit(fd)) return;
  const auto at = static_cast<std::size_t>(fd);
  closed_in_children[at / bits].fetch_and(~(std::uint64_t{1} << at % bits), std::memory_order_relaxed);
}

}  // namespace terrace
