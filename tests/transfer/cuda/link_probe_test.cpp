// `terrace-lab link` on the fake driver: it measures everything, reports failures, and gives everything back.

#include "lab/gpu/link.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace terrace::test {
namespace {

using tools::LinkFacts;
using tools::LinkProbeSize;

constexpr LinkProbeSize small{.area = MiB * 16, .rounds = 1, .ends = 5, .kernel_milliseconds = 1};

TEST(LinkProbe, measures_both_directions_pieces_ends_and_pins) {
  FakeCuda cuda;
  const LinkFacts facts = tools::probe_link(cuda.driver(), 0, small);
  EXPECT_EQ(facts.device, "Fake GPU");
  EXPECT_TRUE(facts.takes_host_addresses);
  EXPECT_EQ(facts.numa_node, -1);
  EXPECT_GT(facts.swap_in, 0);
  EXPECT_GT(facts.swap_out, 0);
  EXPECT_GT(facts.both, 0);
  EXPECT_EQ(facts.ends.size(), 2U);
  EXPECT_EQ(facts.queues.size(), 2 * 4 * tools::link_pieces_under_way.size());
  for (const LinkFacts::Queue& queue : facts.queues) EXPECT_GT(queue.gb_per_s, 0);
  ASSERT_EQ(facts.pins.size(), 2U);
  EXPECT_FALSE(facts.pins[0].beside_kernel);
  EXPECT_TRUE(facts.pins[1].beside_kernel);
  EXPECT_EQ(cuda.registered(), 0U);
  EXPECT_EQ(cuda.complaints(), "");
}

TEST(LinkProbe, reports_a_failure_and_gives_everything_back) {
  for (int after = 0; after < 60; ++after) {
    FakeCuda cuda;
    cuda.fail_any(CUDA_ERROR_UNKNOWN, after);
    try {
      static_cast<void>(tools::probe_link(cuda.driver(), 0, small));
    } catch (const std::runtime_error& error) {
      EXPECT_STRNE(error.what(), "");
    }
    EXPECT_TRUE(cuda.failed_any());
    EXPECT_EQ(cuda.complaints(), "") << "after " << after << " calls";
  }
  for (const char* const call : {"cuMemHostRegister", "cuEventElapsedTime", "cuEventQuery", "cuMemcpyDtoHAsync"}) {
    FakeCuda cuda;
    cuda.fail(call, CUDA_ERROR_UNKNOWN);
    EXPECT_THROW(static_cast<void>(tools::probe_link(cuda.driver(), 0, small)), CudaError) << call;
    EXPECT_EQ(cuda.registered(), 0U);
    EXPECT_EQ(cuda.complaints(), "") << call;
  }
}

}  // namespace
}  // namespace terrace::test
