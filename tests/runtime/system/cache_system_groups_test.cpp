// A CacheSystem with several groups, pools and ranks, and with parts of its embedder.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "storage/memory/memory_store.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/refusal.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

constexpr PoolId wide{0};
constexpr PoolId narrow{1};
constexpr std::uint32_t span_tokens = 4;
const std::array groups{
    GroupConfig{.block_tokens = 1},
    GroupConfig{.kind = GroupKind::sliding_window, .block_tokens = 1, .span_tokens = span_tokens, .pool = narrow},
    GroupConfig{.block_tokens = 2}};

/// Full attention with blocks of one and of two tokens in the first pool, and a window in the second.
CacheSystemOptions three_groups() {
  CacheSystemOptions options;
  options.groups.assign(groups.begin(), groups.end());
  options.pools = {{.block_bytes = KiB * 8, .layers = 2, .device_blocks = 16, .host_blocks = 64},
                   {.block_bytes = KiB * 4,
                    .device_blocks = 12,
                    .device_blocks_max = 20,
                    .host_blocks = 32,
                    .null_block = true,
                    .first_slot = 3}};
  options.ranks = {{.device = InstantGpu{}}};
  options.policy = lru_policy;
  options.loads = LoadPolicy::always;
  return options;
}

std::string why_no_system(const CacheSystemOptions& options) {
  return refusal_of<std::exception>([&] { const CacheSystem system{options}; });
}

/// An engine that gives every byte of a block a value that follows from group, block and sequence, and compares all hits.
class Engine {
 public:
  explicit Engine(const CacheSystemOptions& options, std::uint32_t weights = 0)
      : system_{options}, options_{options}, weights_{weights} {}

  /// Serves a sequence of `tokens` tokens that begin with `name`. Returns the hit tokens.
  std::size_t serve(std::uint32_t name, std::uint32_t tokens) {
    const std::vector<BlockKey> keys = keys_of(std::vector<std::uint32_t>(tokens, name));
    AcquireRequest wanted;
    wanted.id = RequestId{++requests_};
    wanted.keys = keys;
    wanted.units = HashUnits{tokens};
    Cache& cache = system_.cache();
    Lease lease = cache.acquire(wanted).value();
    EXPECT_TRUE(cache.wait(lease).has_value());
    const std::size_t hits = cache.hit_sources(lease).value().size();
    Fence done;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto table = cache.block_table(lease, GroupId{static_cast<std::uint16_t>(g)}).value();
      const bool is_window = groups[g].kind == GroupKind::sliding_window;
      done = system_.devices().launch(
          [&, g, is_window, hits, slots = std::vector(table.begin(), table.end())](std::uint32_t rank, BlockAccess& access) {
            const std::size_t first = is_window && hits >= span_tokens ? hits - span_tokens + 1 : 0;
            const std::size_t hit_blocks = hits / groups[g].block_tokens;
            for (std::size_t block = 0; block < slots.size(); ++block) {
              const auto value = static_cast<std::byte>(name * 64 + g * 16 + block + 1 + rank * 7 + weights_);
              if (block >= hit_blocks) write(access, groups[g].pool, slots[block], value);
              else if (block >= first) compare(access, groups[g].pool, slots[block], value);
              else EXPECT_EQ(slots[block], SlotId{options_.pools[groups[g].pool.value()].first_slot}) << "the null block";
            }
          });
    }
    while (system_.devices().reached() < done) system_.cache().poll();
    EXPECT_TRUE(cache.commit(lease, keys, done).has_value());
    cache.release(std::move(lease), done);
    cache.drain();
    return hits;
  }
  CacheSystem& system() { return system_; }
  Cache& cache() { return system_.cache(); }
  [[nodiscard]] std::size_t compared() const { return compared_; }

 private:
  void write(BlockAccess& access, PoolId pool, SlotId slot, std::byte value) {
    std::vector<std::byte> scratch(count(options_.pools[pool.value()].block_bytes));
    std::ranges::fill(access.write_target(pool, slot, scratch), value);
    access.written(pool, slot, scratch);
  }
  void compare(BlockAccess& access, PoolId pool, SlotId slot, std::byte value) {
    std::vector<std::byte> scratch(count(options_.pools[pool.value()].block_bytes));
    const auto bytes = access.read(pool, slot, scratch);
    EXPECT_TRUE(std::ranges::all_of(bytes, [&](std::byte b) { return b == value; })) << "pool " << pool.value();
    ++compared_;
  }

  CacheSystem system_;
  CacheSystemOptions options_;
  std::uint32_t weights_;
  std::uint64_t requests_ = 0;
  std::size_t compared_ = 0;
};

