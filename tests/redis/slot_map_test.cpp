#include "storage/redis/slot_map.hpp"

#include <gtest/gtest.h>

namespace terrace::test {
namespace {

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
