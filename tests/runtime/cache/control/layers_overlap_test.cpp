// Compute of one layer during the load of the next, with threads: a request by layer on the emulated device.

#include "base/waker.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/async_cache.hpp"
#include "terrace/cache.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

constexpr int patience_ms = 60'000;
constexpr std::uint32_t layers = 8;
constexpr Bytes block_bytes = KiB * 64;
constexpr std::size_t layer_bytes = count(block_bytes) / layers;

std::byte mark(const BlockKey& key, std::size_t at) {
  return key.bytes[at % key.bytes.size()] ^ static_cast<std::byte>(at / key.bytes.size());
}

ComputeWork writes(const std::vector<BlockKey>& keys, std::vector<SlotId> slots) {
  return [keys, slots = std::move(slots)](BlockAccess& access) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto block = access.write_target(slots[i], {});
      for (std::size_t at = 0; at < block.size(); ++at) block[at] = mark(keys[i], at);
      access.written(slots[i], {});
    }
  };
}

bool holds_layer(std::span<const std::byte> block, const BlockKey& key, std::uint32_t layer) {
  for (std::size_t at = layer * layer_bytes; at < (layer + 1) * layer_bytes; ++at) {
    if (block[at] != mark(key, at)) return false;
  }
  return true;
}

/// Transfers start only in poll(), one at a time. So between two polls at most one layer is under way, whatever the threads do.
class LayersOverlap : public testing::Test {
 protected:
  void make(EmulatedFaults faults = {}) {
    EmulatedOptions options;
    options.link[Direction::swap_in].latency = std::chrono::milliseconds{3};
    options.link[Direction::swap_in].bytes_per_second = per_second(GiB);
    options.faults = faults;
    device.emplace(std::array{PoolMemory{.slots = 8, .host = &arena, .layers = layers}}, options);
    TransferSchedulerConfig scheduler_config;
    scheduler_config.pieces.bytes = Bytes{layer_bytes * prompt.size()};
    scheduler_config.pieces.in_flight = 1;
    transfers.emplace(scheduler_config, *device, clock, waker);
    ManagerConfig config;
    config.pools[0].device_blocks = 8;
    config.pools[0].host_blocks = 16;
    cache.emplace(config, CacheParts{*transfers, {{&arena}}, clock, &waker});
  }
  ~LayersOverlap() override {
    lease.reset();
    if (cache) cache->drain();
    cache.reset();
    transfers.reset();
    device.reset();
  }

  /// Sleeps until a poll has something to collect. A transfer that the last poll decided starts in the next poll, and wakes
  /// nobody.
  void sleep() {
    if (cache->has_pending_work() && cache->next_deadline() == never) waker.wait(patience_ms);
  }
  void await_ready() {
    while (cache->state(lease) != RequestState::ready) {
      for (const RequestEvent& event : cache->poll()) ASSERT_FALSE(event.error) << event.error.message();
      sleep();
    }
  }
  void acquire(const std::vector<BlockKey>& keys, bool by_layer = false) {
    AcquireRequest wanted = request_for(++last_id, keys);
    wanted.by_layer = by_layer;
    lease = cache->acquire(wanted).value();
  }
  void compute(const std::vector<BlockKey>& keys) {
    acquire(keys);
    await_ready();
    const auto table = cache->block_table(lease).value();
    const Fence written = device->launch(writes(keys, {table.begin(), table.end()}));
    ASSERT_TRUE(cache->commit(lease, keys, written).has_value());
    lease.used_until(written);
    lease.reset();
    cache->drain();
  }
  void await_compute(Fence point) {
    while (device->reached() < point) std::this_thread::yield();
  }
  /// Loads the prompt from the host. Launches the compute of each layer when the layer is reported. The next poll, which may
  /// start more of the load, comes when that compute is done. Returns the number of wrong layers in all blocks.
  std::uint64_t load_and_compute() {
    compute(prompt);
    compute(keys_of({91, 92, 93, 94, 95, 96, 97, 98}));
    EXPECT_EQ(cache->match(prompt).found[Source::host], prompt.size());
    acquire(prompt, true);
    std::uint64_t wrong = 0;
    std::uint32_t computed = 0;
    for (bool done = false; !done;) {
      for (const RequestEvent& event : cache->poll()) {
        EXPECT_FALSE(event.error) << event.error.message();
        done = event.ends_wait();
        const std::uint32_t upto = done ? layers : event.layers;
        EXPECT_GT(upto, computed);
        if (!done) ++layers_told;
        const auto table = cache->block_table(lease).value();
        const std::vector<SlotId> slots(table.begin(), table.end());
        const Fence point = device->launch([&, from = computed, upto, slots](BlockAccess& access) {
          for (std::size_t i = 0; i < prompt.size(); ++i) {
            const auto block = access.read(slots[i], {});
            for (std::uint32_t layer = from; layer < upto; ++layer) wrong += !holds_layer(block, prompt[i], layer);
            // Layers after the piece that this poll has started cannot have moved yet.
            for (std::uint32_t layer = upto + 1; layer < layers; ++layer) ahead_of_load += !holds_layer(block, prompt[i], layer);
          }
        });
        await_compute(point);
        computed = upto;
      }
      if (!done) sleep();
    }
    return wrong;
  }