class CacheSystemGroups : public ::testing::Test {
 protected:
  [[nodiscard]] CacheSystemOptions with_files() const {
    CacheSystemOptions options = three_groups();
    options.storage = FileStorage{.directories = {directory_.path() / "kv"}, .capacity = MiB * 2, .io = IoChoice::threads};
    options.write_policy = WritePolicy::write_through;
    return options;
  }

  TemporaryDirectory directory_;
};

TEST_F(CacheSystemGroups, serve_every_group_from_its_pool_and_from_the_host) {
  Engine engine{three_groups()};
  EXPECT_EQ(engine.system().pool_count(), 2U);
  EXPECT_EQ(engine.system().device().info().pool(narrow).slots, 23U)
      << "with those below its first, and those to which it may grow";
  EXPECT_EQ(engine.system().block_bytes(narrow), KiB * 4);
  EXPECT_EQ(engine.serve(1, 6), 0U);
  EXPECT_EQ(engine.serve(1, 6), 6U);
  EXPECT_EQ(engine.serve(2, 6), 0U);
  EXPECT_EQ(engine.serve(3, 6), 0U);
  ASSERT_EQ(engine.cache().match(keys_of({1, 1, 1, 1, 1, 1})).found[Source::host], 6U);
  EXPECT_EQ(engine.serve(1, 6), 6U);
  EXPECT_GT(engine.compared(), 20U);
  for (const PoolId pool : {wide, narrow}) EXPECT_GT(engine.cache().usage(Tier::host, pool).evictable, 0U);
  engine.cache().manager().check_invariants();
}

TEST_F(CacheSystemGroups, share_their_blocks_with_systems_whose_groups_are_the_same) {
  CacheSystemOptions options = three_groups();
  options.shared = SharedStorage{
      .url = "memory:groups", .probe_deadline = std::chrono::minutes{1}, .write_policy = WritePolicy::write_through};
  options.loads = LoadPolicy::always;
  Engine first{options};
  Engine second{options};
  EXPECT_EQ(first.serve(1, 8), 0U);
  EXPECT_EQ(second.serve(1, 8), 8U);
  EXPECT_EQ(second.compared(), 8U + 3U + 4U);
  // With another window the same key would stand for other bytes.
  options.groups[1].span_tokens = span_tokens + 1;
  Engine other{options};
  EXPECT_EQ(other.serve(1, 8), 0U);
}

TEST_F(CacheSystemGroups, resize_each_pool_by_itself) {
  Engine engine{three_groups()};
  ASSERT_EQ(engine.serve(1, 8), 0U);
  EXPECT_TRUE(engine.cache().resize(Tier::device, 20, narrow).has_value());
  EXPECT_EQ(engine.cache().manager().config().pool(narrow).device_blocks, 20U);
  EXPECT_EQ(engine.cache().manager().config().pool(wide).device_blocks, 16U);
  EXPECT_EQ(engine.cache().resize(Tier::device, 21, narrow).error(), Errc::invalid_argument) << "the device has no memory for it";
  EXPECT_EQ(engine.cache().resize(Tier::device, 17, wide).error(), Errc::invalid_argument);
  EXPECT_TRUE(engine.cache().resize(Tier::host, 48, narrow).has_value());
  while (!engine.cache().host_memory(narrow).warm()) engine.cache().poll();
  EXPECT_EQ(engine.cache().host_memory(narrow).usable, 48U);
  EXPECT_EQ(engine.serve(1, 8), 8U);
}

TEST_F(CacheSystemGroups, keep_each_pool_in_a_store_of_its_own_over_a_restart) {
  {
    Engine engine{with_files()};
    EXPECT_EQ(engine.serve(1, 6), 0U);
    EXPECT_EQ(engine.serve(2, 9), 0U);
    ASSERT_TRUE(engine.cache().checkpoint(std::chrono::seconds{60}).has_value());
    for (const PoolId pool : {wide, narrow}) {
      ASSERT_NE(engine.system().store(pool), nullptr);
      EXPECT_GT(engine.system().store(pool)->stat().blocks, 0U);
      EXPECT_EQ(engine.system().storage_health(pool)->state, StoreState::well);
    }
    EXPECT_EQ(engine.system().store(narrow)->block_bytes(), KiB * 4);
  }
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "kv" / "store" / "catalog"));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "kv" / "store-1" / "catalog"));
  Engine again{with_files()};
  EXPECT_EQ(again.cache().match(keys_of({1, 1, 1, 1, 1, 1})).found[Source::storage], 6U);
  EXPECT_EQ(again.serve(1, 6), 6U);
  EXPECT_EQ(again.serve(2, 9), 8U) << "the hit is a whole number of blocks in every group";
}

