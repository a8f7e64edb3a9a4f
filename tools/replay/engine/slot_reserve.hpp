#pragma once

#include "terrace/cache.hpp"

#include <cstdint>

namespace terrace::tools {

/// Additional device slots that the driver of a reference run holds, so that the cache cannot use them. With `exclusive` copies a
/// hit frees its host slot when it is loaded. The reserve lets a request load its hits before any block is evicted to the host,
/// so that evicted blocks find these host slots free:
///
///     give()   the reserve's slots are free
///     ...      a request acquires its blocks in them, and is ready
///     take()   the cache evicts as many blocks as the request took slots, and their copies to the host have ended
///
/// Between take() and give() the cache can use the slots that it was configured with. Threads: the cache's.
class SlotReserve {
 public:
  /// Adds `slots` slots to the device tier and takes them, if it can. `cache` must outlive this object. The device must have
  /// memory for these slots in addition to the configured ones.
  SlotReserve(Cache& cache, std::uint32_t slots);

  void give();
  /// Does nothing if the slots are taken. Returns false if an operator has paused or cleared the cache; then it must be tried
  /// again before the next give().
  [[nodiscard]] bool take();
  /// The number of requests that take() has acquired so far. The cache's counts of requests include them.
  [[nodiscard]] std::uint64_t requests() const { return requests_; }

 private:
  Cache& cache_;
  const std::uint32_t slots_;
  Lease lease_;
  std::uint64_t requests_ = 0;
};

}  // namespace terrace::tools
