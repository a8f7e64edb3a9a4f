// The CUDA device when driver calls fail, one after another, and when the context fails.
#include "tests/transfer/cuda/cuda_fixture.hpp"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace terrace::test {
namespace {

using enum Direction;

class CudaFailures : public CudaOnFake, public testing::WithParamInterface<CopyMethod> {};

TEST_P(CudaFailures, of_any_call_while_it_is_opened_are_thrown_and_leave_nothing_behind) {
  make_machine();
  bool opened = false;
  int failures = 0;
  for (int after = 0; !opened; ++after) {
    cuda_->fail_any(CUDA_ERROR_OUT_OF_MEMORY, after);
    try {
      open(GetParam());
      // If kernels cannot be loaded, there are none. A device that uses only the copy engine does not notice it.
      opened = !cuda_->failed_any();
      cuda_->fail_any(CUDA_SUCCESS, -1);
      device_.reset();
    } catch (const CudaError& error) {
      EXPECT_EQ(error.result(), CUDA_ERROR_OUT_OF_MEMORY);
      EXPECT_NE(std::string{error.what()}.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << error.what();
      ++failures;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string{error.what()}.find("is not available"), std::string::npos) << error.what();
      ++failures;
    }
    ASSERT_LT(after, 1000);
  }
  EXPECT_GT(failures, 20);
}

TEST_P(CudaFailures, of_any_call_at_work_end_its_command_and_no_other_and_nothing_is_wrong_that_is_said_to_be_right) {
  bool failed = true;
  int reported = 0;
  for (int after = 0; failed; ++after) {
    start(Layout::regions, GetParam());
    write_device();
    const Gate gate;
    cuda_->run_on(engine_.get(), [gate] { gate.wait(); });
    cuda_->fail_any(CUDA_ERROR_UNKNOWN, after);
    const Result<Fence> marked = device_->signal(engine_.get());
    const Fence point = marked ? *marked : Fence{0};
    for (std::uint32_t i = 0; i < 4; ++i) {
      submit(i, swap_out, {run(3 * i, 3 * i, 3)}, point);
      submit(100 + i, swap_in, {run(12 + 3 * i, 12 + 3 * i, 3)}, point);
    }
    gate.open();
    std::set<std::uint64_t> failed_tokens;
    const std::vector<CopyDone> done = await_done(8);
    for (const CopyDone& each : done) {
      if (each.error) failed_tokens.insert(each.token);
    }
    EXPECT_LE(failed_tokens.size(), 1U) << after;
    await_compute(*device_, point);
    failed = cuda_->failed_any();
    cuda_->fail_any(CUDA_SUCCESS, -1);
    EXPECT_EQ(device_->facts().failed, failed ? 1U : 0U) << after;
    for (std::uint32_t i = 0; i < 4; ++i) {
      for (std::uint32_t slot = 3 * i; slot < 3 * i + 3; ++slot) {
        EXPECT_TRUE(failed_tokens.contains(i) || host_holds(slot, 100 + slot)) << after;
        EXPECT_TRUE(failed_tokens.contains(100 + i) || device_holds(12 + slot, 212 + slot)) << after;
      }
    }
    reported += !failed_tokens.empty();
    close();
    ASSERT_LT(after, 1000);
  }
  EXPECT_GT(reported, 20);
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, CudaFailures, testing::Values(CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel),
                         [](const auto& name) { return std::string{to_string(name.param)}; });

TEST_F(CudaOnFake, a_context_that_has_failed_ends_every_command_and_the_device_still_goes_down) {
  start();
  write_device();
  submit(1, swap_out, {run(1, 1, 1)});
  EXPECT_FALSE(await_done(1).at(0).error);
  cuda_->break_context(CUDA_ERROR_ILLEGAL_ADDRESS);
  submit(2, swap_out, {run(2, 2, 1)});
  submit(3, swap_in, {run(3, 3, 1)});
  for (const CopyDone& done : await_done(2)) EXPECT_EQ(done.error, Errc::io_failed);
  EXPECT_EQ(device_->signal(engine_.get()).error(), Errc::io_failed);
  EXPECT_NE(device_->facts().first_failure.find("CUDA_ERROR_ILLEGAL_ADDRESS (as the test has it)"), std::string::npos)
      << device_->facts().first_failure;
  std::vector<std::byte> scratch(count(block_bytes));
  std::byte read{};
  await_compute(*device_, device_->launch([&](BlockAccess& access) { read = access.read(SlotId{4}, scratch)[0]; }));
  EXPECT_EQ(read, std::byte{0xDB}) << "nothing that anybody takes for a block";
  device_.reset();
}

TEST_F(CudaOnFake, a_command_that_failed_half_way_ends_when_its_first_half_has) {
  start(Layout::regions, CopyMethod::plain);
  write_device();
  const Gate gate;
  engine_writes_late(gate, 4, 999);
  const Result<Fence> marked = device_->signal(engine_.get());
  ASSERT_TRUE(marked);
  cuda_->fail("cuMemcpyDtoHAsync", CUDA_ERROR_UNKNOWN, 1);
  submit(1, swap_out, {run(4, 4, 1)}, *marked);
  EXPECT_EQ(ended_soon(), 0U) << "its first piece is on the stream, and will be written";
  gate.open();
  EXPECT_EQ(await_done(1).at(0).error, Errc::io_failed);
  EXPECT_EQ(arena_.block(SlotId{4})[0], pattern(999, 0));
  EXPECT_FALSE(host_holds(4, 999));
}

TEST_F(CudaOnFake, a_command_whose_time_cannot_be_told_is_done_all_the_same) {
  start();
  write_device();
  cuda_->fail("cuEventElapsedTime", CUDA_ERROR_UNKNOWN);
  submit(1, swap_out, {run(4, 4, 1)});
  const CopyDone done = await_done(1).at(0);
  EXPECT_FALSE(done.error);
  EXPECT_EQ(done.took, Duration{});
  EXPECT_TRUE(host_holds(4, 104));
  EXPECT_NE(device_->facts().first_failure.find("cuEventElapsedTime"), std::string::npos);
  submit(2, swap_out, {run(5, 5, 1)});
  EXPECT_GT(await_done(1).at(0).took, Duration{});
}

TEST_F(CudaOnFake, a_wait_that_fails_without_having_waited_is_no_end) {
  start(Layout::regions);
  write_device();
  const Gate gate;
  engine_writes_late(gate, 4, 999);
  cuda_->fail("cuEventSynchronize", CUDA_ERROR_UNKNOWN);
  const Result<Fence> marked = device_->signal(engine_.get());
  ASSERT_TRUE(marked);
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_LT(device_->reached(), *marked) << "the failure was of something else, and compute stands still";
  gate.open();
  await_compute(*device_, *marked);
  EXPECT_EQ(device_->facts().failed, 1U);
}

TEST_F(CudaOnFake, a_question_that_fails_does_not_end_a_copy_early) {
  start(Layout::regions);
  write_device();
  const Gate gate;
  engine_writes_late(gate, 4, 999);
  const Result<Fence> marked = device_->signal(engine_.get());
  ASSERT_TRUE(marked);
  cuda_->fail("cuEventQuery", CUDA_ERROR_UNKNOWN);
  submit(1, swap_out, {run(4, 4, 1)}, *marked);
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  std::vector<CopyDone> done;
  EXPECT_EQ(device_->poll(done), 0U);
  gate.open();
  EXPECT_EQ(await_done(1).at(0).error, Errc::io_failed) << "what failed may have been the copy";
  EXPECT_EQ(cuda_->calls("cuEventQuery"), 1);
}

}  // namespace
}  // namespace terrace::test
