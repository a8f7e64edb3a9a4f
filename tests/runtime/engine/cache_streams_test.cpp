// Cache::signal and Cache::await: an engine with memory and streams of its own, without a GPU.
#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/cache.hpp"
#include "terrace/emulated_stream.hpp"
#include "terrace/keys.hpp"
#include "terrace/system.hpp"
#include "tests/runtime/request.hpp"
#include "tests/transfer/support.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {
namespace {

constexpr std::uint32_t layers = 4;
constexpr std::uint32_t blocks = 8;
constexpr std::size_t part = 1024;
constexpr Bytes block_bytes{part * layers};

class CacheStreams : public testing::Test {
 protected:
  void open(LinkModel link = {}) {
    CacheSystemOptions options;
    // Each layer has a tensor, the last layer first.
    std::vector<DeviceRegion> regions;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      regions.push_back({reinterpret_cast<std::uintptr_t>(at(layer, SlotId{0})), part, part, layer});
    }
    options.ranks = {RankOptions{EmulatedGpu{.link = link, .faults = {}}, {regions}}};
    options.pools = {{.block_bytes = block_bytes, .device_blocks = blocks, .host_blocks = 4 * blocks}};
    options.loads = LoadPolicy::always;
    system_.emplace(options);
  }
  ~CacheStreams() override {
    stream_.synchronize();
    system_.reset();
  }
  std::byte* at(std::uint32_t layer, SlotId slot) {
    return memory_.data() + (layers - 1 - layer) * blocks * part + slot.value() * part;
  }
  Cache& cache() { return system_->cache(); }
  static std::vector<BlockKey> keys_of(TokenId token, std::uint32_t count) {
    KeyChain chain{root_key({}), 16};
    chain.append(std::vector<TokenId>(std::size_t{16} * count, token));
    return {chain.keys().begin(), chain.keys().end()};
  }
  Result<Lease> acquire(std::span<const BlockKey> keys) {
    AcquireRequest wanted = test::request_for(++last_, keys);
    wanted.by_layer = true;
    return cache().acquire(wanted);
  }
  Result<void> await_soon(const Lease& lease, std::uint32_t leading) {
    Result<void> ordered = cache().await(lease, leading, stream_.ref());
    while (!ordered && ordered.error() == Errc::not_ready) {
      (void)cache().poll();
      std::this_thread::yield();
      ordered = cache().await(lease, leading, stream_.ref());
    }
    return ordered;
  }
  /// Computes the blocks that are not hits. A layer of block i has the pattern of `seed` + i + layer.
  void compute(std::span<const BlockKey> keys, std::uint64_t seed) {
    Lease lease = acquire(keys).value();
    ASSERT_TRUE(cache().wait(lease));
    const auto table = cache().block_table(lease).value();
    for (std::size_t i = cache().hit_sources(lease)->size(); i < table.size(); ++i) {
      for (std::uint32_t layer = 0; layer < layers; ++layer) {
        stream_.run([=, this, slot = table[i]] { test::fill({at(layer, slot), part}, seed + i + layer); });
      }
    }
    const Fence done = cache().signal(stream_.ref()).value();
    ASSERT_TRUE(cache().commit(lease, keys, done));
    cache().release(std::move(lease), done);
  }
  /// Reads a layer of the request's blocks on the stream.
  void attend(const Lease& lease, std::uint32_t layer, std::uint64_t seed) {
    const auto table = cache().block_table(lease).value();
    for (std::size_t i = 0; i < table.size(); ++i) {
      stream_.run([=, this, slot = table[i]] { wrong_ += !test::holds({at(layer, slot), part}, seed + i + layer); });
    }
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(blocks * layers * part);
  EmulatedStream stream_;
  std::optional<CacheSystem> system_;
  std::atomic<std::uint32_t> wrong_{0};
  std::uint64_t last_ = 0;
};

TEST_F(CacheStreams, a_step_is_launched_while_its_blocks_are_still_copied) {
  LinkModel link;
  link.directions[static_cast<std::size_t>(Direction::swap_in)].latency = std::chrono::milliseconds{3};
  open(link);
  const auto keys = keys_of(1, 6);
  const auto others = keys_of(2, 7);
  std::uint32_t launched_early = 0;
  for (std::uint64_t round = 0; round < 5; ++round) {
    compute(keys, 100);
    compute(others, 200);  // swaps the others out
    Lease lease = acquire(keys).value();
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      ASSERT_TRUE(await_soon(lease, layer + 1));
      launched_early += cache().state(lease) == RequestState::waiting;
      attend(lease, layer, 100);
    }
    const Fence done = cache().signal(stream_.ref()).value();
    ASSERT_TRUE(cache().wait(lease));
    EXPECT_EQ(cache().hit_sources(lease)->size(), keys.size());
    ASSERT_TRUE(cache().commit(lease, keys, done));
    cache().release(std::move(lease), done);
  }
  stream_.synchronize();
  EXPECT_EQ(wrong_, 0U);
  EXPECT_GT(launched_early, 0U);
  cache().manager().check_invariants();
}

