// Transfers by layer over several ranks, whose engines report what the test says.
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using test::run;
using test::transfer;

class Scripted final : public TransferPort {
 public:
  void submit(Transfer transfer) override { transfers.push_back(std::move(transfer)); }
  void raise(TransferId, Urgency) override {}
  void postpone(TransferId, TimePoint) override {}
  void cancel(TransferId) override {}
  void limit(Urgency, BytesPerSecond) override {}
  std::size_t poll(std::vector<TransferEvent>& out) override {
    const std::size_t count = said.size();
    for (TransferEvent& event : said) out.push_back(std::move(event));
    said.clear();
    return count;
  }
  [[nodiscard]] TimePoint next_deadline() const override { return never; }
  [[nodiscard]] Fence reached() const override { return {}; }
  [[nodiscard]] Fence after_all_work() const override { return {}; }

  void say_layers(std::uint32_t layers) {
    TransferEvent event;
    event.id = transfers.back().id;
    event.kind = TransferEvent::Kind::layers;
    event.layers = layers;
    said.push_back(event);
  }
  void say_finished(ErrorCode error = {}) {
    TransferEvent event;
    event.id = transfers.back().id;
    event.outcomes.assign(2, error ? BlockOutcome::failed : BlockOutcome::done);
    event.error = error;
    said.push_back(event);
  }

  std::vector<Transfer> transfers;
  std::vector<TransferEvent> said;
};

class RankedLayers : public testing::Test {
 protected:
  void submit(Direction direction = Direction::swap_in) {
    Transfer made = transfer(1, direction, Urgency::request, {run(0, 0, 2)});
    made.by_layer = true;
    transfers_.submit(std::move(made));
  }
  /// The reported layers; 0 stands for the end.
  std::vector<std::uint32_t> told() {
    std::vector<TransferEvent> events;
    transfers_.poll(events);
    transfers_.check_invariants();
    std::vector<std::uint32_t> layers;
    for (const TransferEvent& event : events) layers.push_back(event.layers);
    return layers;
  }

  ManualClock clock_;
  NullWaker waker_;
  std::array<Scripted, 2> ports_;
  RankedTransfers transfers_{{{"first", &ports_[0]}, {"second", &ports_[1]}}, clock_, waker_};
};

TEST_F(RankedLayers, are_told_of_when_every_rank_has_them) {
  submit();
  EXPECT_TRUE(ports_[0].transfers.at(0).by_layer && ports_[1].transfers.at(0).by_layer);
  ports_[0].say_layers(3);
  EXPECT_TRUE(told().empty());
  ports_[1].say_layers(1);
  EXPECT_EQ(told(), std::vector{1U});
  ports_[1].say_layers(2);
  ports_[1].say_layers(5);
  EXPECT_EQ(told(), (std::vector<std::uint32_t>{2, 3}));
  ports_[0].say_finished();
  EXPECT_EQ(told(), std::vector{5U}) << "the rank that is through has all";
  ports_[1].say_finished();
  EXPECT_EQ(told(), std::vector{0U});
  EXPECT_TRUE(transfers_.idle());
}

TEST_F(RankedLayers, are_not_told_of_once_a_rank_has_failed) {
  submit();
  ports_[0].say_layers(3);
  ports_[1].say_finished(Errc::io_failed);
  EXPECT_TRUE(told().empty());
  ports_[0].say_layers(4);
  EXPECT_TRUE(told().empty());
  ports_[0].say_finished();
  EXPECT_EQ(told(), std::vector{0U});
}

TEST_F(RankedLayers, are_not_told_of_once_a_rank_is_lost) {
  submit();
  ports_[0].say_layers(3);
  EXPECT_TRUE(told().empty());
  transfers_.lose(1);
  ports_[0].say_layers(4);
  EXPECT_TRUE(told().empty());
  ports_[0].say_finished();
  EXPECT_EQ(told(), std::vector{0U});
}

TEST_F(RankedLayers, are_begun_anew_with_the_next_transfer) {
  for (int i = 0; i < 2; ++i) {
    submit();
    ports_[0].say_layers(2);
    EXPECT_TRUE(told().empty());
    ports_[1].say_layers(2);
    EXPECT_EQ(told(), std::vector{2U});
    for (Scripted& port : ports_) port.say_finished();
    EXPECT_EQ(told(), std::vector{0U});
  }
}

TEST(RankedLayersReplicated, are_those_of_the_rank_that_copies_down) {
  ManualClock clock;
  NullWaker waker;
  std::array<Scripted, 2> ports;
  RankedTransfers transfers{{{"first", &ports[0]}, {"second", &ports[1]}}, clock, waker, {.payload = RankPayload::replicated}};
  Transfer made = transfer(1, Direction::swap_out, Urgency::request, {run(0, 0, 2)});
  made.by_layer = true;
  transfers.submit(std::move(made));
  Scripted& one = ports[0].transfers.empty() ? ports[1] : ports[0];
  one.say_layers(2);
  std::vector<TransferEvent> events;
  transfers.poll(events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].layers, 2U);
  one.say_finished();
  transfers.poll(events);
  EXPECT_TRUE(transfers.idle());
}

}  // namespace
}  // namespace terrace
