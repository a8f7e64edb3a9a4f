#pragma once

#include "base/waker.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/cache.hpp"
#include "terrace/device.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"
#include "tests/seed.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "tests/transfer/engine_memory.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace terrace::test {

/// A cache with the fake driver. Every prefix has three blocks, and every hit is compared byte for byte.
class CudaCacheFixture : public ::testing::Test {
 protected:
  static constexpr Bytes share{4096 + 32 + 512};  ///< of a block on one device
  static constexpr std::uint32_t device_blocks = 12;
  static constexpr std::uint32_t chunk_blocks = 4;

  explicit CudaCacheFixture(const FakeCuda::Machine& machine = {}) : cuda_{machine} {}

  void make_arena(std::uint32_t host_blocks, std::uint32_t ready_blocks, Bytes block_bytes) {
    HostArenaOptions host;
    host.slots = host_blocks;
    host.ready_slots = ready_blocks;
    host.block_bytes = block_bytes;
    host.chunk_bytes = block_bytes * chunk_blocks;
    host.touch.threads = 1;
    host.waker = &waker_;
    arena_ = std::make_unique<HostArena>(std::move(host));
  }
  void make_cache(TransferPort& transfers, std::uint32_t host_blocks) {
    ManagerConfig config;
    config.pools[0].device_blocks = device_blocks;
    config.pools[0].host_blocks = host_blocks;
    cache_ = std::make_unique<Cache>(config, CacheParts{transfers, {{arena_.get()}}, clock_, &waker_});
  }
  void end_cache() {
    if (cache_) {
      cache_->drain();
      cache_->manager().check_invariants();
    }
    cache_.reset();
  }
  using Compute = std::function<void(BlockAccess& access, std::uint64_t first_content)>;
  /// Launches the work on each device. The content of a block is its name plus `first_content`.
  virtual Fence launch(Compute compute) = 0;

  static std::vector<std::uint32_t> names(std::uint32_t prefix) { return {10 * prefix, 10 * prefix + 1, 10 * prefix + 2}; }
  void wait_for_work() {
    static_cast<void>(cache_->poll());
    waker_.wait(1);
  }
  void await_host() {
    while (!cache_->host_memory().warm() || cache_->host_memory().going > 0) wait_for_work();
  }
  Lease begin(std::uint32_t prefix) {
    const std::vector<BlockKey> keys = keys_of(names(prefix));
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
    const Fence written = launch([this, blocks, slots, hits](BlockAccess& access, std::uint64_t first_content) {
      std::vector<std::byte> scratch(count(share));
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i < hits) {
          ++compared_;
          wrong_ += !holds(access.read(slots[i], scratch), first_content + blocks[i]);
          continue;
        }
        fill(access.write_target(slots[i], scratch), first_content + blocks[i]);
        access.written(slots[i], scratch);
      }
    });
    ASSERT_TRUE(cache_->commit(lease, keys_of(blocks), written));
    cache_->release(std::move(lease), written);
  }
  void run(std::uint32_t prefix) { end(prefix, begin(prefix)); }
  std::uint32_t any_prefix() { return static_cast<std::uint32_t>(random_() % 10); }
  /// Serves two of ten prefixes in each round, and sometimes resizes the host tier.
  void serve(int rounds, bool resizes) {
    for (int round = 0; round < rounds; ++round) {
      static_cast<void>(cache_->poll());
      // Sometimes wait for the whole tier. Otherwise rounds without a host tier would end before it could grow.
      if (resizes && round % 10 == 9) await_host();
      const std::uint32_t first = any_prefix();
      const std::uint32_t second = any_prefix();
      Lease one = begin(first);
      if (resizes && round % 5 == 0) {
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
  void shrink_to_nothing() {
    ASSERT_TRUE(cache_->resize(Tier::host, 0));
    await_host();
    while (cache_->host_memory().mapped > Bytes{}) wait_for_work();
    EXPECT_EQ(cuda_.registered(), 0U);
  }

  FakeCuda cuda_;
  SteadyClock clock_;
  EventFdWaker waker_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<Cache> cache_;
  std::mt19937_64 random_{seed_from_env_or(1)};
  std::uint64_t requests_ = 0;
  std::uint64_t from_host_ = 0;
  std::atomic<std::uint64_t> compared_{0};  ///< counted by the compute threads
  std::atomic<std::uint64_t> wrong_{0};     ///< counted by the compute threads
};

}  // namespace terrace::test
