#pragma once

#include "terrace/request.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <span>

namespace terrace::test {

/// A request for the blocks of these keys and for `extra` more. The keys must stay valid as long as the request does.
inline AcquireRequest request_for(std::uint64_t id, std::span<const BlockKey> keys, std::uint32_t extra = 0) {
  AcquireRequest wanted;
  wanted.id = RequestId{id};
  wanted.keys = keys;
  wanted.units = HashUnits{static_cast<std::uint32_t>(keys.size()) + extra};
  return wanted;
}

}  // namespace terrace::test
