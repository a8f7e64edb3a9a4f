#pragma once

#include "tests/runtime/fixture.hpp"
#include "tests/transfer/support.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace terrace::test {

/// A cache whose blocks have the content that belongs to their keys, so that a test can check hits.
class ContentFixture : public CacheFixture {
 protected:
  static std::uint64_t content_of(const BlockKey& key) { return key.prefix64(); }

  /// Launches compute that writes the blocks [from, keys.size()) of the request. Returns the fence after which they are written.
  Fence compute(std::uint64_t id, const std::vector<BlockKey>& keys, std::size_t from) {
    return device->launch([from, keys, slots = table(id)](BlockAccess& access) {
      std::vector<std::byte> scratch(block_bytes);
      for (std::size_t i = from; i < keys.size(); ++i) {
        test::fill(access.write_target(slots[i], scratch), content_of(keys[i]));
        access.written(slots[i], scratch);
      }
    });
  }
  /// Launches compute that compares the first `count` blocks of the request with their keys. Differences are added to
  /// `mismatches`.
  Fence compare(std::uint64_t id, const std::vector<BlockKey>& keys, std::size_t count) {
    return device->launch([this, count, keys, slots = table(id)](BlockAccess& access) {
      std::vector<std::byte> scratch(block_bytes);
      for (std::size_t i = 0; i < count; ++i) {
        ++compared;
        mismatches += !test::holds(access.read(slots[i], scratch), content_of(keys[i]));
      }
    });
  }
  [[nodiscard]] std::size_t hits(std::uint64_t id) const { return cache->hit_sources(leases.at(id)).value().size(); }
  /// Ends the request. Compute may touch its blocks up to `last_use`.
  void end(std::uint64_t id, Fence last_use) {
    cache->release(std::move(leases.at(id)), last_use);
    leases.erase(id);
  }
  /// For a ready request: compares its hits, computes the other blocks, commits all and ends it. The launched work has not run
  /// yet.
  void use(std::uint64_t id, const std::vector<BlockKey>& keys) {
    (void)compare(id, keys, hits(id));
    const Fence written = compute(id, keys, hits(id));
    ASSERT_TRUE(cache->commit(leases.at(id), keys, written).has_value());
    end(id, written);
  }
  /// Serves a whole request.
  void serve(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    ASSERT_TRUE(ready_when_settled(id));
    use(id, keys);
    settle();
  }
  /// The same as serve(), for blocks that must all be hits.
  void expect_hit(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    ASSERT_TRUE(ready_when_settled(id));
    EXPECT_EQ(hits(id), keys.size());
    use(id, keys);
    settle();
  }
  void TearDown() override {
    if (cache) settle();
    EXPECT_EQ(mismatches, 0U) << "of " << compared << " blocks that were hit";
    CacheFixture::TearDown();
  }

  std::uint64_t compared = 0;
  std::uint64_t mismatches = 0;
};

}  // namespace terrace::test
