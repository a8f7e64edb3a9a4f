// CacheSystem::relocate: an engine on two ranks, with two pools and three groups, gives up its memory and gets other memory.
#include "terrace/keys.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"
#include "transfer/emulated/emulated_device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace {
namespace {

constexpr std::uint32_t ranks = 2;
constexpr std::uint32_t slots = 24;
constexpr std::size_t wide_part = 2048;  // of one layer of a block of the first pool, on one rank
constexpr std::size_t narrow_part = 1024;
const std::array groups{GroupConfig{.block_tokens = 1}, GroupConfig{.block_tokens = 1, .pool = PoolId{1}},
                        GroupConfig{.block_tokens = 2}};

/// The memory of one rank: two layers in the first pool, and one in the second.
struct RankMemory {
  std::vector<std::byte> wide = std::vector<std::byte>(2 * slots * wide_part);
  std::vector<std::byte> narrow = std::vector<std::byte>(slots * narrow_part);

  [[nodiscard]] std::vector<std::vector<DeviceRegion>> regions() const {
    const auto base = reinterpret_cast<std::uintptr_t>(wide.data());
    const auto other = reinterpret_cast<std::uintptr_t>(narrow.data());
    return {{{base, wide_part, wide_part, 0}, {base + slots * wide_part, wide_part, wide_part, 1}},
            {{other, narrow_part, narrow_part, 0}},
            {}};  // the third group shares the first pool
  }
  [[nodiscard]] std::vector<std::span<std::byte>> block(std::size_t group, SlotId slot) {
    const std::size_t at = slot.value();
    if (group == 1) return {std::span{narrow}.subspan(at * narrow_part, narrow_part)};
    return {std::span{wide}.subspan(at * wide_part, wide_part), std::span{wide}.subspan((slots + at) * wide_part, wide_part)};
  }
};

class Sentences final : public LogSink {
 public:
  void write(LogLevel level, std::string_view sentence) override {
    const std::lock_guard lock{mutex_};
    all_ += level == LogLevel::error ? "error " : "";
    all_ += sentence;
    all_ += "\n";
  }
  [[nodiscard]] bool say(std::string_view part) const {
    const std::lock_guard lock{mutex_};
    return all_.find(part) != std::string::npos;
  }

 private:
  mutable std::mutex mutex_;
  std::string all_;
};

/// An emulated device that accepts other memory when it is asked, and refuses when it gets it.
class Stubborn final : public Device {
 public:
  Stubborn(std::span<const PoolMemory> pools, int& refusals) : device_{pools}, refusals_{refusals} {}
  [[nodiscard]] const DeviceInfo& info() const override { return device_.info(); }
  void set_waker(Waker& waker) override { device_.set_waker(waker); }
  void submit(CopyCommand command) override { device_.submit(std::move(command)); }
  std::size_t poll(std::vector<CopyDone>& done) override { return device_.poll(done); }
  Fence launch(ComputeWork work) override { return device_.launch(std::move(work)); }
  [[nodiscard]] Fence reached() const override { return device_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return device_.after_all_work(); }
  [[nodiscard]] Result<void> relocate(std::span<const RelocatedPool> pools) override {
    if (refusals_-- > 0) return Errc::io_failed;
    return device_.relocate(pools);
  }

 private:
  EmulatedDevice device_;
  int& refusals_;
};

class Relocation : public testing::Test {
 protected:
  ~Relocation() override { system_.reset(); }
  void open(const DeviceOptions& second = EmulatedGpu{}) {
    CacheSystemOptions options;
    options.ranks = {{.device = EmulatedGpu{}, .regions = memory_[0].regions()},
                     {.device = second, .regions = memory_[1].regions()}};
    options.groups.assign(groups.begin(), groups.end());
    options.pools = {{.block_bytes = Bytes{ranks * 2 * wide_part}, .device_blocks = slots, .host_blocks = 32},
                     {.block_bytes = Bytes{ranks * narrow_part}, .device_blocks = slots, .host_blocks = 32}};
    options.storage = MemoryStorage{MiB};
    options.loads = LoadPolicy::always;
    options.log.sink = &sentences_;
    options.log.per_period = 100;
    system_.emplace(options);
  }
  Cache& cache() { return system_->cache(); }