TEST_F(CacheSystemGroups, lose_the_stored_blocks_of_every_pool_by_a_clear) {
  {
    Engine engine{with_files()};
    EXPECT_EQ(engine.serve(1, 6), 0U);
    for (const PoolId pool : {wide, narrow}) ASSERT_GT(engine.system().store(pool)->stat().blocks, 0U);
    engine.cache().clear({});
    while (engine.cache().erasing()) engine.cache().poll();
    for (const PoolId pool : {wide, narrow}) EXPECT_EQ(engine.system().store(pool)->stat().blocks, 0U) << pool.value();
  }
  Engine with_new_weights{with_files(), 5};
  EXPECT_EQ(with_new_weights.serve(1, 6), 0U);
  for (std::uint32_t other = 2; other < 9; ++other) EXPECT_EQ(with_new_weights.serve(other, 6), 0U);
  EXPECT_EQ(with_new_weights.serve(1, 6), 6U);  // compares the bytes
}

TEST_F(CacheSystemGroups, divide_the_capacity_of_storage_by_the_bytes_of_the_pools) {
  CacheSystemOptions options = three_groups();
  // 80 blocks of 8 KiB and 44 of 4 KiB: 640 and 176 KiB.
  options.storage = MemoryStorage{KiB * 816 * 2};
  Engine engine{options};
  EXPECT_EQ(engine.system().store(wide)->stat().capacity_blocks, 160U);
  EXPECT_EQ(engine.system().store(narrow)->stat().capacity_blocks, 88U);
  options.storage = MemoryStorage{KiB * 16};
  EXPECT_EQ(why_no_system(options), "a storage capacity of 16KiB gives pool 1 no block of 4KiB: at least 18991 bytes are needed");
}

TEST_F(CacheSystemGroups, leave_no_directory_behind_if_a_later_pool_cannot_have_its_store) {
  CacheSystemOptions options = with_files();
  options.pools[1].block_bytes = Bytes{4000};
  EXPECT_NE(why_no_system(options), "");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "kv"));
  options = with_files();
  { const CacheSystem made{options}; }
  std::filesystem::remove_all(directory_.path() / "kv" / "store-1");
  options.pools[1].block_bytes = Bytes{4000};
  EXPECT_NE(why_no_system(options), "");
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "kv" / "store" / "catalog")) << "it was there before";
}

TEST_F(CacheSystemGroups, spread_every_pool_over_the_ranks) {
  CacheSystemOptions options = three_groups();
  options.ranks = {{.device = InstantGpu{}}, {.device = InstantGpu{}}};
  options.pools[0].layers = 1;
  Engine engine{options};
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(engine.system().devices().at(rank).info().pool(wide).block_bytes, KiB * 4);
    EXPECT_EQ(engine.system().devices().at(rank).info().pool(narrow).block_bytes, KiB * 2);
  }
  options.pools[1].block_bytes = Bytes{4095};
  EXPECT_NE(why_no_system(options).find("cannot be dealt out to 2 ranks evenly"), std::string::npos) << why_no_system(options);
}

TEST_F(CacheSystemGroups, use_the_stores_of_their_embedder) {
  CacheSystemOptions options = three_groups();
  const auto first = std::make_shared<MemoryStore>(64, KiB * 8);
  const auto second = std::make_shared<MemoryStore>(64, KiB * 4);
  options.storage = CustomStorage{first, second};
  options.write_policy = WritePolicy::write_through;
  {
    Engine engine{options};
    EXPECT_EQ(engine.system().store(narrow), second.get());
    EXPECT_FALSE(engine.system().storage_health(narrow).has_value());
    EXPECT_EQ(engine.serve(1, 6), 0U);
  }
  EXPECT_GT(first->stat().blocks, 0U);
  EXPECT_GT(second->stat().blocks, 0U);
  second->flush(1);  // a store that still woke the cache's waker would touch freed memory
  std::vector<StoreEvent> events;
  EXPECT_EQ(second->poll(events), 1U);
  Engine again{options};
  EXPECT_EQ(again.serve(1, 6), 6U);
}

