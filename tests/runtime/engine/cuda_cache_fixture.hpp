#pragma once

#include "base/waker.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/cache.hpp"
#include "terrace/device.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request_for.hpp"
#include "tests/seed.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace terrace::test {

/// A cache on CUDA devices with the fake driver, and an engine that computes on them. Compares every hit byte for byte on every
/// rank.
class CudaCacheFixture : public ::testing::Test {
 protected:
  static constexpr Bytes share{4096 + 32 + 512};  ///< of a block on one rank
  static constexpr std::uint32_t device_blocks = 12;
  static constexpr std::uint32_t chunk_blocks = 4;

  explicit CudaCacheFixture(int devices) : cuda_{FakeCuda::Machine{.devices = devices}} {}

  static ManagerConfig config(std::uint32_t host_blocks) {
    ManagerConfig config;
    config.pools[0].device_blocks = device_blocks;
    config.pools[0].host_blocks = host_blocks;
    return config;
  }
  void make_arena(std::uint32_t slots, std::uint32_t ready, Bytes block_bytes) {
    HostArenaOptions host;
    host.slots = slots;
    host.ready_slots = ready;
    host.block_bytes = block_bytes;
    host.chunk_bytes = block_bytes * chunk_blocks;
    host.touch.threads = 1;
    host.waker = &waker_;
    arena_ = std::make_unique<HostArena>(std::move(host));
  }
  void end_cache() {
    if (cache_) {
      cache_->drain();
      cache_->manager().check_invariants();
    }
    cache_.reset();
  }
  /// The content of a block on a rank.
  [[nodiscard]] virtual std::uint64_t content(std::uint32_t /*rank*/, std::uint32_t block) const { return block; }
  /// Prefixes of three blocks.
  static std::vector<std::uint32_t> names(std::uint32_t prefix) { return {10 * prefix, 10 * prefix + 1, 10 * prefix + 2}; }
  void wait_for_work() {
    static_cast<void>(cache_->poll());
    waker_.wait(1);
  }
  void await_host() {
    while (!cache_->host_memory().warm() || cache_->host_memory().going > 0) wait_for_work();
  }
  void await_compute() {
    const Fence last = all_->launch([](std::uint32_t, BlockAccess&) {});
    for (std::uint32_t rank = 0; rank < all_->size(); ++rank) test::await_compute(all_->at(rank), last);
  }
  Lease begin(std::uint32_t prefix) {
    const std::vector<std::uint32_t> blocks = names(prefix);
    const std::vector<BlockKey> keys = keys_of(std::span{blocks});
    return cache_->acquire(request_for(++requests_, keys)).value();
  }
  /// Compares the hits, computes the other blocks, commits.
  void end(std::uint32_t prefix, Lease lease) {
    while (cache_->state(lease) != RequestState::ready) wait_for_work();
    const std::vector<std::uint32_t> blocks = names(prefix);
    const auto table = cache_->block_table(lease).value();
    const std::vector<SlotId> slots{table.begin(), table.end()};
    const auto sources = cache_->hit_sources(lease).value();
    const std::size_t hits = sources.size();
    for (const Source source : sources) from_host_ += source == Source::host;
    const Fence written = all_->launch([this, blocks, slots, hits](std::uint32_t rank, BlockAccess& access) {
      std::vector<std::byte> scratch(count(share));
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const std::uint64_t seed = content(rank, blocks[i]);
        if (i < hits) {
          ++compared_;
          wrong_ += !test::holds(access.read(slots[i], scratch), seed);
          continue;
        }
        test::fill(access.write_target(slots[i], scratch), seed);
        access.written(slots[i], scratch);
      }
    });
    ASSERT_TRUE(cache_->commit(lease, keys_of(std::span{blocks}), written));
    cache_->release(std::move(lease), written);
  }
  void run(std::uint32_t prefix) { end(prefix, begin(prefix)); }
  /// Serves two of ten prefixes in each round, and sometimes resizes the host tier.
  void serve(int rounds, bool resizer) {
    for (int round = 0; round < rounds; ++round) {
      static_cast<void>(cache_->poll());
      // Sometimes wait for the whole tier. Otherwise rounds without a host tier would end before it could grow.
      if (resizer && round % 10 == 9) await_host();
      const auto first = static_cast<std::uint32_t>(random_() % 10);
      const auto second = static_cast<std::uint32_t>(random_() % 10);
      Lease one = begin(first);
      if (resizer && round % 5 == 0) {
        const Result<void> resized = cache_->resize(Tier::host, Blocks{static_cast<std::uint32_t>(random_() % 40)});
        if (!resized) {
          ASSERT_EQ(resized.error(), Errc::no_room) << "only what the request that was just accepted was promised";
        }
      }
      Lease two = begin(second);
      end(first, std::move(one));
      end(second, std::move(two));
      if (round % 16 == 0) cache_->manager().check_invariants();
    }
  }
  /// Shrinks the host tier to nothing, and waits until its memory is given back.
  void end_host() {
    ASSERT_TRUE(cache_->resize(Tier::host, 0));
    await_host();
    while (cache_->host_memory().mapped > Bytes{}) wait_for_work();
    EXPECT_EQ(cuda_.registered(), 0U);
  }

  FakeCuda cuda_;
  SteadyClock clock_;
  EventFdWaker waker_;
  std::unique_ptr<HostArena> arena_;
  std::optional<RankDevices> all_;
  std::unique_ptr<Cache> cache_;
  std::mt19937_64 random_{seed_from_env_or(1)};
  std::uint64_t requests_ = 0;
  std::uint64_t from_host_ = 0;
  std::atomic<std::uint64_t> compared_{0};  ///< counted by the compute threads
  std::atomic<std::uint64_t> wrong_{0};     ///< counted by the compute threads
};

}  // namespace terrace::test