  static std::byte content(std::uint32_t name, std::size_t group, std::size_t block, std::uint32_t rank) {
    return static_cast<std::byte>(name * 64 + group * 16 + block + 1 + rank * 7);
  }
  Lease acquire(std::uint32_t name) {
    keys_ = test::keys_of(std::vector<std::uint32_t>(tokens, name));
    return cache().acquire(test::request_for(++requests_, keys_)).value();
  }
  /// Serves a sequence. Computes on the host, and compares all hits on all ranks. Returns how many came from storage.
  std::size_t serve(std::uint32_t name) {
    Lease lease = acquire(name);
    EXPECT_TRUE(cache().wait(lease).has_value());
    const auto found = cache().hit_sources(lease).value();
    const auto from_storage = static_cast<std::size_t>(std::ranges::count(found, Source::storage));
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto table = cache().block_table(lease, GroupId{static_cast<std::uint16_t>(g)}).value();
      for (std::size_t block = 0; block < table.size(); ++block) {
        const bool is_hit = block < found.size() / groups[g].block_tokens;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) touch(rank, g, table[block], content(name, g, block, rank), is_hit);
      }
    }
    EXPECT_TRUE(cache().commit(lease, keys_, no_longer_used).has_value());
    cache().release(std::move(lease), no_longer_used);
    return from_storage;
  }
  void touch(std::uint32_t rank, std::size_t group, SlotId slot, std::byte value, bool is_hit) {
    for (const std::span<std::byte> part : memory_[rank].block(group, slot)) {
      if (is_hit) EXPECT_TRUE(std::ranges::all_of(part, [value](std::byte b) { return b == value; })) << rank << " " << group;
      else std::ranges::fill(part, value);
    }
  }
  /// Stores what is cached, and forgets it.
  void fall_asleep() {
    ASSERT_TRUE(cache().checkpoint(std::chrono::seconds{60}).has_value());
    ASSERT_TRUE(cache().reset({.wait = true, .keep_storage = true}).has_value());
    while (cache().status() != CacheStatus::cleared) (void)cache().poll();
    cache().drain();
  }
  static std::vector<RankRegions> at(const std::array<RankMemory, ranks>& memory) {
    return {{.rank = 0, .regions = memory[0].regions()}, {.rank = 1, .regions = memory[1].regions()}};
  }

  static constexpr std::uint32_t tokens = 6;
  Sentences sentences_;
  std::array<RankMemory, ranks> memory_;
  std::optional<CacheSystem> system_;
  std::vector<BlockKey> keys_;
  std::uint64_t requests_ = 0;
};

TEST_F(Relocation, every_rank_and_pool_serves_from_its_new_memory) {
  open();
  for (int cycle = 0; cycle < 3; ++cycle) {
    for (const std::uint32_t name : {1U, 2U}) EXPECT_EQ(serve(name), cycle == 0 ? 0 : tokens);
    fall_asleep();
    std::array<RankMemory, ranks> awake;
    ASSERT_TRUE(system_->relocate(at(awake)).has_value());
    memory_ = std::move(awake);  // the old memory is gone
    ASSERT_TRUE(cache().resume().has_value());
  }
  EXPECT_EQ(serve(1), tokens);
}

TEST_F(Relocation, is_refused_while_requests_live_or_blocks_are_cached_on_the_device) {
  open();
  (void)serve(1);
  std::array<RankMemory, ranks> awake;
  Lease lease = acquire(2);
  EXPECT_EQ(system_->relocate(at(awake)).error(), Errc::in_use);
  cache().release(std::move(lease), no_longer_used);
  cache().drain();
  EXPECT_EQ(system_->relocate(at(awake)).error(), Errc::in_use) << "the first sequence is on the device";
  fall_asleep();
  ASSERT_TRUE(system_->relocate(at(awake)).has_value());
  memory_ = std::move(awake);
  ASSERT_TRUE(cache().resume().has_value());
  EXPECT_EQ(serve(1), tokens);
  system_.reset();
  EXPECT_TRUE(sentences_.say("blocks are cached on the device"));
}

TEST_F(Relocation, is_refused_while_launched_work_of_one_rank_may_use_the_memory) {
  open();
  fall_asleep();
  std::array<RankMemory, ranks> awake;
  std::mutex busy;
  busy.lock();
  const Fence work = system_->devices().launch([&busy](std::uint32_t rank, BlockAccess&) {
    if (rank == 1) const std::lock_guard wait{busy};
  });
  while (system_->devices().at(0).reached() < work) (void)cache().poll();
  EXPECT_EQ(system_->relocate(at(awake)).error(), Errc::in_use) << "the second rank computes";
  busy.unlock();
  Result<void> moved = system_->relocate(at(awake));
  while (moved.error() == Errc::in_use) moved = system_->relocate(at(awake));
  EXPECT_TRUE(moved.has_value());
  memory_ = std::move(awake);
  ASSERT_TRUE(cache().resume().has_value());
  (void)serve(1);
  system_.reset();
  EXPECT_TRUE(sentences_.say("error rank 1: "));
}

