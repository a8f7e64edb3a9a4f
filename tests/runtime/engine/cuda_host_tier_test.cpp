// A cache on the CUDA device with the fake driver. Its host tier grows and shrinks while blocks move, the device memory is
// replaced, and every hit is compared byte for byte.

#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/cache.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/engine/cuda_cache_fixture.hpp"
#include "tests/runtime/request.hpp"
#include "tests/seed.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "tests/transfer/engine_memory.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/engine/transfer_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

class CudaHostTier : public CudaCacheFixture {
 protected:
  void make(std::uint32_t host_blocks, bool warm, std::optional<CopyMethod> method) {
    make_arena(host_blocks, warm ? host_blocks : 0, share);
    {
      const PrimaryContext context{cuda_.driver(), 0};
      memory_.emplace(cuda_.driver(), device_blocks, 4096, 32, 512);
    }
    const PoolMemory pool{.slots = device_blocks, .host = arena_.get(), .regions = memory_->regions()};
    CudaOptions options;
    options.only_method = method;
    device_ = std::make_unique<DriverDevice>(cuda_.driver(), std::array{pool}, options);
    transfers_ = std::make_unique<ThreadedTransfers>(TransferSchedulerConfig{}, *device_, clock_, waker_);
    make_cache(*transfers_, host_blocks);
  }
  void TearDown() override {
    end_cache();
    transfers_.reset();
    device_.reset();
    EXPECT_EQ(cuda_.registered(), 0U);
    {
      const PrimaryContext context{cuda_.driver(), 0};
      memory_.reset();
    }
    EXPECT_EQ(cuda_.complaints(), "");
  }
  Fence launch(Compute compute) override {
    return device_->launch([compute = std::move(compute)](BlockAccess& access) { compute(access, 0); });
  }

  std::optional<EngineMemory> memory_;
  std::unique_ptr<DriverDevice> device_;
  std::unique_ptr<ThreadedTransfers> transfers_;
};

class CudaHostTierMethods : public CudaHostTier, public ::testing::WithParamInterface<CopyMethod> {};

TEST_P(CudaHostTierMethods, grows_and_shrinks_while_blocks_move_and_every_hit_is_right) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed_from_env_or(1)));
  make(8, true, GetParam());
  serve(600, true);
  shrink_to_nothing();
  await_compute(*device_, device_->launch([](BlockAccess&) {}));
  EXPECT_EQ(wrong_, 0U);
  EXPECT_GT(from_host_, 100U);
  EXPECT_GT(cuda_.calls("cuMemHostUnregister"), 10);
  EXPECT_EQ(device_->facts().failed, 0U) << device_->facts().first_failure;
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, CudaHostTierMethods, testing::Values(CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel),
                         [](const auto& name) { return std::string{to_string(name.param)}; });

TEST_F(CudaHostTier, serves_from_other_device_memory_each_time_the_engine_has_slept) {
  make(24, true, std::nullopt);
  for (int cycle = 0; cycle < 50; ++cycle) {
    for (int round = 0; round < 12; ++round) {
      const std::uint32_t first = any_prefix();
      Lease one = begin(first);
      run(any_prefix());
      end(first, std::move(one));
    }
    ASSERT_TRUE(cache_->reset({.wait = true}));
    while (cache_->status() != CacheStatus::cleared) wait_for_work();
    cache_->drain();
    await_compute(*device_, device_->launch([](BlockAccess&) {}));
    // The old memory is gone, and the content of the new memory belongs to no block.
    std::optional<EngineMemory> awake;
    {
      const PrimaryContext context{cuda_.driver(), 0};
      awake.emplace(cuda_.driver(), device_blocks, 4096, 32, 512);
      memory_.reset();
    }
    memory_ = std::move(awake);
    ASSERT_TRUE(device_->relocate(std::array{RelocatedPool{PoolId{0}, memory_->regions()}}));
    ASSERT_TRUE(cache_->resume());
  }
  EXPECT_EQ(wrong_, 0U);
  EXPECT_GT(from_host_, 50U);
  EXPECT_EQ(device_->facts().failed, 0U) << device_->facts().first_failure;
}

