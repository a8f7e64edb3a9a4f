#pragma once

#include "runtime/cache/cache.hpp"

#include <cstdint>

namespace terrace::tools {

/// Device slots that a reference run keeps out of the cache's use, beside those that the cache is to have. With them the hits
/// of a request come up before anything goes down to make room, so that under `exclusive` their host slots are free by then:
///
///     give()   the reserve's slots are free
///     ...      a request acquires its blocks in them, and is ready
///     take()   the cache gives up as many blocks as the request took slots, and their copies to the host have ended
///
/// Between take() and give() the cache has the slots that it was configured with. Threads: the cache's.
class SlotReserve {
 public:
  /// The cache outlives this; the device has memory for so many slots more than are configured. Takes them.
  SlotReserve(Cache& cache, std::uint32_t slots);

  void give();
  void take();
  /// Requests that take() has acquired so far: the cache counts them as it counts others.
  [[nodiscard]] std::uint64_t requests() const { return requests_; }

 private:
  Cache& cache_;
  const std::uint32_t slots_;
  Lease lease_;
  std::uint64_t requests_ = 0;
};

}  // namespace terrace::tools
