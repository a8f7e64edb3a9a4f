#include "storage/redis/channel.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

/// The record of one exchange. It outlives the exchange.
struct Record {
  bool wanted = true;
  bool broken = false;
  bool destroyed = false;
  std::vector<RespValue> replies{};
  std::vector<std::size_t> bulks{};
  std::vector<std::byte> memory{};  ///< where bulks land
  std::size_t landed = 0;
};

class Recorded final : public Exchange {
 public:
  explicit Recorded(Record& record) : record_{record} {}
  ~Recorded() override { record_.destroyed = true; }
  [[nodiscard]] bool wanted() const override { return record_.wanted; }
  void bulk_begins(std::size_t bytes) override { record_.bulks.push_back(bytes); }
  [[nodiscard]] std::span<std::byte> room() override { return std::span{record_.memory}.subspan(record_.landed); }
  void landed(std::size_t bytes) override { record_.landed += bytes; }
  void replied(RespValue reply) override { record_.replies.push_back(std::move(reply)); }
  void broken() override { record_.broken = true; }

 private:
  Record& record_;
};

class ChannelTest : public testing::Test {
 protected:
  void submit(Record& record, std::string text, std::string_view payload = {}, std::string tail = {}) {
    auto exchange = std::make_unique<Recorded>(record);
    exchange->segments[0].text = std::move(text);
    exchange->segments[0].payload = std::as_bytes(std::span{payload});
    exchange->segments[1].text = std::move(tail);
    exchange->window_bytes = 10;
    channel_.submit(std::move(exchange));
  }

  /// Takes at most `most` bytes to send.
  std::string send(std::size_t most = 1 << 20) {
    std::string bytes;
    while (bytes.size() < most) {
      std::array<iovec, 4> pieces{};
      const std::size_t count = channel_.outgoing(pieces);
      if (count == 0) break;
      std::size_t now = 0;
      for (std::size_t i = 0; i < count && bytes.size() < most; ++i) {
        const std::size_t part = std::min(pieces[i].iov_len, most - bytes.size());
        bytes.append(static_cast<const char*>(pieces[i].iov_base), part);
        now += part;
      }
      channel_.sent(now);
    }
    return bytes;
  }

  void receive(std::string_view bytes, std::size_t at_once = 1 << 20) {
    while (!bytes.empty() && !channel_.is_broken()) {
      std::size_t now = 0;
      for (const iovec& piece : channel_.incoming()) {
        const std::size_t part = std::min({piece.iov_len, bytes.size(), at_once - now});
        if (part > 0) std::memcpy(piece.iov_base, bytes.data(), part);
        bytes.remove_prefix(part);
        now += part;
      }
      ASSERT_GT(now, 0U);
      channel_.received(now);
    }
  }

  std::vector<Record>& new_records(std::size_t count) {
    return *records_.emplace_back(std::make_unique<std::vector<Record>>(count));
  }

 private:
  std::vector<std::unique_ptr<std::vector<Record>>> records_;  ///< outlive the exchanges

 protected:
  Channel channel_;
};

std::string text_of(const Record& record) { return {reinterpret_cast<const char*>(record.memory.data()), record.landed}; }