TEST_F(CudaHostTier, keeps_slots_in_quarantine_while_a_kernel_that_nobody_has_marked_may_use_them) {
  make(24, true, std::nullopt);
  for (std::uint32_t prefix = 1; prefix <= 4; ++prefix) run(prefix);
  StreamHandle stream;
  {
    const PrimaryContext context{cuda_.driver(), 0};
    stream = make_stream(cuda_.driver());
  }
  std::promise<void> gate;
  {
    const Lease lost = begin(5);
    while (cache_->state(lost) != RequestState::ready) wait_for_work();
    ASSERT_TRUE(cache_->block_table(lost));
    cuda_.run_on(stream.get(), [open = gate.get_future().share()] { open.wait(); });
  }
  static_cast<void>(cache_->poll());
  EXPECT_EQ(cache_->manager().device_ledger().quarantined, 3U);
  const Result<Fence> marked = device_->signal(stream.get());
  ASSERT_TRUE(marked);
  static_cast<void>(cache_->poll());
  EXPECT_EQ(cache_->manager().device_ledger().quarantined, 3U);
  gate.set_value();
  await_compute(*device_, *marked);
  static_cast<void>(cache_->poll());
  EXPECT_EQ(cache_->manager().device_ledger().quarantined, 0U);
  const PrimaryContext context{cuda_.driver(), 0};
  stream = {};
}

TEST_F(CudaHostTier, serves_before_it_is_warm) {
  make(64, false, std::nullopt);
  for (std::uint32_t prefix = 0; prefix < 6; ++prefix) run(prefix);
  await_host();
  EXPECT_EQ(cuda_.registered(), 16U);
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t prefix = 0; prefix < 8; ++prefix) run(prefix);
  }
  await_compute(*device_, device_->launch([](BlockAccess&) {}));
  EXPECT_GT(from_host_, 0U);
  EXPECT_EQ(wrong_, 0U);
}

TEST_F(CudaHostTier, that_cannot_be_pinned_stops_growing_where_it_is_and_says_why) {
  make(8, true, std::nullopt);
  cuda_.fail("cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY, 2);  // fails for the third of six chunks
  ASSERT_TRUE(cache_->resize(Tier::host, 32));
  await_host();
  // Chunks after the failed one may have arrived before the failure was noticed. They are given back.
  const auto chunks_mapped = [this] { return cache_->host_memory().mapped / (share * chunk_blocks); };
  for (int i = 0; i < 10'000 && cuda_.registered() != chunks_mapped(); ++i) wait_for_work();
  const HostMemory memory = cache_->host_memory();
  EXPECT_NE(memory.failure.find("cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << memory.failure;
  EXPECT_LT(memory.usable, 32U);
  EXPECT_EQ(cuda_.registered(), chunks_mapped()) << "what is mapped is registered, and nothing else";
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t prefix = 0; prefix < 8; ++prefix) run(prefix);
  }
  await_compute(*device_, device_->launch([](BlockAccess&) {}));
  EXPECT_EQ(wrong_, 0U);
  ASSERT_TRUE(cache_->resize(Tier::host, 32));
  await_host();
  EXPECT_EQ(cache_->host_memory().usable, 32U) << "it may be tried again";
  EXPECT_EQ(cache_->host_memory().failure, "");
}

// ---- cacheSystem::relocate on two CUDA devices with the fake driver, with two groups of regions on each

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

    EngineMemory first;
    EngineMemory second;
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
    const std::vector<BlockKey> keys = keys_of(std::vector<std::uint32_t>(tokens, name));
    Lease lease = cache.acquire(request_for(++requests_, keys)).value();
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
            wrong_ += !holds(access.read(pool, table[i], scratch), content(name, group, i, rank));
            continue;
          }
          fill(access.write_target(pool, table[i], scratch), content(name, group, i, rank));
          access.written(pool, table[i], scratch);
        }
      });
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) await_compute(system_->devices().at(rank), done);
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
}  // namespace terrace::test