TEST_F(CacheStreams, await_knows_what_can_be_waited_for) {
  open();
  EXPECT_EQ(cache().await(Lease{}, 1, stream_.ref()).error(), Errc::unknown_request);
  const auto keys = keys_of(1, 3);
  Lease lease = acquire(keys).value();
  EXPECT_EQ(cache().state(lease), RequestState::ready);
  EXPECT_TRUE(cache().await(lease, Cache::all_layers, stream_.ref())) << "nothing has to be waited for";
  EXPECT_EQ(cache().signal(stream_.ref(), 1).error(), Errc::invalid_argument) << "no such rank";
  cache().release(std::move(lease), Fence{});
}

TEST_F(CacheStreams, await_is_not_ready_while_the_request_waits_for_slots_or_transfers_are_paused) {
  open();
  const auto keys = keys_of(1, 6);
  compute(keys, 100);
  compute(keys_of(2, 7), 200);
  while (cache().has_pending_work()) (void)cache().poll();
  cache().pause_transfers();
  Lease lease = acquire(keys).value();
  ASSERT_EQ(cache().state(lease), RequestState::waiting);
  EXPECT_EQ(cache().await(lease, 1, stream_.ref()).error(), Errc::not_ready);
  EXPECT_EQ(cache().block_table(lease).error(), Errc::not_ready) << "it has been promised nothing";
  cache().resume_transfers();
  ASSERT_TRUE(await_soon(lease, Cache::all_layers));
  for (std::uint32_t layer = 0; layer < layers; ++layer) attend(lease, layer, 100);
  const Fence done = cache().signal(stream_.ref()).value();
  ASSERT_TRUE(cache().wait(lease));
  cache().release(std::move(lease), done);
  stream_.synchronize();
  EXPECT_EQ(wrong_, 0U);
}

/// The stream was told to go on, and then the copy fails: the request fails, and keeps its slots until the lease ends.
TEST_F(CacheStreams, a_request_whose_copy_fails_under_way_fails_and_is_not_planned_again) {
  LinkModel link;
  auto& in = link.directions[static_cast<std::size_t>(Direction::swap_in)];
  in.latency = std::chrono::milliseconds{20};
  in.fail_every = 1;
  open(link);
  const auto keys = keys_of(1, 2);
  compute(keys, 100);
  compute(keys_of(2, 8), 200);
  Lease lease = acquire(keys).value();
  const Result<void> ordered = await_soon(lease, 1);
  if (!ordered) GTEST_SKIP() << "the copy had failed before the stream could wait for it";
  ASSERT_TRUE(cache().block_table(lease));
  EXPECT_EQ(cache().wait(lease).error(), Errc::load_failed);
  EXPECT_EQ(cache().wait(lease).error(), Errc::load_failed) << "as often as it is asked";
  EXPECT_EQ(cache().state(lease), RequestState::failed);
  EXPECT_EQ(cache().await(lease, 1, stream_.ref()).error(), Errc::load_failed);
  const Fence done = cache().signal(stream_.ref()).value();
  cache().release(std::move(lease), done);
  cache().manager().check_invariants();
}

}  // namespace
}  // namespace terrace