TEST_F(Relocation, is_refused_if_the_regions_of_one_rank_do_not_fit_and_moves_none) {
  open();
  (void)serve(1);
  fall_asleep();
  const std::array<RankMemory, ranks> awake;
  const auto refused = [&](auto change) {
    std::vector<RankRegions> wrong = at(awake);
    change(wrong);
    return system_->relocate(wrong).error();
  };
  EXPECT_EQ(refused([](auto& wrong) { wrong[1].rank = 2; }), Errc::invalid_argument);
  EXPECT_EQ(refused([](auto& wrong) { wrong[1].rank = 0; }), Errc::invalid_argument);
  EXPECT_EQ(refused([](auto& wrong) { wrong[1].regions.emplace_back(); }), Errc::invalid_argument);
  EXPECT_EQ(refused([](auto& wrong) { wrong[1].regions[2] = wrong[1].regions[1]; }), Errc::invalid_argument);
  EXPECT_EQ(refused([](auto& wrong) { wrong[1].regions[0].pop_back(); }), Errc::invalid_argument);
  EXPECT_EQ(refused([](auto& wrong) { wrong[1].regions[1][0].stride += 8; }), Errc::invalid_argument);
  // The memory has not moved on either rank.
  ASSERT_TRUE(cache().resume().has_value());
  EXPECT_EQ(serve(1), tokens);
  system_.reset();
  for (const char* const part :
       {"there is no rank 2", "rank 0 is named twice", "rank 1 has regions for 4 groups, but there are 3", "shares pool 0",
        "rank 1: device geometry: pool 0 has 2 regions, and not 1", "at a stride of"}) {
    EXPECT_TRUE(sentences_.say(part)) << part;
  }
}

TEST_F(Relocation, the_ranks_before_one_that_refuses_move_back) {
  int refusals = 0;
  open(CustomDevice{[&](std::span<const PoolMemory> pools) { return std::make_shared<Stubborn>(pools, refusals); }});
  (void)serve(1);
  fall_asleep();
  refusals = 1;
  std::array<RankMemory, ranks> awake;
  EXPECT_EQ(system_->relocate(at(awake)).error(), Errc::io_failed);
  ASSERT_TRUE(cache().resume().has_value());
  EXPECT_EQ(serve(1), tokens) << "both ranks serve from where they were";
  fall_asleep();
  refusals = 0;
  ASSERT_TRUE(system_->relocate(at(awake)).has_value());
  memory_ = std::move(awake);
  ASSERT_TRUE(cache().resume().has_value());
  EXPECT_EQ(serve(1), tokens);
  system_.reset();
  EXPECT_TRUE(sentences_.say("error rank 1: "));
}

TEST_F(Relocation, some_ranks_and_pools_may_move_alone) {
  open();
  (void)serve(1);
  fall_asleep();
  RankMemory awake;
  RankRegions moved{.rank = 1, .regions = awake.regions()};
  moved.regions[0].clear();
  ASSERT_TRUE(system_->relocate(std::array{moved}).has_value());
  memory_[1].narrow = std::move(awake.narrow);
  ASSERT_TRUE(cache().resume().has_value());
  EXPECT_EQ(serve(1), tokens);
}

TEST(RelocationOfDevicesMemory, is_refused) {
  CacheSystemOptions options;
  options.ranks = {{.device = InstantGpu{}}};
  options.pools = {{.block_bytes = KiB * 4, .device_blocks = 4, .host_blocks = 4}};
  CacheSystem system{options};
  std::vector<std::byte> memory(4 * 4096);
  const RankRegions moved{.rank = 0, .regions = {{{reinterpret_cast<std::uintptr_t>(memory.data()), 4096, 4096, 0}}}};
  EXPECT_EQ(system.relocate(std::array{moved}).error(), Errc::invalid_argument);
  EXPECT_TRUE(system.relocate({}).has_value()) << "nothing moves";
}

TEST(RelocationUnderAnOffloadCache, needs_all_jobs_to_have_ended) {
  std::vector<std::byte> memory(4 * 4096, std::byte{7});
  std::vector<std::byte> awake(4 * 4096);
  const auto regions = [](const std::vector<std::byte>& bytes) {
    return std::vector<std::vector<DeviceRegion>>{{{reinterpret_cast<std::uintptr_t>(bytes.data()), 4096, 4096, 0}}};
  };
  CacheSystemOptions options;
  options.ranks = {{.device = InstantGpu{}, .regions = regions(memory)}};
  options.pools = {{.block_bytes = KiB * 4, .device_blocks = 4, .host_blocks = 4}};
  options.engine_owns_slots = true;
  options.key_order = KeyOrder::flat;
  CacheSystem system{options};
  OffloadCache offload{system.cache()};
  const std::vector<BlockKey> keys = test::keys_of({1});
  const std::array slot{SlotId{2}};
  const RankRegions moved{.rank = 0, .regions = regions(awake)};
  ASSERT_TRUE(offload.store({.id = OffloadJobId{1}, .keys = keys, .slots = slot}).has_value());
  EXPECT_EQ(system.relocate(std::array{moved}).error(), Errc::in_use);
  offload.drain();
  (void)offload.poll();
  ASSERT_TRUE(system.relocate(std::array{moved}).has_value());
  std::ranges::fill(memory, std::byte{1});
  ASSERT_TRUE(offload.load({.id = OffloadJobId{2}, .keys = keys, .slots = slot}).has_value());
  offload.drain();
  (void)offload.poll();
  EXPECT_EQ(awake[std::size_t{2} * 4096], std::byte{7}) << "the host tier has kept the block";
}

}  // namespace
}  // namespace terrace