TEST_F(CacheSystemGroups, use_the_device_of_their_embedder) {
  CacheSystemOptions options = three_groups();
  std::vector<PoolMemory> asked;
  std::weak_ptr<Device> made;
  options.ranks[0].device = CustomDevice{[&](std::span<const PoolMemory> pools) {
    asked.assign(pools.begin(), pools.end());
    auto device = std::make_shared<EmulatedDevice>(pools);
    made = device;
    return device;
  }};
  {
    Engine engine{options};
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked[0].layers, 2U);
    EXPECT_EQ(asked[1].slots, 23U);
    EXPECT_EQ(&engine.system().device(), made.lock().get());
    EXPECT_EQ(engine.serve(1, 6), 0U);
    EXPECT_EQ(engine.serve(2, 6), 0U);
    EXPECT_EQ(engine.serve(3, 6), 0U);
    EXPECT_EQ(engine.serve(1, 6), 6U);
  }
  EXPECT_TRUE(made.expired());
  const auto with_device = [&](auto change) {
    CacheSystemOptions wrong = options;
    wrong.ranks[0].device = CustomDevice{[change](std::span<const PoolMemory> pools) {
      std::vector<PoolMemory> changed(pools.begin(), pools.end());
      change(changed);
      return std::make_shared<EmulatedDevice>(changed);
    }};
    return why_no_system(wrong);
  };
  EXPECT_EQ(with_device([](auto& pools) { pools.pop_back(); }), "the device of rank 0 has 1 pools, but the cache has 2");
  const std::string needs = ": the cache needs 16 slots of 8KiB in 2 layers";
  EXPECT_EQ(with_device([](auto& pools) { pools[0].slots = 15; }),
            "the device of rank 0 has 15 slots of 8KiB in 2 layers in pool 0" + needs);
  EXPECT_EQ(with_device([](auto& pools) { pools[0].layers = 1; }),
            "the device of rank 0 has 16 slots of 8KiB in 1 layers in pool 0" + needs);
  options.ranks[0].device = CustomDevice{};
  EXPECT_EQ(why_no_system(options), "a device of the embedder needs a function that makes it");
  options.ranks[0].device = CustomDevice{[](std::span<const PoolMemory>) { return nullptr; }};
  EXPECT_EQ(why_no_system(options), "the function of rank 0 made no device");
}

TEST_F(CacheSystemGroups, give_the_manager_every_option) {
  CacheSystemOptions options = three_groups();
  options.storage = MemoryStorage{MiB * 2};
  options.request_units_max = 7;
  options.pinned_blocks_max = 5;
  options.retained_units_max = 9;
  options.write_back_blocks_ahead = 3;
  options.daily_write_bytes = MiB;
  CacheSystem system{options};
  const ManagerConfig& config = system.cache().manager().config();
  EXPECT_EQ(std::tuple(config.request_units_max, config.pinned_blocks_max, config.retained_units_max,
                       config.write_back_blocks_ahead, config.daily_write_bytes),
            std::tuple(7U, 5U, 9U, 3U, MiB));
  EXPECT_EQ(system.cache().daily_writes().limit, MiB);
  EXPECT_EQ(config.pool(narrow).first_slot, 3U);
  EXPECT_EQ(config.pool(narrow).staging_blocks, 64U) << "chosen automatically";
}

