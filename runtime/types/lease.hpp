#pragma once

#include "base/strong_id.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

namespace terrace {

/// For the end of a lease: compute does not use its blocks any more, or never did.
inline constexpr Fence no_longer_used{};

/// A lease on its way home: made with the lease, so that giving it back allocates nothing.
struct ReturnedLease {
  RequestId id;
  std::optional<Fence> last_use;  ///< nothing: nobody said
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
///
/// A lease that ends by used_until() names the point of compute until which its blocks may still be touched. One that ends
/// without, as when an exception comes between a launch and the point that marks it, is safe as well, and slower: its slots are
/// quarantined, and the blocks that it hit stay pinned, until compute has reached a point after everything that it has been
/// given by then (Device::after_all_work). Where nobody has asked for its block table, compute has nothing of it, and it just
/// ends.
class Lease {
 public:
  Lease() = default;
  Lease(LeaseHome& home, RequestId id) : Lease{home, id, std::make_unique<ReturnedLease>()} {}
  /// In the memory of one that has come home.
  Lease(LeaseHome& home, RequestId id, std::unique_ptr<ReturnedLease> returned) : home_{&home}, lease_{std::move(returned)} {
    *lease_ = {id, std::nullopt, nullptr};
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
  /// What compute launched up to `fence` may still touch the blocks after the lease has ended, and nothing that was launched
  /// later: a transfer will wait for it. Best said after each launch; `no_longer_used` where there is nothing to wait for.
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
