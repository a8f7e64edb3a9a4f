#pragma once

#include "terrace/request.hpp"

#include <atomic>
#include <memory>

namespace terrace {

/// Leases that any thread gives back and one thread collects. It is a lock-free stack of intrusive nodes (a Treiber stack). The
/// collector takes the whole stack at once, so there is no ABA problem. Allocates nothing.
class ReturnedLeases {
 public:
  ~ReturnedLeases() {
    take([](const ReturnedLease&) {});
  }

  void push(std::unique_ptr<ReturnedLease> lease) noexcept {
    ReturnedLease* const node = lease.release();
    node->next = head_.load(std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(node->next, node, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  /// Calls `f` for each lease, in no particular order, and frees the lease.
  template <class F>
  void take(F f) {
    ReturnedLease* node = head_.exchange(nullptr, std::memory_order_acquire);
    while (node != nullptr) {
      const std::unique_ptr<ReturnedLease> lease{node};
      node = node->next;
      f(*lease);
    }
  }

 private:
  std::atomic<ReturnedLease*> head_{nullptr};
};

}  // namespace terrace
