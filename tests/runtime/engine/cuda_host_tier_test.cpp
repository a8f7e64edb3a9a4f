// A cache on the CUDA device with the fake driver. Its host tier grows and shrinks while blocks move, the device memory is
// replaced, and every hit is compared byte for byte.

#include "runtime/engine/cache_parts.hpp"
#include "terrace/cache.hpp"
#include "tests/runtime/engine/cuda_cache_fixture.hpp"
#include "tests/seed.hpp"
#include "tests/transfer/engine_memory.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/engine/transfer_engine.hpp"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <optional>
#include <vector>

namespace terrace {
namespace {

class CudaHostTier : public test::CudaCacheFixture {
 protected:
  CudaHostTier() : CudaCacheFixture{1} {}

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
    all_.emplace(std::vector<Device*>{device_.get()});
    transfers_ = std::make_unique<ThreadedTransfers>(TransferSchedulerConfig{}, *device_, clock_, waker_);
    cache_ = std::make_unique<Cache>(config(host_blocks), CacheParts{*transfers_, {{arena_.get()}}, clock_, &waker_});
  }
  void TearDown() override {
    end_cache();
    transfers_.reset();
    all_.reset();
    device_.reset();
    EXPECT_EQ(cuda_.registered(), 0U);
    {
      const PrimaryContext context{cuda_.driver(), 0};
      memory_.reset();
    }
    EXPECT_EQ(cuda_.complaints(), "");
  }

  std::optional<test::EngineMemory> memory_;
  std::unique_ptr<DriverDevice> device_;
  std::unique_ptr<ThreadedTransfers> transfers_;
};

class CudaHostTierMethods : public CudaHostTier, public ::testing::WithParamInterface<CopyMethod> {};

TEST_P(CudaHostTierMethods, grows_and_shrinks_while_blocks_move_and_every_hit_is_right) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(test::seed_from_env_or(1)));
  make(8, true, GetParam());
  serve(600, true);
  end_host();
  await_compute();
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
      const auto first = static_cast<std::uint32_t>(random_() % 10);
      Lease one = begin(first);
      run(static_cast<std::uint32_t>(random_() % 10));
      end(first, std::move(one));
    }
    ASSERT_TRUE(cache_->reset({.wait = true}));
    while (cache_->status() != CacheStatus::cleared) wait_for_work();
    cache_->drain();
    await_compute();
    // The old memory is gone, and the content of the new memory belongs to no block.
    std::optional<test::EngineMemory> awake;
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
  test::await_compute(*device_, *marked);
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
  await_compute();
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
  await_compute();
  EXPECT_EQ(wrong_, 0U);
  ASSERT_TRUE(cache_->resize(Tier::host, 32));
  await_host();
  EXPECT_EQ(cache_->host_memory().usable, 32U) << "it may be tried again";
  EXPECT_EQ(cache_->host_memory().failure, "");
}

}  // namespace
}  // namespace terrace
