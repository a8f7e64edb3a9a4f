#pragma once

#include "base/check.hpp"
#include "terrace/request.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace terrace {

/// Stops the process if the owner of leases ends while some of them are alive: their memory is part of the owner's.
inline void stop_if_alive(std::size_t leases, const char* home) {
  if (leases == 0) return;
  stop_for_misuse("the " + std::string{home} + " is destroyed, and leases of it are alive (" + std::to_string(leases) +
                  "): end them first, with Lease::reset() or by their own end");
}

/// Leases that any thread gives back and one thread collects. It is a lock-free stack of intrusive nodes (a Treiber stack). The
/// collector takes the whole stack at once, so there is no ABA problem. Allocates nothing.
class ReturnedLeases {
 public:
  ~ReturnedLeases() {
    take([](std::unique_ptr<ReturnedLease>) {});
  }

  void push(std::unique_ptr<ReturnedLease> lease) noexcept {
    ReturnedLease* const node = lease.release();
    node->next = head_.load(std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(node->next, node, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  [[nodiscard]] bool empty() const noexcept { return head_.load(std::memory_order_relaxed) == nullptr; }

  /// Calls `f` with each lease, in no particular order.
  template <class F>
  void take(F f) {
    ReturnedLease* node = head_.exchange(nullptr, std::memory_order_acquire);
    while (node != nullptr) {
      std::unique_ptr<ReturnedLease> lease{node};
      node = node->next;
      f(std::move(lease));
    }
  }

 private:
  std::atomic<ReturnedLease*> head_{nullptr};
};

}  // namespace terrace
