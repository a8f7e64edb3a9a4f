// The Redis protocol: replies, and the map of the slots of a cluster.

#include "storage/redis/resp_reader.hpp"
#include "storage/redis/slot_map.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace terrace::test {
namespace {

using Kind = RespItem::Kind;

/// Reads all elements, dropping payloads; ends at the first that needs more bytes.
std::vector<RespItem> read_all(std::string_view bytes) {
  RespReader reader;
  std::vector<RespItem> items;
  while (true) {
    const RespItem item = reader.next(bytes);
    if (item.kind == Kind::more) return items;
    items.push_back(item);
    if (item.kind == Kind::malformed) return items;
    bytes.remove_prefix(item.consumed);
    const std::size_t payload = std::min(reader.payload_left(), bytes.size());
    reader.took(payload);
    bytes.remove_prefix(payload);
    if (reader.payload_left() > 0) return items;
  }
}

RespItem only(std::string_view bytes) {
  const std::vector<RespItem> items = read_all(bytes);
  EXPECT_EQ(items.size(), 1U) << bytes;
  return items.empty() ? RespItem{} : items[0];
}

TEST(RespReader, reads_each_simple_element) {
  EXPECT_EQ(only("+OK\r\n").text, "OK");
  EXPECT_EQ(only("+OK\r\n").kind, Kind::text);
  EXPECT_EQ(only("-OOM full\r\n").kind, Kind::error);
  EXPECT_EQ(only("-OOM full\r\n").text, "OOM full");
  EXPECT_EQ(only(":-42\r\n").integer, -42);
  EXPECT_EQ(only(":+7\r\n").integer, 7);
  EXPECT_EQ(only("#t\r\n").integer, 1);
  EXPECT_EQ(only("#f\r\n").integer, 0);
  EXPECT_EQ(only("_\r\n").kind, Kind::null);
  EXPECT_EQ(only("$-1\r\n").kind, Kind::null);
  EXPECT_EQ(only("*-1\r\n").kind, Kind::null);
  EXPECT_EQ(only(",3.25\r\n").text, "3.25");
  EXPECT_EQ(only("(3492890328409238509324850943850943825024385\r\n").kind, Kind::text);
  for (const char* simple : {"+\r\n", ":0\r\n", "#t\r\n", "_\r\n", "$-1\r\n", "*0\r\n", "~0\r\n", "%0\r\n"}) {
    EXPECT_TRUE(only(simple).reply_ends) << simple;
  }
}

TEST(RespReader, leaves_the_payload_of_a_bulk_to_its_caller) {
  RespReader reader;
  const RespItem bulk = reader.next("$5\r\nhe");
  EXPECT_EQ(bulk.kind, Kind::bulk);
  EXPECT_EQ(bulk.integer, 5);
  EXPECT_EQ(bulk.consumed, 4U);
  EXPECT_FALSE(bulk.reply_ends);
  EXPECT_EQ(reader.payload_left(), 5U);
  reader.took(2);
  reader.took(3);
  EXPECT_EQ(reader.next("\r").kind, Kind::more);
  const RespItem end = reader.next("\r\n+OK\r\n");
  EXPECT_EQ(end.kind, Kind::bulk_end);
  EXPECT_EQ(end.consumed, 2U);
  EXPECT_TRUE(end.reply_ends);
  EXPECT_EQ(read_all("$0\r\n\r\n").size(), 2U);
  EXPECT_EQ(read_all("=7\r\ntxt:abc\r\n")[0].kind, Kind::bulk);
  EXPECT_EQ(read_all("!5\r\nERR x\r\n")[0].kind, Kind::bulk_error);
}

TEST(RespReader, says_where_nested_replies_end) {
  const auto items = read_all("*2\r\n*2\r\n:1\r\n:2\r\n%1\r\n+a\r\n$1\r\nb\r\n+next\r\n");
  ASSERT_EQ(items.size(), 9U);
  std::vector<std::uint32_t> depths;
  for (const RespItem& item : items) depths.push_back(item.depth);
  EXPECT_EQ(depths, (std::vector<std::uint32_t>{0, 1, 2, 2, 1, 2, 2, 2, 0}));
  EXPECT_EQ(items[4].integer, 2);  // a map of one pair has two elements
  for (std::size_t i = 0; i < items.size(); ++i) EXPECT_EQ(items[i].reply_ends, i == 7 || i == 8) << i;
}

TEST(RespReader, sets_pushes_and_attributes_aside) {
  const auto items = read_all(">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n|1\r\n+ttl\r\n:3\r\n*2\r\n|1\r\n+a\r\n*0\r\n:1\r\n:2\r\n");
  ASSERT_EQ(items.size(), 14U);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool reply = i == 8 || i >= 12;
    EXPECT_EQ(items[i].aside, !reply) << i;
    EXPECT_EQ(items[i].reply_ends, i == 13) << i;
  }
  EXPECT_TRUE(only(">0\r\n").aside);
  EXPECT_FALSE(only(">0\r\n").reply_ends);
  EXPECT_FALSE(only("|0\r\n").reply_ends);
}

TEST(RespReader, needs_all_bytes_of_an_element) {
  for (const std::string_view whole : {"+OK\r\n", ":12\r\n", "$3\r\n", "*2\r\n"}) {
    for (std::size_t length = 0; length < whole.size(); ++length) {
      RespReader reader;
      EXPECT_EQ(reader.next(whole.substr(0, length)).kind, Kind::more) << whole.substr(0, length);
    }
  }
}

