// CacheSystem::relocate on two CUDA devices with the fake driver, with two groups of regions on each.
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request_for.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "tests/transfer/engine_memory.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/device/slot_memory.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using test::FakeCuda;

constexpr std::uint32_t ranks = 2;
constexpr std::uint32_t slots = 12;
constexpr std::uint32_t tokens = 6;
constexpr Bytes wide{4096 + 32 + 512};  // of a block on one rank
constexpr Bytes narrow{1024 + 64 + 32};

class CudaRelocationOfRanks : public testing::Test {
 protected:
  /// The engine's memory on one GPU: a pool for each of two groups.
  struct RankMemory {
    explicit RankMemory(const CudaDriver& driver) : first{driver, slots, 4096, 32, 512}, second{driver, slots, 1024, 64, 32} {}
    [[nodiscard]] std::vector<std::vector<DeviceRegion>> regions() const { return {first.regions(), second.regions()}; }

    test::EngineMemory first;
    test::EngineMemory second;
  };
  using Memory = std::array<std::unique_ptr<RankMemory>, ranks>;

  CudaRelocationOfRanks() {
    memory_ = allocate();
    CacheSystemOptions options;
    options.groups = {GroupConfig{.block_tokens = 1}, GroupConfig{.block_tokens = 1, .pool = PoolId{1}}};
    options.pools = {{.block_bytes = wide * ranks, .device_blocks = slots, .host_blocks = 16},
                     {.block_bytes = narrow * ranks, .device_blocks = slots, .host_blocks = 16}};
    options.ranks.clear();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      options.ranks.push_back({.device = device(static_cast<int>(rank)), .regions = memory_[rank]->regions()});
    }
    options.storage = MemoryStorage{MiB};
    options.loads = LoadPolicy::always;
    system_.emplace(options);
  }
  ~CudaRelocationOfRanks() override {
    system_.reset();
    free(memory_);
    EXPECT_EQ(cuda_.complaints(), "") << "nothing has touched memory that was freed";
  }
  CustomDevice device(int ordinal) {
    return {[this, ordinal](std::span<const PoolMemory> pools) {
      CudaOptions options;
      options.ordinal = ordinal;
      options.pins = pins_;
      return std::make_shared<DriverDevice>(cuda_.driver(), pools, options);
    }};
  }
  Memory allocate() {
    Memory memory;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const PrimaryContext context{cuda_.driver(), static_cast<int>(rank)};
      memory[rank] = std::make_unique<RankMemory>(cuda_.driver());
    }
    return memory;
  }
  void free(Memory& memory) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const PrimaryContext context{cuda_.driver(), static_cast<int>(rank)};
      memory[rank].reset();
    }
  }
  static std::uint64_t content(std::uint32_t name, std::uint32_t group, std::uint64_t block, std::uint32_t rank) {
    return name * 1000U + group * 100U + block * 10U + rank;
  }
  /// Serves a sequence: compares the hits, computes the other blocks. Returns how many hits came from storage.
  std::size_t serve(std::uint32_t name) {
    Cache& cache = system_->cache();
    const std::vector<BlockKey> keys = test::keys_of(std::vector<std::uint32_t>(tokens, name));
    Lease lease = cache.acquire(test::request_for(++requests_, keys)).value();
    EXPECT_TRUE(cache.wait(lease).has_value());
    const auto found = cache.hit_sources(lease).value();
    const auto from_storage = static_cast<std::size_t>(std::ranges::count(found, Source::storage));
    Fence done;
    for (std::uint16_t group = 0; group < 2; ++group) {
      const auto table = cache.block_table(lease, GroupId{group}).value();
      done = system_->devices().launch([this, name, group, hits = found.size(), table = std::vector(table.begin(), table.end())](
                                           std::uint32_t rank, BlockAccess& access) {
        std::vector<std::byte> scratch(count(group == 0 ? wide : narrow));
        const PoolId pool{group};
        for (std::size_t i = 0; i < table.size(); ++i) {
          if (i < hits) {
            wrong_ += !test::holds(access.read(pool, table[i], scratch), content(name, group, i, rank));
            continue;
          }
          test::fill(access.write_target(pool, table[i], scratch), content(name, group, i, rank));
          access.written(pool, table[i], scratch);
        }
      });
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) test::await_compute(system_->devices().at(rank), done);
    EXPECT_TRUE(cache.commit(lease, keys, done).has_value());
    cache.release(std::move(lease), done);
    return from_storage;
  }
  void fall_asleep() {
    Cache& cache = system_->cache();
    ASSERT_TRUE(cache.checkpoint(std::chrono::seconds{60}).has_value());
    ASSERT_TRUE(cache.reset({.wait = true, .keep_storage = true}).has_value());
    while (cache.status() != CacheStatus::cleared) (void)cache.poll();
    cache.drain();
  }
  static std::vector<RankRegions> at(const Memory& memory) {
    return {{.rank = 0, .regions = memory[0]->regions()}, {.rank = 1, .regions = memory[1]->regions()}};
  }

  FakeCuda cuda_{{.devices = ranks}};
  std::shared_ptr<HostPins> pins_ = CudaDevice::shared_pins();
  Memory memory_;
  std::optional<CacheSystem> system_;
  std::uint64_t requests_ = 0;
  std::atomic<std::uint64_t> wrong_{0};  ///< set by the compute threads
};

TEST_F(CudaRelocationOfRanks, every_rank_and_group_serves_from_its_new_memory) {
  for (int cycle = 0; cycle < 3; ++cycle) {
    EXPECT_EQ(serve(1), cycle == 0 ? 0 : tokens);
    fall_asleep();
    Memory awake = allocate();
    ASSERT_TRUE(system_->relocate(at(awake)).has_value());
    free(memory_);
    memory_ = std::move(awake);
    ASSERT_TRUE(system_->cache().resume().has_value());
  }
  EXPECT_EQ(serve(1), tokens);
  EXPECT_EQ(wrong_, 0U);
}

TEST_F(CudaRelocationOfRanks, is_refused_by_a_rank_whose_memory_is_on_another_gpu_and_moves_none) {
  EXPECT_EQ(serve(1), 0U);
  fall_asleep();
  Memory awake = allocate();
  std::vector<RankRegions> wrong = at(awake);
  wrong[1].regions = wrong[0].regions;
  EXPECT_EQ(system_->relocate(wrong).error(), Errc::invalid_argument);
  free(awake);  // nothing may touch it
  ASSERT_TRUE(system_->cache().resume().has_value());
  EXPECT_EQ(serve(1), tokens);
  EXPECT_EQ(wrong_, 0U);
}

TEST_F(CudaRelocationOfRanks, the_first_rank_moves_back_if_the_second_one_fails) {
  EXPECT_EQ(serve(1), 0U);
  fall_asleep();
  Memory awake = allocate();
  // Each rank is asked first, and then told; the fourth call is the one in which the second rank moves.
  cuda_.fail("cuCtxPushCurrent", CUDA_ERROR_UNKNOWN, 3);
  EXPECT_EQ(system_->relocate(at(awake)).error(), Errc::io_failed);
  free(awake);
  ASSERT_TRUE(system_->cache().resume().has_value());
  EXPECT_EQ(serve(1), tokens);
  EXPECT_EQ(wrong_, 0U);
}

}  // namespace
}  // namespace terrace
