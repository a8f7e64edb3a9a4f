#pragma once

#include "terrace/cache.hpp"

#include <cstdint>
#include <span>

namespace terrace::test {

/// A request for slots of all blocks of the keys, which must outlive it, and of `extra` more.
[[nodiscard]] inline AcquireRequest request_for(std::uint64_t id, std::span<const BlockKey> keys, std::uint32_t extra = 0) {
  AcquireRequest wanted;
  wanted.id = RequestId{id};
  wanted.keys = keys;
  wanted.units = HashUnits{static_cast<std::uint32_t>(keys.size()) + extra};
  return wanted;
}

}  // namespace terrace::test