TEST_F(ChannelTest, answers_in_order_however_the_bytes_arrive) {
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{100'000}}) {
    SCOPED_TRACE(at_once);
    std::vector<Record>& records = new_records(4);
    records[1].memory.resize(20'000);
    for (Record& record : records) submit(record, "x");
    channel_.submit([&] {
      auto whole = std::make_unique<Recorded>(records[3]);
      whole->segments[0].text = "x";
      whole->whole_replies = true;
      return whole;
    }());
    EXPECT_EQ(send(), "xxxxx");
    std::string payload;
    for (int i = 0; i < 20'000; ++i) payload += static_cast<char>('a' + i % 26);
    receive("+OK\r\n$20000\r\n" + payload + "\r\n>1\r\n$3\r\nabc\r\n$-1\r\n-ERR no\r\n*2\r\n$2\r\nhi\r\n:5\r\n", at_once);
    EXPECT_EQ(records[0].replies.at(0).text, "OK");
    EXPECT_EQ(records[1].replies.at(0).kind, RespItem::Kind::bulk);
    EXPECT_EQ(records[1].bulks, std::vector<std::size_t>{20'000});
    EXPECT_EQ(text_of(records[1]), payload);
    EXPECT_EQ(records[2].replies.at(0).kind, RespItem::Kind::null);
    ASSERT_EQ(records[3].replies.size(), 2U);
    EXPECT_TRUE(records[3].replies[0].is_error("ERR"));
    ASSERT_EQ(records[3].replies[1].items.size(), 2U);
    EXPECT_EQ(records[3].replies[1].items[0].text, "hi");
    EXPECT_EQ(records[3].replies[1].items[1].integer, 5);
    EXPECT_EQ(channel_.exchanges(), 0U);
    EXPECT_EQ(channel_.window_bytes(), 0U);
  }
}

TEST_F(ChannelTest, receives_a_payload_where_it_belongs) {
  Record& record = new_records(1)[0];
  record.memory.resize(100'000);
  submit(record, "GET");
  (void)send();
  receive("$100000\r\n");
  const auto pieces = channel_.incoming();
  EXPECT_EQ(pieces[0].iov_base, record.memory.data());
  EXPECT_EQ(pieces[0].iov_len, std::size_t{64} << 10);
}

TEST_F(ChannelTest, sends_a_payload_from_where_it_lies) {
  Record& record = new_records(1)[0];
  const std::string payload(100'000, 'p');
  submit(record, "SET ", payload, " PX");
  std::array<iovec, 8> pieces{};
  ASSERT_EQ(channel_.outgoing(pieces), 3U);
  EXPECT_EQ(pieces[1].iov_base, payload.data());
  channel_.sent(5);
  ASSERT_EQ(channel_.outgoing(pieces), 2U);
  EXPECT_EQ(pieces[0].iov_base, payload.data() + 1);
  EXPECT_EQ(send().size(), 100'002U);
}

TEST_F(ChannelTest, leaves_out_what_nobody_wants_any_more) {
  std::vector<Record>& records = new_records(3);
  for (std::size_t i = 0; i < 3; ++i) submit(records[i], std::string(1, static_cast<char>('a' + i)), "payload");
  records[1].wanted = false;
  EXPECT_EQ(send(), "apayloadcpayload");
  EXPECT_TRUE(records[1].destroyed);
  receive("+1\r\n+3\r\n");
  EXPECT_EQ(records[2].replies.at(0).text, "3");
  EXPECT_EQ(channel_.window_bytes(), 0U);
}

TEST_F(ChannelTest, drops_a_reply_that_nobody_wants_any_more) {
  std::vector<Record>& records = new_records(2);
  records[0].memory.resize(10'000);
  for (Record& record : records) submit(record, "GET");
  (void)send();
  receive("$10000\r\n" + std::string(6'000, 'x'));
  EXPECT_EQ(records[0].landed, 6'000U);
  records[0].wanted = false;
  for (const auto& piece : channel_.incoming()) {
    const auto* const at = static_cast<const std::byte*>(piece.iov_base);
    EXPECT_TRUE(at < records[0].memory.data() || at >= records[0].memory.data() + records[0].memory.size());
  }
  receive(std::string(4'000, 'x') + "\r\n+next\r\n");
  EXPECT_EQ(records[0].landed, 6'000U);
  EXPECT_TRUE(records[0].replies.empty());
  EXPECT_EQ(records[1].replies.at(0).text, "next");
}

TEST_F(ChannelTest, is_broken_by_a_payload_that_was_given_up_halfway) {
  Record& record = new_records(1)[0];
  submit(record, "SET ", "payload");
  EXPECT_EQ(send(6).size(), 6U);
  EXPECT_FALSE(channel_.is_broken());
  record.wanted = false;
  EXPECT_TRUE(channel_.is_broken());
  EXPECT_EQ(send(), "");
  Record& begun = new_records(1)[0];
  channel_.end();
  EXPECT_FALSE(channel_.is_broken());
  submit(begun, "SET ", "payload");
  channel_.begun();
  begun.wanted = false;
  EXPECT_TRUE(channel_.is_broken());
}

TEST_F(ChannelTest, takes_the_first_answer_before_the_last_command_is_sent) {
  Record& record = new_records(1)[0];
  auto exchange = std::make_unique<Recorded>(record);
  exchange->segments[0].text = "SET 1 SET 2";
  exchange->replies = 2;
  channel_.submit(std::move(exchange));
  EXPECT_EQ(send(7), "SET 1 S");
  receive("+first\r\n");
  EXPECT_FALSE(channel_.is_broken());
  ASSERT_EQ(record.replies.size(), 1U);
  EXPECT_EQ(send(), "ET 2");
  receive("+second\r\n");
  ASSERT_EQ(record.replies.size(), 2U);
  EXPECT_EQ(record.replies[1].text, "second");
  EXPECT_TRUE(record.destroyed);
  Record& early = new_records(1)[0];
  submit(early, "SET");
  (void)send(1);
  receive("+done\r\n");
  EXPECT_TRUE(channel_.is_broken());
}

TEST_F(ChannelTest, is_broken_by_replies_that_nobody_asked_for_or_nobody_understands) {
  receive("+hello\r\n");
  EXPECT_TRUE(channel_.is_broken());
  channel_.end();
  Record& record = new_records(1)[0];
  submit(record, "GET");
  (void)send();
  receive("?\r\n");
  EXPECT_TRUE(channel_.is_broken());
}

TEST_F(ChannelTest, tells_each_wanted_exchange_when_it_ends) {
  std::vector<Record>& records = new_records(3);
  for (Record& record : records) submit(record, "GET");
  EXPECT_EQ(send(4).size(), 4U);
  records[0].wanted = false;
  channel_.end();
  EXPECT_FALSE(records[0].broken);
  EXPECT_TRUE(records[1].broken);
  EXPECT_TRUE(records[2].broken);
  EXPECT_EQ(channel_.window_bytes(), 0U);
  EXPECT_EQ(channel_.exchanges(), 0U);
}

TEST_F(ChannelTest, keeps_nothing_of_a_list_that_nobody_reads) {
  std::vector<Record>& records = new_records(2);
  records[0].memory.resize(10);
  for (Record& record : records) submit(record, "GET");
  (void)send();
  receive("*2\r\n$3\r\nabc\r\n*1\r\n$3\r\ndef\r\n:1\r\n");
  EXPECT_EQ(records[0].landed, 0U);
  EXPECT_TRUE(records[0].replies.at(0).is_list());
  EXPECT_TRUE(records[0].replies[0].items.empty());
  EXPECT_EQ(records[1].replies.at(0).integer, 1);
}

}  // namespace
}  // namespace terrace::test
