#pragma once

#include "terrace/cache.hpp"
#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace terrace::test {

/// The keys of a sequence whose blocks are named `first` and on.
[[nodiscard]] inline std::vector<BlockKey> keys_from(std::uint32_t first, std::uint32_t blocks) {
  std::vector<std::uint32_t> names(blocks);
  std::iota(names.begin(), names.end(), first);
  return keys_of(names);
}

/// A request for slots of all blocks of the keys, which must outlive it, and of `extra` more.
[[nodiscard]] inline AcquireRequest request_for(std::uint64_t id, std::span<const BlockKey> keys, std::uint32_t extra = 0) {
  AcquireRequest wanted;
  wanted.id = RequestId{id};
  wanted.keys = keys;
  wanted.units = HashUnits{static_cast<std::uint32_t>(keys.size()) + extra};
  return wanted;
}

/// Expects that one event was reported: the end of the wait of this request.
inline void expect_only_event(std::span<const RequestEvent> events, std::uint64_t id, ErrorCode error = {}) {
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, RequestId{id});
  EXPECT_EQ(events[0].error, error);
}

}  // namespace terrace::test
