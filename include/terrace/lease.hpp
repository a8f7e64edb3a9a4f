#pragma once

#include "terrace/types.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace terrace {

/// For Lease::used_until(): compute no longer uses the blocks of the lease, or never did.
inline constexpr Fence no_longer_used{};

/// The part of a lease that goes back to the cache. It is allocated together with the lease, so that the end of a lease allocates
/// nothing.
struct ReturnedLease {
  RequestId id;
  std::optional<Fence> last_use;  ///< none: used_until() was not called
  ReturnedLease* next = nullptr;
};

/// Takes back leases that end.
class LeaseHome {
 public:
  virtual ~LeaseHome() = default;
  virtual void give_back(std::unique_ptr<ReturnedLease> lease) noexcept = 0;
};

/// Holds the blocks of one request until it is destroyed. Move-only. The LeaseHome outlives it. Threads: in confined mode a lease
/// ends on the thread of the cache; in loop mode it can end on any thread.
///
/// used_until() names the point of compute until which the blocks may still be touched. If a lease ends without it, for example
/// because an exception was thrown between a launch and its fence, this is safe but slower. The slots are then quarantined, and
/// the blocks that were hit stay pinned, until compute has reached a point after all work that it has been given by then
/// (Device::after_all_work). If the block table of the request was never read, compute cannot use its slots, and the lease ends
/// without a quarantine.
class Lease {
 public:
  Lease() = default;
  Lease(LeaseHome& home, RequestId id) : Lease{home, id, std::make_unique<ReturnedLease>()} {}
  /// Makes a lease in the memory of one that has ended.
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
  /// Call it only while it holds a lease.
  [[nodiscard]] RequestId id() const { return lease_->id; }
  /// Work that was launched up to `fence` may still touch the blocks after the lease has ended; work that was launched later does
  /// not. Transfers that reuse the slots wait for the fence. Call it after each launch, or with `no_longer_used` if there is
  /// nothing to wait for.
  void used_until(Fence fence) { lease_->last_use = fence; }
  /// Ends the lease now.
  void reset() noexcept {
    if (lease_) home_->give_back(std::move(lease_));
  }

 private:
  LeaseHome* home_ = nullptr;
  std::unique_ptr<ReturnedLease> lease_;
};

}  // namespace terrace
