// A cache on several CUDA devices with the fake driver. Each rank moves its part while the host tier grows and shrinks. Driver
// calls fail on one of the ranks, and every hit is compared byte for byte on every rank.

#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/cache.hpp"
#include "terrace/device.hpp"
#include "tests/runtime/engine/cuda_cache_fixture.hpp"
#include "tests/seed.hpp"
#include "tests/transfer/engine_memory.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/engine/ranked_transfers.hpp"
#include "transfer/engine/transfer_engine.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

/// A rank on this GPU, or an emulated one if there is no value.
using Ordinal = std::optional<int>;

class CudaRanksCache : public CudaCacheFixture {
 protected:
  static constexpr std::uint32_t host_blocks = 8;

  CudaRanksCache() : CudaCacheFixture{FakeCuda::Machine{.devices = 3}} {}

  /// Every second rank has its blocks in regions of an engine.
  void make(std::vector<Ordinal> ordinals, RankPayload payload, std::optional<CopyMethod> method = {}) {
    payload_ = payload;
    const auto ranks = static_cast<std::uint32_t>(ordinals.size());
    make_arena(host_blocks, host_blocks, payload == RankPayload::sharded ? share * ranks : share);
    const std::shared_ptr<HostPins> pins = CudaDevice::shared_pins();
    std::vector<Device*> pointers;
    std::vector<RankedTransfers::Rank> members;
    memories_.resize(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const HostShare its = payload == RankPayload::sharded ? HostShare{share * rank, share} : HostShare{};
      if (const Ordinal ordinal = ordinals[rank]) {
        PoolMemory pool{.slots = device_blocks, .host = arena_.get(), .share = its};
        if (rank % 2 == 0) {
          const PrimaryContext context{cuda_.driver(), *ordinal};
          memories_[rank] = {*ordinal, std::make_unique<EngineMemory>(cuda_.driver(), device_blocks, 4096, 32, 512)};
          pool.regions = memories_[rank].second->regions();
        }
        CudaOptions options;
        options.ordinal = *ordinal;
        options.only_method = method;
        options.pins = pins;
        devices_.push_back(std::make_unique<DriverDevice>(cuda_.driver(), std::array{pool}, options));
        cuda_devices_.push_back(static_cast<DriverDevice*>(devices_.back().get()));
      } else {
        const PoolMemory pool{.slots = device_blocks, .host = arena_.get(), .share = its};
        devices_.push_back(std::make_unique<EmulatedDevice>(std::array{pool}));
      }
      pointers.push_back(devices_.back().get());
      engines_.push_back(std::make_unique<ThreadedTransfers>(TransferSchedulerConfig{}, *pointers.back(), clock_, waker_));
      members.push_back({"rank " + std::to_string(rank), engines_.back().get()});
    }
    all_.emplace(std::move(pointers));
    ranked_.emplace(std::move(members), clock_, waker_, RankedTransfersOptions{.payload = payload});
    make_cache(*ranked_, host_blocks);
  }
  void TearDown() override {
    end_cache();
    ranked_.reset();
    engines_.clear();
    all_.reset();
    devices_.clear();
    EXPECT_EQ(cuda_.registered(), 0U);
    for (auto& [ordinal, memory] : memories_) {
      if (!memory) continue;
      const PrimaryContext context{cuda_.driver(), ordinal};
      memory.reset();
    }
    EXPECT_EQ(cuda_.complaints(), "");
  }
  /// The content of a block is that of its rank, or the same on all ranks.
  Fence launch(Compute compute) override {
    const std::uint64_t step = payload_ == RankPayload::sharded ? 1000 : 0;
    return all_->launch(
        [compute = std::move(compute), step](std::uint32_t rank, BlockAccess& access) { compute(access, step * rank); });
  }
  void await_compute() {
    const Fence last = all_->launch([](std::uint32_t, BlockAccess&) {});
    for (std::uint32_t rank = 0; rank < all_->size(); ++rank) test::await_compute(all_->at(rank), last);
  }
  void expect_no_failures() {
    for (DriverDevice* const each : cuda_devices_) EXPECT_EQ(each->facts().failed, 0U) << each->facts().first_failure;
  }

  RankPayload payload_ = RankPayload::sharded;
  std::vector<std::pair<int, std::unique_ptr<EngineMemory>>> memories_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<DriverDevice*> cuda_devices_;
  std::optional<RankDevices> all_;
  std::vector<std::unique_ptr<ThreadedTransfers>> engines_;
  std::optional<RankedTransfers> ranked_;
};

class CudaRanksCacheMethods : public CudaRanksCache,
                              public ::testing::WithParamInterface<std::tuple<RankPayload, CopyMethod, std::vector<Ordinal>>> {};

std::string name_of(const std::vector<Ordinal>& ordinals) {
  std::string name;
  for (const Ordinal each : ordinals) name += each ? std::to_string(*each) : "e";
  return name;
}

