#include "radix/eviction/ghost_table.hpp"

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

namespace terrace {
namespace {

/// A key with this tag: the table keeps 16 bits of a key.
BlockKey key_of(std::uint16_t tag) {
  BlockKey key;
  const std::uint64_t word = tag;
  std::memcpy(key.bytes.data(), &word, sizeof word);
  return key;
}

/// A set has room for the last 15 records.
constexpr std::size_t ways = 15;

TEST(GhostTable, finds_the_newest_of_the_last_records_of_a_key) {
  GhostTable table{ways - 1, 0};  // one set
  std::deque<std::pair<std::uint16_t, std::uint64_t>> records;
  Random random{3};
  for (std::uint64_t now = 1; now < 5000; ++now) {
    // Few different keys, so that some have several records, and some none.
    const auto tag = static_cast<std::uint16_t>(random.between(1, now % 1000 < 500 ? 40 : 6));
    table.insert(key_of(tag), now);
    records.emplace_front(tag, now);
    if (records.size() > ways) records.pop_back();
    for (std::uint16_t asked = 1; asked <= 40; ++asked) {
      const auto newest = std::ranges::find(records, asked, &std::pair<std::uint16_t, std::uint64_t>::first);
      const std::optional<std::uint64_t> age = newest == records.end() ? std::nullopt : std::optional{now - newest->second};
      ASSERT_EQ(table.age(key_of(asked), now), age) << asked << " at " << now;
    }
    ASSERT_EQ(table.size(), std::min<std::uint64_t>(now, ways));
  }
}

TEST(GhostTable, an_empty_record_is_no_record_of_any_key) {
  const GhostTable table{ways - 1, 0};
  for (const std::uint16_t tag : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{0xFFFF}}) {
    EXPECT_EQ(table.age(key_of(tag), 9), std::nullopt);
  }
}

TEST(GhostTable, ages_are_in_steps_and_wrap_around) {
  GhostTable table{ways - 1, 4};
  table.insert(key_of(7), 40);
  EXPECT_EQ(table.age(key_of(7), 40), 0U);
  EXPECT_EQ(table.age(key_of(7), 100), 64U);
  EXPECT_EQ(table.age(key_of(7), 40 + (std::uint64_t{1} << 20U)), 0U);
}

}  // namespace
}  // namespace terrace