TEST_F(CacheSystemGroups, refuse_options_that_do_not_fit_each_other) {
  const auto with = [](auto change) {
    CacheSystemOptions options = three_groups();
    change(options);
    return why_no_system(options);
  };
  const std::shared_ptr<BlockStore> store = std::make_shared<MemoryStore>(8, KiB * 8);
  const std::vector<DeviceRegion> some{{.base = 4096, .stride = 4096, .bytes = 4096}};
  const std::vector<DeviceRegion> others{{.base = 8192, .stride = 4096, .bytes = 4096}};
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_EQ(with([](auto& o) { o.ranks.clear(); }), "there are 0 ranks: at least 1 is needed, and at most 64");
  EXPECT_EQ(with([](auto& o) { o.pools.clear(); }), "a cache needs at least one pool");
  EXPECT_EQ(with([](auto& o) { o.pools[0].block_bytes = {}; }), "pool 0: a block needs at least one byte");
  EXPECT_EQ(with([](auto& o) { o.pools[0].layers = 3; }), "pool 0: a block of 8192 bytes cannot be divided into 3 equal layers");
  EXPECT_EQ(with([](auto& o) { o.pools[0].device_blocks = 0; }), "pool 0: the device needs at least one block");
  EXPECT_EQ(with([](auto& o) { o.pools[1].null_block = false; }),
            "group 1 (sliding-window) may have gaps: its pool 1 needs a null block");
  EXPECT_EQ(with([](auto& o) { o.groups[2].pool = PoolId{2}; }), "group 2 uses pool 2, but there are 2 pools");
  EXPECT_EQ(with([](auto& o) { o.groups.clear(); }), "several pools need several groups, but no group is given");
  EXPECT_EQ(with([](auto& o) { o.write_policy = WritePolicy::write_through; }), "write policy write-through needs storage");
  EXPECT_EQ(with([](auto& o) { o.storage = FileStorage{.capacity = MiB}; }), "file storage needs at least one directory");
  EXPECT_EQ(with([](auto& o) { o.storage = FileStorage{.directories = {"/x"}, .capacity = MiB, .name = ""}; }),
            "file storage of several pools needs a name, because each pool has a directory of its own");
  EXPECT_EQ(with([&](auto& o) { o.storage = CustomStorage{store}; }),
            "there are 1 stores for 2 pools: each pool needs one store");
  EXPECT_EQ(with([&](auto& o) { o.storage = CustomStorage{store, nullptr}; }), "the store of pool 1 is null");
  EXPECT_EQ(with([&](auto& o) {
              o.storage = CustomStorage{store, store};
            }),
            "the store of pool 0 is that of another pool, too: each pool needs its own");
  EXPECT_EQ(with([&](auto& o) {
              o.storage = CustomStorage{store, std::make_shared<MemoryStore>(8, KiB * 8)};
            }),
            "the store of pool 1 has blocks of 8KiB, but the pool has blocks of 4KiB");
  EXPECT_EQ(with([&](auto& o) { o.ranks[0].regions = {some, {}, {}, {}}; }), "rank 0 has regions for 4 groups, but there are 3");
  EXPECT_EQ(with([&](auto& o) {
              o.ranks[0].regions = {some, {}, others};
            }),
            "rank 0: group 2 shares pool 0 with another group, so it must have the same regions or none");
}

TEST_F(CacheSystemGroups, refuse_a_query_for_a_pool_that_does_not_exist) {
  CacheSystem system{three_groups()};
  EXPECT_THROW((void)system.block_bytes(PoolId{2}), std::invalid_argument);
  EXPECT_THROW((void)system.store(PoolId{2}), std::invalid_argument);
  EXPECT_THROW((void)system.storage_health(PoolId{2}), std::invalid_argument);
}

TEST(Shards, of_one_engine_are_systems_over_its_memory) {
  constexpr std::size_t bytes = 4096;
  std::vector<std::byte> kv(16 * bytes);
  const DeviceRegion region{reinterpret_cast<std::uintptr_t>(kv.data()), bytes, bytes, 0};
  const auto shard = [&](std::uint32_t first) {
    CacheSystemOptions options;
    options.ranks = {RankOptions{.device = InstantGpu{}, .regions = {{region}}}};
    options.pools = {{.block_bytes = Bytes{bytes}, .device_blocks = 8, .host_blocks = 0, .first_slot = first}};
    return options;
  };
  CacheSystem one{shard(0)};
  CacheSystem other{shard(8)};
  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4});
  const std::vector<BlockKey> too_many = keys_of({11, 12, 13, 14, 15});
  for (CacheSystem* const system : {&one, &other}) {
    Cache& cache = system->cache();
    EXPECT_EQ(cache.match(keys).total(), 0U) << "what the other has cached is no hit here";
    const Lease lease = cache.acquire({.id = RequestId{1}, .keys = keys}).value();
    const std::uint32_t first = system == &one ? 0 : 8;
    for (const SlotId slot : cache.block_table(lease).value()) {
      EXPECT_GE(slot.value(), first);
      EXPECT_LT(slot.value(), first + 8);
    }
    ASSERT_TRUE(cache.commit(lease, keys, Fence{}).has_value());
    EXPECT_EQ(cache.acquire({.id = RequestId{2}, .keys = too_many}).error(), Errc::no_room) << "the other's slots are no room";
    EXPECT_EQ(cache.match(keys).total(), 4U);
  }
}

}  // namespace
}  // namespace terrace::test
