// Device memory that has moved, as after an engine was asleep: the device takes the new addresses between transfers.
#include "tests/transfer/cuda/cuda_fixture.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace terrace::test {
namespace {

using enum Direction;

class CudaRelocation : public CudaOnFake {
 protected:
  ~CudaRelocation() override {
    device_.reset();
    awake_.reset();
    close();
  }
  void start_regions(std::optional<CopyMethod> method = {}) {
    start(Layout::regions, method);
    awake_.emplace(cuda_->driver(), slots, part_bytes[0], part_bytes[1], part_bytes[2]);
  }
  static std::vector<RelocatedPool> moved(std::vector<DeviceRegion> regions, std::uint16_t pool = 0) {
    return {{PoolId{pool}, std::move(regions)}};
  }
  /// The exception's text; empty if there is none.
  std::string refusal(const std::vector<RelocatedPool>& pools) {
    try {
      EXPECT_TRUE(device_->relocate(pools));
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  }
  std::optional<EngineMemory> awake_;
};

TEST_F(CudaRelocation, blocks_move_to_and_from_the_new_addresses_on_every_method_and_never_the_old) {
  for (const CopyMethod method : {CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel, CopyMethod::bulk_kernel}) {
    start_regions(method);
    write_device();
    submit(1, swap_out, {run(3, 3, 2)});
    ASSERT_FALSE(await_done(1).at(0).error);
    ASSERT_TRUE(device_->relocate(moved(awake_->regions())));
    // The engine has freed its memory: the driver reports every later access.
    memory_.reset();
    submit(2, swap_in, {run(0, 0, slots)});
    ASSERT_FALSE(await_done(1).at(0).error);
    EXPECT_TRUE(device_holds(4, 104));
    EXPECT_TRUE(device_holds(9, 209));
    std::byte first{};
    std::memcpy(&first, cuda_->at(awake_->regions()[0].base + 4 * awake_->regions()[0].stride), 1);
    EXPECT_EQ(first, pattern(104, 0));
    fill(arena_.block(SlotId{9}), 0);
    submit(3, swap_out, {run(9, 9, 1)});
    ASSERT_FALSE(await_done(1).at(0).error);
    EXPECT_TRUE(host_holds(9, 209));
    device_.reset();
    awake_.reset();
    close();
  }
}

TEST_F(CudaRelocation, is_refused_while_a_command_is_under_way) {
  start_regions();
  write_device();
  const Gate gate;
  engine_writes_late(gate, 4, 999);
  const Result<Fence> written = device_->signal(engine_.get());
  ASSERT_TRUE(written);
  submit(1, swap_out, {run(4, 4, 1)}, *written);
  EXPECT_EQ(device_->relocate(moved(awake_->regions())).error(), Errc::in_use);
  gate.open();
  await_compute(*device_, *written);
  EXPECT_EQ(device_->relocate(moved(awake_->regions())).error(), Errc::in_use) << "its end has not been collected";
  EXPECT_FALSE(await_done(1).at(0).error);
  EXPECT_TRUE(host_holds(4, 999)) << "from the old addresses";
  EXPECT_TRUE(device_->relocate(moved(awake_->regions())));
}

TEST_F(CudaRelocation, is_refused_while_launched_work_is_not_done) {
  start_regions();
  const Gate gate;
  const Fence work = device_->launch([gate](BlockAccess&) { gate.wait(); });
  EXPECT_EQ(device_->relocate(moved(awake_->regions())).error(), Errc::in_use);
  gate.open();
  await_compute(*device_, work);
  EXPECT_TRUE(device_->relocate(moved(awake_->regions())));
}

TEST_F(CudaRelocation, does_not_wait_for_computations_of_the_engine) {
  start_regions();
  const Gate gate;
  cuda_->run_on(engine_.get(), [gate] { gate.wait(); });
  ASSERT_TRUE(device_->signal(engine_.get()));
  EXPECT_TRUE(device_->relocate(moved(awake_->regions()))) << "they have addresses of their own";
  gate.open();
}

TEST_F(CudaRelocation, is_refused_in_a_sentence_where_the_regions_do_not_fit_and_changes_nothing) {
  start_regions();
  const auto says = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  std::vector<DeviceRegion> regions = awake_->regions();
  regions.pop_back();
  EXPECT_TRUE(says(refusal(moved(regions)), "pool 0 has 3 regions, and not 2")) << refusal(moved(regions));
  regions = awake_->regions();
  std::swap(regions[0], regions[1]);
  EXPECT_TRUE(says(refusal(moved(regions)), "region 0 of pool 0 holds")) << refusal(moved(regions));
  regions = awake_->regions();
  regions[2].stride += 16;
  EXPECT_TRUE(says(refusal(moved(regions)), "at a stride of")) << refusal(moved(regions));
  regions = awake_->regions();
  regions.back().layer = 1;
  EXPECT_TRUE(says(refusal(moved(regions)), "is of layer 0, and not of 1")) << refusal(moved(regions));
  regions = awake_->regions();
  regions[2].base = reinterpret_cast<std::uintptr_t>(arena_.block(SlotId{0}).data());  // host memory
  EXPECT_TRUE(says(refusal(moved(regions)), "is not memory of this device")) << refusal(moved(regions));
  regions = awake_->regions();
  regions[1].base = regions[0].base;
  EXPECT_TRUE(says(refusal(moved(regions)), "overlap")) << refusal(moved(regions));
  EXPECT_TRUE(says(refusal(moved(awake_->regions(), 7)), "there is no pool 7"));
  write_device();
  submit(1, swap_out, {run(2, 2, 1)});
  ASSERT_FALSE(await_done(1).at(0).error);
  EXPECT_EQ(cuda_->at(memory_->regions()[0].base)[0], pattern(100, 0)) << "where it was";
  cuda_->fail("cuCtxPushCurrent", CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(device_->relocate(moved(awake_->regions())).error(), Errc::io_failed);
}

TEST_F(CudaRelocation, is_refused_where_the_memory_is_the_devices_own) {
  start(Layout::packed);
  awake_.emplace(cuda_->driver(), slots, part_bytes[0], part_bytes[1], part_bytes[2]);
  EXPECT_NE(refusal(moved(awake_->regions())).find("the device's own"), std::string::npos);
}

TEST_F(CudaRelocation, pools_may_change_places_with_each_other) {
  make_machine();
  EngineMemory first{cuda_->driver(), 4, part_bytes[0], part_bytes[1], part_bytes[2]};
  EngineMemory second{cuda_->driver(), 4, part_bytes[0], part_bytes[1], part_bytes[2]};
  const std::array pools{PoolMemory{.slots = 4, .host = &arena_, .regions = first.regions()},
                         PoolMemory{.slots = 4, .host = &arena_, .regions = second.regions()}};
  device_ = std::make_unique<DriverDevice>(cuda_->driver(), pools, CudaOptions{});
  device_->set_waker(waker_);
  const auto overlapping = moved(second.regions());
  EXPECT_NE(refusal(overlapping).find("blocks of pool 0 overlap those of pool 1"), std::string::npos);
  const std::vector<RelocatedPool> swapped{{PoolId{0}, second.regions()}, {PoolId{1}, first.regions()}};
  ASSERT_TRUE(device_->relocate(swapped));
  fill(arena_.block(SlotId{0}), 5);
  submit(1, swap_in, {run(0, 0, 1)});
  ASSERT_FALSE(await_done(1).at(0).error);
  EXPECT_EQ(cuda_->at(second.regions()[0].base)[0], pattern(5, 0));
  device_.reset();
}

}  // namespace
}  // namespace terrace::test