TEST(RespReader, refuses_what_is_no_reply_and_what_is_too_large) {
  const std::string deep = "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n";
  for (const std::string& bad : {std::string{"x\r\n"},
                                 std::string{"\r\n"},
                                 std::string{"+a\rb\n"},
                                 std::string{":\r\n"},
                                 std::string{":1x\r\n"},
                                 std::string{":99999999999999999999\r\n"},
                                 std::string{"#x\r\n"},
                                 std::string{"_x\r\n"},
                                 std::string{"$-2\r\n"},
                                 std::string{"$536870913\r\n"},
                                 std::string{"$?\r\n"},
                                 std::string{"*?\r\n"},
                                 std::string{"!-1\r\n"},
                                 std::string{"%-1\r\n"},
                                 std::string{"*1048577\r\n"},
                                 std::string{"*1\r\n>1\r\n"},
                                 std::string{"$1\r\nab\r\n"},
                                 std::string{"$1\r\na\rb"},
                                 std::string{"$0\r\nx"},
                                 deep,
                                 std::string(RespReader::line_max, '+')}) {
    const auto items = read_all(bad);
    ASSERT_FALSE(items.empty()) << bad.substr(0, 40);
    EXPECT_EQ(items.back().kind, Kind::malformed) << bad.substr(0, 40);
  }
  EXPECT_EQ(read_all(std::string(RespReader::line_max - 1, '+')).size(), 0U);
}

RespValue integer(std::int64_t value) { return {.kind = RespItem::Kind::integer, .integer = value}; }
RespValue bulk(std::string text) { return {.kind = RespItem::Kind::bulk, .text = std::move(text)}; }
RespValue list(std::vector<RespValue> items) { return {.kind = RespItem::Kind::list, .items = std::move(items)}; }
RespValue range(std::int64_t first, std::int64_t last, const std::string& host, std::int64_t port) {
  return list(
      {integer(first), integer(last), list({bulk(host), integer(port), bulk("id")}), list({bulk("replica"), integer(9)})});
}

TEST(RedisSlot, is_that_of_the_text_in_braces) {
  EXPECT_EQ(redis_slot("123456789"), 0x31c3U % 16'384);  // the check value of CRC16/XMODEM
  EXPECT_EQ(redis_slot(""), 0U);
  EXPECT_EQ(redis_slot("foo"), 12'182U);
  EXPECT_EQ(redis_slot("{user1000}.following"), redis_slot("{user1000}.followers"));
  EXPECT_EQ(redis_slot("{user1000}.following"), redis_slot("user1000"));
  EXPECT_EQ(redis_slot("foo{{bar}}zap"), redis_slot("{bar"));
  EXPECT_EQ(redis_slot("foo{bar}{zap}"), redis_slot("bar"));
  EXPECT_NE(redis_slot("foo{}{bar}"), redis_slot("bar"));
  EXPECT_NE(redis_slot("foo{bar"), redis_slot("bar"));
}

TEST(RedisSlots, are_read_from_the_answer_of_a_node) {
  const RedisAddress asked{"host", 1};
  const auto ranges = parse_slots(list({range(0, 5, "a", 7), range(6, 16'383, "", 8), range(6, 6, "?", 8)}), asked);
  ASSERT_TRUE(ranges);
  ASSERT_EQ(ranges->size(), 3U);
  EXPECT_EQ((*ranges)[0].master, (RedisAddress{"a", 7}));
  EXPECT_EQ((*ranges)[0].last, 5U);
  EXPECT_EQ((*ranges)[1].master, (RedisAddress{"host", 8}));
  EXPECT_EQ((*ranges)[2].master, (RedisAddress{"host", 8}));
  EXPECT_TRUE(parse_slots(list({}), asked));
  for (const RespValue& bad :
       {bulk("x"), list({bulk("x")}), list({range(5, 4, "a", 1)}), list({range(0, 16'384, "a", 1)}), list({range(-1, 3, "a", 1)}),
        list({range(0, 1, "a", 65'536)}), list({range(0, 1, "a\x1b[1m", 1)}), list({range(0, 1, std::string(256, 'a'), 1)}),
        list(std::vector<RespValue>(redis_slot_count + 1, range(0, 1, "a", 1)))}) {
    EXPECT_FALSE(parse_slots(bad, asked));
  }
}

TEST(RedisRedirection, is_read_from_an_error) {
  const RedisAddress asked{"host", 1};
  const auto moved = parse_redirection("MOVED 3999 127.0.0.1:6381", asked);
  ASSERT_TRUE(moved);
  EXPECT_TRUE(moved->for_good);
  EXPECT_EQ(moved->slot, 3999U);
  EXPECT_EQ(moved->node, (RedisAddress{"127.0.0.1", 6381}));
  const auto ask = parse_redirection("ASK 0 :7", asked);
  ASSERT_TRUE(ask);
  EXPECT_FALSE(ask->for_good);
  EXPECT_EQ(ask->node, (RedisAddress{"host", 7}));
  EXPECT_EQ(parse_redirection("MOVED 1 ::1:7", asked)->node, (RedisAddress{"::1", 7}));
  for (const char* bad : {"", "MOVED", "MOVED x y:1", "MOVED 16384 a:1", "MOVED 1 a", "MOVED 1 a:0", "MOVED 1 a:x", "OOM 1 a:1",
                          "MOVED 1 a\xff:1", "MOVED 1 a b:1"}) {
    EXPECT_FALSE(parse_redirection(bad, asked)) << bad;
  }
}

}  // namespace
}  // namespace terrace::test
