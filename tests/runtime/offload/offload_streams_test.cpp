#include "tests/runtime/offload/offload_fixture.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace terrace {
namespace {

using std::chrono::milliseconds;

/// The simulated device has one stream, which is its compute timeline.
class OffloadStreams : public Offload {
 protected:
  Result<void> await(std::uint64_t job, std::uint32_t layers = OffloadCache::all_layers) {
    return offload->await(OffloadJobId{job}, layers, StreamRef{});
  }
  /// Work on the stream that looks at one byte of the slot when its turn comes. 0 until then.
  std::shared_ptr<int> look(SlotId slot, std::size_t byte) {
    auto seen = std::make_shared<int>(0);
    device->launch([seen, slot, byte](BlockAccess& access) {
      std::vector<std::byte> scratch(1 << 21);
      *seen = static_cast<int>(access.read(slot, scratch)[byte]);
    });
    return seen;
  }
  /// Work on the stream that overwrites the slot.
  void overwrite(SlotId slot, int byte) {
    device->launch([slot, byte](BlockAccess& access) {
      std::vector<std::byte> scratch(1 << 21);
      std::ranges::fill(access.write_target(slot, scratch), std::byte(byte));
      access.written(slot, scratch);
    });
  }
};

TEST_F(OffloadStreams, a_stream_waits_for_the_blocks_of_a_load) {
  make(sizes(8, KeyOrder::flat));
  const auto keys = names({1, 2});
  put(1, keys, 0, 10);
  device->stuck(Direction::swap_in, true);
  ASSERT_TRUE(offload->load(order(2, keys, slots({5, 6}))).has_value());
  EXPECT_EQ(await(2).error(), Errc::not_ready) << "no copy is on the device yet";
  poll();
  ASSERT_TRUE(await(2).has_value());
  const auto first = look(SlotId{5}, block_bytes - 1);
  const auto second = look(SlotId{6}, block_bytes - 1);
  device->run();
  EXPECT_EQ(*first, 0) << "the stream waits";
  device->stuck(Direction::swap_in, false);
  device->run();
  EXPECT_EQ(*first, 10);
  EXPECT_EQ(*second, 11);
  EXPECT_FALSE(ended(2)) << "no round trip through the host";
  settle();
  EXPECT_EQ(results(2), (std::map<std::uint32_t, ErrorCode>{{0, {}}, {1, {}}}));
}

TEST_F(OffloadStreams, a_stream_waits_for_some_layers_and_not_for_later_ones) {
  lanes.pieces.bytes = Bytes{2 * block_bytes / 4};  // one layer of two blocks
  make(sizes(8, KeyOrder::flat));
  const auto keys = names({1, 2});
  put(1, keys, 0, 10);
  OffloadOrder wanted = order(2, keys, slots({5, 6}));
  wanted.by_layer = true;
  ASSERT_TRUE(offload->load(wanted).has_value());
  poll();
  ASSERT_TRUE(await(2, 1).has_value());
  const auto early = look(SlotId{6}, 0);
  const auto late = look(SlotId{6}, block_bytes - 1);
  const auto computes = [&] {
    const auto options = device->step_options();
    return std::ranges::find(options, SimulatedDevice::Part::compute) != options.end();
  };
  while (!computes()) device->step(SimulatedDevice::Part::swap_in);
  while (computes()) device->step(SimulatedDevice::Part::compute);
  EXPECT_EQ(*early, 11);
  EXPECT_EQ(*late, 0) << "it was not waited for";
  Result<void> whole = await(2);
  for (int i = 0; i < 20 && whole.error() == Errc::not_ready; ++i) {
    device->run();
    poll();
    whole = await(2);
  }
  ASSERT_TRUE(whole.has_value());
  const auto last = look(SlotId{6}, block_bytes - 1);
  device->run();
  EXPECT_EQ(*last, 11);
}

TEST_F(OffloadStreams, slots_of_a_store_are_overwritten_by_work_on_the_stream_behind_their_copies) {
  make(sizes(8, KeyOrder::flat));
  const auto keys = names({1, 2});
  write(SlotId{0}, 10);
  write(SlotId{1}, 11);
  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(offload->store(order(1, keys, slots({0, 1}))).has_value());
  poll();
  ASSERT_TRUE(await(1, 1).has_value()) << "the number of layers means nothing for a store";
  overwrite(SlotId{0}, 90);
  overwrite(SlotId{1}, 91);
  device->run();
  EXPECT_EQ(read(SlotId{0}), 10) << "the stream waits";
  device->stuck(Direction::swap_out, false);
  device->run();
  EXPECT_EQ(read(SlotId{0}), 90);
  EXPECT_EQ(read(SlotId{1}), 91);
  EXPECT_FALSE(ended(1)) << "no round trip through the host";
  settle();
  ASSERT_TRUE(offload->load(order(2, keys, slots({5, 6}))).has_value());
  settle();
  EXPECT_EQ(read(SlotId{5}), 10);
  EXPECT_EQ(read(SlotId{6}), 11);
}

TEST_F(OffloadStreams, signal_gives_the_point_from_which_a_job_may_copy) {
  make(sizes(8, KeyOrder::flat));
  overwrite(SlotId{0}, 10);
  OffloadOrder wanted = order(1, names({1}), slots({0}));
  wanted.after = offload->signal(StreamRef{}).value();
  ASSERT_TRUE(offload->store(wanted).has_value());
  poll();
  EXPECT_EQ(await(1).error(), Errc::not_ready) << "the copy waits for launched work";
  while (device->reached() < wanted.after) device->step(SimulatedDevice::Part::compute);
  ASSERT_TRUE(await(1).has_value());
  overwrite(SlotId{0}, 90);
  settle();
  ASSERT_TRUE(offload->load(order(2, names({1}), slots({5}))).has_value());
  settle();
  EXPECT_EQ(read(SlotId{5}), 10);
  EXPECT_EQ(offload->signal(StreamRef{}, 1).error(), Errc::invalid_argument) << "no such rank";
}

TEST_F(OffloadStreams, await_knows_which_jobs_can_be_waited_for) {
  make(sizes(8, KeyOrder::flat));
  const auto keys = names({1});
  EXPECT_EQ(await(1).error(), Errc::not_found);
  put(1, keys, 0, 10);
  EXPECT_EQ(await(1).error(), Errc::not_found) << "its end was reported";
  ASSERT_TRUE(offload->store(order(2, keys, slots({0}))).has_value());
  EXPECT_TRUE(await(2).has_value()) << "the block is there already, so nothing is copied";
  EXPECT_EQ(await(2, 0).error(), Errc::invalid_argument);
  poll();
  ASSERT_TRUE(ended(2));
  EXPECT_EQ(await(2).error(), Errc::not_found);
  std::vector<std::byte> block(block_bytes);
  const std::vector<std::span<std::byte>> memory{block};
  OffloadOrder wanted = order(3, keys, {});
  wanted.memory = memory;
  ASSERT_TRUE(offload->load(wanted).has_value());
  EXPECT_EQ(await(3).error(), Errc::invalid_argument) << "the host copies memory";
  settle();
  ASSERT_TRUE(offload->load(order(4, keys, slots({5}))).has_value());
  poll();
  EXPECT_EQ(offload->await(OffloadJobId{4}, 1, StreamRef{}, 1).error(), Errc::invalid_argument) << "no such rank";
  settle();
}

TEST_F(OffloadStreams, await_is_not_ready_while_a_block_waits_for_storage) {
  make_writing_through(1, KeyOrder::flat);
  put(1, names({1}), 0, 10);
  put(2, names({2}), 0, 20);
  ASSERT_EQ(offload->look_up(names({1})[0]), OffloadHit::storage);
  ASSERT_TRUE(offload->load(order(3, names({1}), slots({5}))).has_value());
  EXPECT_EQ(await(3).error(), Errc::not_ready) << "storage is reading it";
  for (int i = 0; i < 3 && !await(3); ++i) poll();
  EXPECT_TRUE(await(3).has_value());
  settle();
}

TEST_F(OffloadStreams, await_is_not_ready_while_a_block_waits_for_another_job_or_transfers_are_paused) {
  make(sizes(8, KeyOrder::flat));
  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(offload->store(order(4, names({1}), slots({0}))).has_value());
  ASSERT_TRUE(offload->store(order(5, names({1}), slots({1}))).has_value());
  poll();
  EXPECT_TRUE(await(4).has_value());
  EXPECT_EQ(await(5).error(), Errc::not_ready) << "it would copy the block itself if the other job failed";
  device->stuck(Direction::swap_out, false);
  settle();
  cache->pause_transfers();
  ASSERT_TRUE(offload->load(order(6, names({1}), slots({5}))).has_value());
  poll();
  EXPECT_EQ(await(6).error(), Errc::not_ready);
  cache->resume_transfers();
  poll();
  EXPECT_TRUE(await(6).has_value());
  settle();
}

TEST_F(OffloadStreams, await_says_that_a_block_of_a_load_has_failed_and_why) {
  make(sizes(8, KeyOrder::flat));
  put(1, names({1}), 0, 10);
  ASSERT_TRUE(offload->load(order(2, names({1, 2}), slots({5, 6}))).has_value());
  EXPECT_EQ(await(2).error(), Errc::load_failed) << "there is no second block";
  settle();
  device->fail_next(Direction::swap_in);
  ASSERT_TRUE(offload->load(order(3, names({1}), slots({5}))).has_value());
  poll();
  ASSERT_TRUE(await(3).has_value()) << "it fails under way";
  settle();
  EXPECT_EQ(results(3).at(0), Errc::io_failed);
  ASSERT_TRUE(offload->load(order(4, names({9}), slots({7}))).has_value());
  EXPECT_EQ(await(4).error(), Errc::load_failed) << "it has ended, and its events were not taken yet";
  settle();
  device->stuck(Direction::swap_in, true);
  OffloadOrder late = order(5, names({1}), slots({5}));
  late.deadline = clock.now() + milliseconds{10};
  ASSERT_TRUE(offload->load(late).has_value());
  poll();
  clock.advance(milliseconds{20});
  poll();
  ASSERT_EQ(offload->unconfirmed(), 1U);
  EXPECT_EQ(await(5).error(), Errc::deadline_exceeded);
  device->stuck(Direction::swap_in, false);
  settle();
}

TEST_F(OffloadStreams, slots_of_a_store_whose_copies_are_unconfirmed_are_not_free_and_those_of_failed_copies_are) {
  make(sizes(1, KeyOrder::flat));
  device->stuck(Direction::swap_out, true);
  OffloadOrder late = order(1, names({1, 2}), slots({0, 1}));
  late.deadline = clock.now() + milliseconds{10};
  ASSERT_TRUE(offload->store(late).has_value());
  poll();
  EXPECT_TRUE(await(1).has_value()) << "there is no host slot for the second block, so it is not copied";
  clock.advance(milliseconds{20});
  poll();
  ASSERT_EQ(offload->unconfirmed(), 1U);
  EXPECT_EQ(await(1).error(), Errc::not_ready);
  device->stuck(Direction::swap_out, false);
  device->run();
  settle();
  EXPECT_EQ(results(1), (std::map<std::uint32_t, ErrorCode>{{0, Errc::deadline_exceeded}, {1, Errc::full}}));
}

}  // namespace
}  // namespace terrace
