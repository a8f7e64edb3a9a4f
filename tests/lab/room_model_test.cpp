#include "lab/room/room_model.hpp"

#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <vector>

/// Requests in virtual time: who waits for what, and how long.
namespace terrace::tools {
namespace {

using namespace std::chrono_literals;

/// A block of 100 tokens takes 5 ms to compute and 10 ms on the link.
RoomModel model(std::uint32_t device_blocks) {
  return {.device_blocks = device_blocks,
          .host_blocks = 100,
          .block_tokens = 100,
          .block_bytes = MiB,
          .link_bandwidth = per_second(MiB * 100),
          .notice = Duration{},
          .prefill_speed = 20'000,
          .output_speed = 100};
}

/// A prompt of whole blocks, and one more token.
RoomRequest prompt(Duration arrival, std::uint32_t first_name, std::uint32_t blocks) {
  std::vector<std::uint32_t> names(blocks);
  std::iota(names.begin(), names.end(), first_name);
  return {arrival, blocks * 100 + 1, 1, test::keys_of(names)};
}

TEST(RoomModel, a_request_alone_takes_the_time_of_its_prompt) {
  const std::vector<RoomRequest> requests{prompt(1s, 1, 4)};
  const RoomResult result = serve_in_virtual_time(requests, model(10));
  EXPECT_EQ(result.served, 1U);
  EXPECT_EQ(result.blocks, 4U);
  ASSERT_EQ(result.first_tokens.size(), 1U);
  EXPECT_NEAR(std::chrono::duration<double>{result.first_tokens[0]}.count(), 401 / 20'000.0, 1e-6);
  EXPECT_TRUE(result.slot_waits.empty());
}

TEST(RoomModel, blocks_on_the_device_and_in_the_host_are_not_computed_again) {
  // The second request evicts two blocks of the first one to the host.
  const std::vector<RoomRequest> requests{prompt(0s, 1, 4), prompt(1s, 11, 4), prompt(2s, 1, 4)};
  const RoomResult result = serve_in_virtual_time(requests, model(7));
  EXPECT_EQ(result.served, 3U);
  EXPECT_EQ(result.device_hits + result.host_hits, 4U);
  EXPECT_EQ(result.host_hits, 2U);
  EXPECT_EQ(result.load_waits.size(), 1U);
  EXPECT_NEAR(std::chrono::duration<double>{result.first_tokens[2] - result.load_waits[0]}.count(), 1 / 20'000.0, 1e-6);
}

TEST(RoomModel, without_a_reserve_a_request_waits_for_the_link) {
  const std::vector<RoomRequest> requests{prompt(0s, 1, 4), prompt(1s, 11, 4)};
  const RoomResult result = serve_in_virtual_time(requests, model(7));
  ASSERT_EQ(result.slot_waits.size(), 1U);
  EXPECT_NEAR(std::chrono::duration<double>{result.slot_waits[0]}.count(), 0.02, 0.001) << "five slots, of which three are free";
  EXPECT_EQ(count(result.swapped_out), 2 * count(MiB));
}

TEST(RoomModel, with_a_reserve_it_does_not) {
  std::vector<RoomRequest> requests;
  for (std::uint32_t n = 0; n < 100; ++n) requests.push_back(prompt(1s * n, 1 + 10 * n, 4));
  const RoomResult without = serve_in_virtual_time(requests, model(20));
  RoomModel with = model(20);
  with.device_reserve_max = 0.5;
  const RoomResult ahead = serve_in_virtual_time(requests, with);
  EXPECT_GT(without.slot_waits.size(), 90U);
  EXPECT_LT(ahead.slot_waits.size(), 5U);
  EXPECT_EQ(ahead.served, 100U);
}

TEST(RoomModel, copies_relate_by_the_inclusion_policy) {
  const auto down = [](InclusionPolicy inclusion) {
    RoomModel with = model(7);
    with.inclusion = inclusion;
    std::vector<RoomRequest> requests;
    for (std::uint32_t n = 0; n < 6; ++n) requests.push_back(prompt(1s * n, 1 + 10 * (n % 2), 4));
    const RoomResult result = serve_in_virtual_time(requests, with);
    EXPECT_EQ(count(result.swapped_in), result.host_hits * count(MiB));
    EXPECT_GE(result.lasted, 5s);
    return result.swapped_out;
  };
  // Exclusive copies go down each time. The host has room for all blocks, so that otherwise each goes down once.
  EXPECT_GT(down(InclusionPolicy::exclusive), down(InclusionPolicy::lazy_exclusive));
  EXPECT_EQ(down(InclusionPolicy::lazy_exclusive), down(InclusionPolicy::non_inclusive));
}

TEST(RoomModel, a_request_waits_while_others_hold_all_slots) {
  const std::vector<RoomRequest> requests{prompt(0s, 1, 6), prompt(1ms, 11, 6), prompt(2ms, 21, 100)};
  const RoomResult result = serve_in_virtual_time(requests, model(8));
  EXPECT_EQ(result.queued, 1U);
  EXPECT_EQ(result.served, 2U);
  EXPECT_EQ(result.never_fit, 1U) << "the last one needs more than the device has";
  // The first one ends after its prompt and one token of output.
  EXPECT_GT(result.first_tokens[1], result.first_tokens[0] + 10ms);
}

}  // namespace
}  // namespace terrace::tools