TEST_P(CudaRanksCacheMethods, serve_the_right_blocks_while_the_host_tier_grows_and_shrinks) {
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed_from_env_or(1)));
  const auto& [payload, prefix, ordinals] = GetParam();
  make(ordinals, payload, prefix);
  serve(200, true);
  shrink_to_nothing();
  await_compute();
  EXPECT_EQ(wrong_, 0U);
  EXPECT_GT(from_host_, 50U);
  EXPECT_GT(compared_, from_host_ * ordinals.size() - 1) << "on every rank";
  EXPECT_GT(cuda_.calls("cuMemHostUnregister"), 5);
  EXPECT_EQ(cuda_.calls("cuMemHostUnregister"), cuda_.calls("cuMemHostRegister")) << "once for all ranks";
  expect_no_failures();
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, CudaRanksCacheMethods,
                         testing::Combine(testing::Values(RankPayload::sharded, RankPayload::replicated),
                                          testing::Values(CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel),
                                          testing::Values(std::vector<Ordinal>{0, 1}, std::vector<Ordinal>{0, 1, 2},
                                                          std::vector<Ordinal>{1, 1}, std::vector<Ordinal>{{}, 2})),
                         [](const auto& name) {
                           return std::string{to_string(std::get<0>(name.param))} + "_" +
                                  std::string{to_string(std::get<1>(name.param))} + "_" + name_of(std::get<2>(name.param));
                         });

TEST_F(CudaRanksCache, a_call_that_fails_on_one_rank_costs_a_block_and_nobody_sees_another) {
  for (const RankPayload payload : {RankPayload::sharded, RankPayload::replicated}) {
    make({0, 1}, payload, CopyMethod::batch);
    for (int i = 0; i < 40; ++i) {
      // Only the copies under test fail: the compute of this suite uses the plain copy method.
      cuda_.fail("memcpy_batch_13000", CUDA_ERROR_UNKNOWN, i % 7, 1);
      serve(5, false);
    }
    await_compute();
    EXPECT_EQ(wrong_, 0U);
    EXPECT_GT(from_host_, 50U) << "the rest is served as ever";
    EXPECT_EQ(cuda_devices_[0]->facts().failed, 0U);
    EXPECT_GT(cuda_devices_[1]->facts().failed, 20U);
    EXPECT_GT(cache_->manager().stats().load_failures, 0U);
    TearDown();
    cuda_devices_.clear();
    memories_.clear();
    from_host_ = 0;
  }
}

TEST_F(CudaRanksCache, a_chunk_that_one_rank_cannot_have_is_used_by_none) {
  make({0, 1, 2}, RankPayload::sharded);
  cuda_.fail("cuMemHostGetDevicePointer", CUDA_ERROR_OUT_OF_MEMORY, 1, 2);  // on the last rank, for the second of the next chunks
  ASSERT_TRUE(cache_->resize(Tier::host, 32));
  await_host();
  const auto chunks_mapped = [this] { return cache_->host_memory().mapped / (share * 3 * chunk_blocks); };
  for (int i = 0; i < 10'000 && cuda_.registered() != chunks_mapped(); ++i) wait_for_work();
  EXPECT_EQ(cuda_.registered(), chunks_mapped());
  EXPECT_NE(cache_->host_memory().failure.find("cuMemHostGetDevicePointer: CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos)
      << cache_->host_memory().failure;
  EXPECT_LT(cache_->host_memory().usable, 32U);
  serve(40, false);
  ASSERT_TRUE(cache_->resize(Tier::host, 32));
  await_host();
  EXPECT_EQ(cache_->host_memory().usable, 32U) << "it may be tried again";
  serve(40, false);
  await_compute();
  EXPECT_EQ(wrong_, 0U);
  EXPECT_GT(from_host_, 0U);
}

/// The state after an illegal address in a kernel of that rank's engine.
TEST_F(CudaRanksCache, a_rank_whose_context_is_lost_costs_its_hits_and_then_the_rank_and_no_request_gets_a_wrong_block) {
  make({0, 1}, RankPayload::sharded);
  for (std::uint32_t prefix = 0; prefix < 6; ++prefix) run(prefix);
  await_compute();
  ASSERT_EQ(wrong_, 0U);
  const std::uint64_t before = from_host_;
  cuda_.break_context(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  // The engine of that rank is down and compares nothing. Loads fail, and requests compute.
  Lease lease = begin(0);
  while (cache_->state(lease) != RequestState::ready) wait_for_work();
  EXPECT_TRUE(cache_->hit_sources(lease).value().empty());
  EXPECT_GT(cache_->manager().stats().load_failures, 0U);
  EXPECT_EQ(from_host_, before);
  cache_->release(std::move(lease), {});
  EXPECT_EQ(cuda_devices_[1]->facts().failed, 0U) << cuda_devices_[1]->facts().first_failure;
  ranked_->lose(0);
  Lease after = begin(1);
  while (cache_->state(after) != RequestState::ready) wait_for_work();
  EXPECT_EQ(ranked_->health(0).state, RankHealth::State::lost);
  EXPECT_EQ(ranked_->health(1).state, RankHealth::State::well);
  cache_->release(std::move(after), {});
  // The host tier still shrinks: another rank undoes the registrations of the lost one.
  shrink_to_nothing();
  EXPECT_EQ(cuda_devices_[1]->facts().failed, 0U) << cuda_devices_[1]->facts().first_failure;
}

}  // namespace
}  // namespace terrace::test