  const std::vector<BlockKey> prompt = keys_of({1, 2, 3, 4});
  SteadyClock clock;
  EventFdWaker waker;
  HostArena arena{16, block_bytes, MiB};
  std::optional<EmulatedDevice> device;
  std::optional<TransferEngine> transfers;
  std::optional<Cache> cache;
  Lease lease;
  std::uint64_t last_id = 0;
  std::uint32_t layers_told = 0;
  std::uint64_t ahead_of_load = 0;  ///< layers that had not arrived yet when compute looked
};

TEST_F(LayersOverlap, computes_a_layer_while_those_behind_it_have_not_arrived) {
  make();
  EXPECT_EQ(load_and_compute(), 0U);
  EXPECT_EQ(layers_told, layers - 1);
  // During the compute of layer n, the layers from n + 2 on have not arrived: 6 + 5 + … + 1, in four blocks.
  EXPECT_EQ(ahead_of_load, 21 * prompt.size());
}

TEST_F(LayersOverlap, finds_a_layer_that_was_told_of_before_its_bytes_had_moved) {
  make({.late_every = 1, .late_by = std::chrono::milliseconds{50}});
  EXPECT_GT(load_and_compute(), 0U);
}

// ---- on an event loop

class LayersLoop : public testing::Test {
 protected:
  LayersLoop() {
    CacheSystemOptions options;
    options.pools = {{.block_bytes = MiB, .layers = layers, .device_blocks = 8, .host_blocks = 16}};
    EmulatedGpu gpu;
    gpu.link[Direction::swap_in].latency = std::chrono::milliseconds{2};
    options.ranks[0].device = gpu;
    stack = std::make_unique<CacheSystem>(options);
    runtime = std::make_unique<AsyncCache>(pool.get_executor(), stack->cache());
  }
  void TearDown() override {
    runtime->stop(asio::use_future).get();
    pool.join();
    runtime.reset();
    stack->cache().manager().check_invariants();
  }
  Grant acquire(std::uint64_t id, const std::vector<BlockKey>& keys, bool by_layer = false, TimePoint deadline = never) {
    AcquireRequest wanted = request_for(id, keys);
    wanted.by_layer = by_layer;
    wanted.deadline = deadline;
    return runtime->acquire(wanted, asio::use_future).get();
  }
  void compute(std::uint64_t id, const std::vector<BlockKey>& keys) {
    const Grant grant = acquire(id, keys);
    const Fence written = stack->device().launch(writes(keys, grant.table));
    (void)runtime->commit(grant.lease, keys, written, asio::use_future).get();
  }
  void push_down(const std::vector<BlockKey>& keys) {
    compute(101, keys);
    compute(102, keys_of({91, 92, 93, 94, 95, 96, 97, 98}));
  }

  const std::vector<BlockKey> prompt = keys_of({1, 2, 3, 4});
  std::unique_ptr<CacheSystem> stack;
  asio::thread_pool pool{2};
  std::unique_ptr<AsyncCache> runtime;
};

TEST_F(LayersLoop, a_request_is_granted_with_its_first_layers_and_awaits_the_others) {
  push_down(prompt);
  Grant grant = acquire(1, prompt, true);
  ASSERT_EQ(grant.table.size(), 4U);
  EXPECT_EQ(grant.hit_sources, std::vector(4, Source::host));
  std::uint64_t wrong = 0;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const std::uint32_t arrived = runtime->layers(grant.lease, layer + 1, asio::use_future).get();
    EXPECT_GE(arrived, layer + 1);
    grant.lease.used_until(stack->device().launch([&, layer, slots = grant.table](BlockAccess& access) {
      for (std::size_t i = 0; i < prompt.size(); ++i) wrong += !holds_layer(access.read(slots[i], {}), prompt[i], layer);
    }));
  }
  EXPECT_EQ(runtime->layers(grant.lease, Grant::all_layers, asio::use_future).get(), Grant::all_layers);
  EXPECT_EQ(runtime->commit(grant.lease, prompt, Fence{}, asio::use_future).get().units, HashUnits{4});
  const Fence last = stack->device().launch([](BlockAccess&) {});
  while (stack->device().reached() < last) std::this_thread::yield();
  EXPECT_EQ(wrong, 0U);
}

TEST_F(LayersLoop, a_request_that_was_ready_at_once_has_all_its_layers) {
  compute(101, prompt);
  const Grant grant = acquire(1, prompt, true);
  EXPECT_EQ(grant.layers, Grant::all_layers);
  EXPECT_EQ(runtime->layers(grant.lease, 3, asio::use_future).get(), Grant::all_layers);
}

TEST_F(LayersLoop, a_clear_fails_those_who_await_layers) {
  push_down(prompt);
  Grant grant = acquire(1, prompt, true);
  auto rest = runtime->layers(grant.lease, Grant::all_layers, asio::use_future);
  runtime->perform([](Cache& cache) { cache.clear({}); }, asio::use_future).get();
  bool failed = false;
  try {
    (void)rest.get();
  } catch (const boost::system::system_error& error) {
    failed = true;
    EXPECT_EQ(error.code(), Errc::cleared);
    EXPECT_THROW((void)runtime->layers(grant.lease, 1, asio::use_future).get(), boost::system::system_error);
  }
  // Unless it became ready before the clear: a ready request keeps its blocks.
  if (!failed) {
    EXPECT_EQ(runtime->layers(grant.lease, 1, asio::use_future).get(), Grant::all_layers);
  }
  grant = {};
}

}  // namespace
}  // namespace terrace::test
