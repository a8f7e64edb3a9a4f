// `terrace-lab link` on the fake driver: it measures everything, reports failures, and gives everything back.

#include "lab/gpu/link.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace terrace::test {
namespace {

using tools::LinkProbeSize;

constexpr LinkProbeSize small{.area = MiB * 16, .rounds = 1, .ends = 5, .kernel_milliseconds = 1};

TEST(LinkProbe, measures_both_directions_pieces_ends_and_pins) {
  FakeCuda cuda;
  const tools::Row facts = tools::probe_link(cuda.driver(), 0, small);
  EXPECT_EQ(facts.at("device"), "Fake GPU");
  EXPECT_TRUE(facts.at("takes_host_addresses").as_bool());
  EXPECT_EQ(facts.at("numa_node"), -1);
  for (const char* const speed : {"swap_in_gb_per_s", "swap_out_gb_per_s", "both_gb_per_s"}) {
    EXPECT_GT(facts.at(speed).as_double(), 0) << speed;
  }
  EXPECT_EQ(facts.at("ends").as_array().size(), 2U);
  const boost::json::array& queues = facts.at("queues").as_array();
  EXPECT_EQ(queues.size(), 2U * 4 * 4) << "directions, sizes and numbers of pieces";
  for (const boost::json::value& queue : queues) EXPECT_GT(queue.at("gb_per_s").as_double(), 0);
  const boost::json::array& pins = facts.at("pins").as_array();
  ASSERT_EQ(pins.size(), 2U);
  EXPECT_FALSE(pins[0].at("beside_kernel").as_bool());
  EXPECT_TRUE(pins[1].at("beside_kernel").as_bool());
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
