#include "runtime/cache/measure/transfer_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace terrace {
namespace {

using std::chrono::milliseconds;

Transfer transfer(std::uint64_t id, Direction direction, Urgency urgency, std::uint32_t blocks) {
  Transfer made;
  made.id = TransferId{static_cast<TransferId::rep>(id)};
  made.direction = direction;
  made.urgency = urgency;
  made.runs.push_back({SlotId{}, SlotId{}, blocks});
  return made;
}

TransferQueue queue(const TransferClock& clock, Direction direction, Urgency urgency, TimePoint now) {
  const std::vector<TransferQueue> all = clock.queues(now);
  EXPECT_EQ(all.size(), direction_count * urgency_count);
  return *std::ranges::find_if(all,
                               [&](const TransferQueue& each) { return each.direction == direction && each.urgency == urgency; });
}

TEST(TransferClock, counts_what_has_not_ended_by_direction_and_urgency) {
  TransferClock clock;
  const TimePoint start{};
  clock.begin(transfer(1, Direction::swap_in, Urgency::request, 3), start);
  clock.begin(transfer(2, Direction::swap_out, Urgency::store, 4), start + milliseconds{5});
  clock.begin(transfer(3, Direction::swap_out, Urgency::store, 5), start + milliseconds{10});
  const TimePoint now = start + milliseconds{20};
  EXPECT_EQ(queue(clock, Direction::swap_in, Urgency::request, now).blocks, 3U);
  const TransferQueue stores = queue(clock, Direction::swap_out, Urgency::store, now);
  EXPECT_EQ(stores.transfers, 2U);
  EXPECT_EQ(stores.blocks, 9U);
  EXPECT_NEAR(stores.oldest_seconds, 0.015, 1e-9);
  clock.raise(TransferId{2}, Urgency::request);
  EXPECT_EQ(queue(clock, Direction::swap_out, Urgency::request, now).blocks, 4U);
  EXPECT_EQ(queue(clock, Direction::swap_out, Urgency::store, now).blocks, 5U);
  clock.end(TransferId{3}, now);
  EXPECT_EQ(queue(clock, Direction::swap_out, Urgency::store, now).oldest_seconds, 0);
}

TEST(TransferClock, measures_from_the_order_to_the_end) {
  TransferClock clock;
  const TimePoint start{};
  clock.begin(transfer(1, Direction::swap_in, Urgency::request, 1), start);
  clock.begin(transfer(2, Direction::swap_out, Urgency::request, 1), start);
  clock.end(TransferId{1}, start + milliseconds{2});
  clock.end(TransferId{2}, start + milliseconds{7});
  clock.end(TransferId{2}, start + milliseconds{9});
  EXPECT_EQ(clock.times().swap_in.number, 1U);
  EXPECT_NEAR(clock.times().swap_in.seconds, 0.002, 1e-9);
  EXPECT_EQ(clock.times().swap_out.number, 1U);
  EXPECT_NEAR(clock.times().swap_out.seconds, 0.007, 1e-9);
}

TEST(TransferClock, measures_reads_and_writes_of_storage) {
  using Access = TransferClock::Access;
  TransferClock clock;
  const TimePoint start{};
  const std::uint32_t first = clock.begin(Access::read, start);
  const std::uint32_t second = clock.begin(Access::read, start + milliseconds{1});
  const std::uint32_t write = clock.begin(Access::write, start + milliseconds{2});
  EXPECT_EQ(clock.end(second, start + milliseconds{4}), start + milliseconds{1});
  EXPECT_EQ(clock.end(write, start + milliseconds{12}), start + milliseconds{2});
  EXPECT_EQ(clock.times().storage_read.number, 1U);
  EXPECT_NEAR(clock.times().storage_read.seconds, 0.003, 1e-9);
  EXPECT_EQ(clock.times().storage_write.number, 1U);
  EXPECT_NEAR(clock.times().storage_write.seconds, 0.010, 1e-9);
  EXPECT_EQ(clock.end(first, start + milliseconds{20}), start);
  EXPECT_EQ(clock.times().storage_read.number, 2U);
}

}  // namespace
}  // namespace terrace
