#pragma once

#include "tests/runtime/shared_fixture.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace::test {

/// A cache that writes to a shared store.
class SharedWrites : public SharedFixture {
 protected:
  void make_writer(WritePolicy policy, ManagerConfig config = sizes(64, 64)) {
    config = with_shared(std::move(config), policy);
    if (config.pools[0].staging_blocks == 0) config.pools[0].staging_blocks = 8;
    make_shared(std::move(config));
  }
  [[nodiscard]] bool is_written(const std::vector<BlockKey>& keys) const {
    return std::ranges::all_of(keys, [&](const BlockKey& key) {
      const auto block = store_of_others.blocks.find(key);
      return block != store_of_others.blocks.end() && holds(block->second, content_of(key));
    });
  }
  /// The same as serve(), for a request that does not ask the shared store.
  void serve_here(std::uint64_t id, const std::vector<BlockKey>& keys) {
    AcquireRequest wanted = request(id, {});
    wanted.keys = keys;
    wanted.farthest_source = Source::storage;
    leases[id] = cache->acquire(wanted).value();
    ASSERT_TRUE(ready_when_settled(id));
    use(id, keys);
    settle();
  }
  void wait(Duration time) {
    clock.advance(time);
    settle();
  }
};

}  // namespace terrace::test
