// Counts the system calls of a step of the engine. This is a separate program, because it counts every write().
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/transfer/engine/write_count.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace terrace {
namespace {

/// Each step evicts blocks that have to be copied to the host first.
TEST(StepCalls, of_a_step_with_a_host_tier_are_one_at_most) {
  constexpr std::uint32_t requests_a_step = 4;
  constexpr std::uint32_t blocks_a_request = 4;
  CacheSystemOptions options;
  options.pools = {{.block_bytes = Bytes{64}, .device_blocks = 64, .host_blocks = 256}};
  options.log.sink = nullptr;
  CacheSystem system{options};
  Cache& cache = system.cache();
  std::uint32_t name = 0;
  std::uint64_t id = 0;
  bool quiet = false;
  // The transfer thread dozes after a step. On a busy machine it may fall asleep before the next one, and an order then wakes it.
  // Then try again.
  for (int step = 0; step < 200 && !quiet; ++step) {
    const std::uint64_t orders = cache.stats().evicted_device;
    const std::uint64_t before = test::writes_of_this_thread();
    for (std::uint32_t request = 0; request < requests_a_step; ++request) {
      std::vector<std::uint32_t> names;
      for (std::uint32_t block = 0; block < blocks_a_request; ++block) names.push_back(++name);
      const std::vector<BlockKey> keys = test::keys_of(names);
      AcquireRequest wanted;
      wanted.id = RequestId{++id};
      wanted.keys = keys;
      Result<Lease> lease = cache.acquire(wanted);
      ASSERT_TRUE(lease.has_value());
      if (cache.state(*lease) == RequestState::ready) {
        ASSERT_TRUE(cache.commit(*lease, keys, Fence{}).has_value());
      }
    }
    const std::uint64_t by_calls = test::writes_of_this_thread() - before;
    cache.end_step();
    cache.end_step();
    const std::uint64_t of_step = test::writes_of_this_thread() - before;
    cache.drain();
    quiet = cache.stats().evicted_device > orders && by_calls == 0 && of_step <= 1;
  }
  EXPECT_TRUE(quiet);
}

}  // namespace
}  // namespace terrace
