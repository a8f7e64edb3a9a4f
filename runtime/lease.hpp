#pragma once

#include "base/strong_id.hpp"

#include <atomic>
#include <memory>
#include <utility>

namespace terrace {

/// A lease on its way home: made with the lease, so that giving it back allocates nothing.
struct ReturnedLease {
  RequestId id;
  Fence last_use;
  ReturnedLease* next = nullptr;
};

/// Where leases go when they end.
class LeaseHome {
 public:
  virtual ~LeaseHome() = default;
  virtual void give_back(std::unique_ptr<ReturnedLease> lease) noexcept = 0;
};

/// A request's hold on its blocks. Move-only; ends on destruction. In confined mode it ends on the cache's thread; in loop mode
/// on any. Its home outlives it.
class Lease {
 public:
  Lease() = default;
  Lease(LeaseHome& home, RequestId id) : Lease{home, id, std::make_unique<ReturnedLease>()} {}
  /// In the memory of one that has come home.
  Lease(LeaseHome& home, RequestId id, std::unique_ptr<ReturnedLease> returned) : home_{&home}, lease_{std::move(returned)} {
    *lease_ = {id, Fence{}, nullptr};
  }
  ~Lease() { reset(); }
  Lease(Lease&& other) noexcept : home_{other.home_}, lease_{std::move(other.lease_)} {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      reset();
      home_ = other.home_;
      lease_ = std::move(other.lease_);
    }
    return *this;
  }

  [[nodiscard]] explicit operator bool() const { return lease_ != nullptr; }
  /// Must hold a lease.
  [[nodiscard]] RequestId id() const { return lease_->id; }
  /// What compute launched up to `fence` may still touch the blocks after the lease has ended: a transfer will wait for it.
  void used_until(Fence fence) { lease_->last_use = fence; }
  /// Ends the lease now.
  void reset() noexcept {
    if (lease_) home_->give_back(std::move(lease_));
  }

 private:
  LeaseHome* home_ = nullptr;
  std::unique_ptr<ReturnedLease> lease_;
};

/// Leases given back by any thread, collected by one: a stack of intrusive nodes (Treiber's), taken whole, so that there is no
/// ABA. Lock-free; allocates nothing.
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

  /// Calls `f` for each, in no particular order, and frees it.
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
