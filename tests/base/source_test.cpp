#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <type_traits>

namespace terrace {
namespace {

TEST(Source, has_a_name_of_its_own_for_each_value_and_one_for_the_others) {
  std::set<std::string_view> names;
  // all_sources is complete if exactly its values have names.
  for (std::size_t value = 0; value < 256; ++value) {
    const auto source = static_cast<Source>(value);
    const bool is_known = std::ranges::find(all_sources, source) != all_sources.end();
    EXPECT_EQ(to_string(source) != "unknown", is_known) << value;
    if (is_known) names.insert(to_string(source));
  }
  EXPECT_EQ(names.size(), source_count);
}

TEST(Source, keeps_its_values_and_its_order) {
  // These values are part of the interface: add others after them.
  EXPECT_EQ(index(Source::device), 0U);
  EXPECT_EQ(index(Source::host), 1U);
  EXPECT_EQ(index(Source::storage), 2U);
  EXPECT_EQ(index(Source::shared), 3U);
  for (std::size_t i = 0; i < source_count; ++i) EXPECT_EQ(index(all_sources[i]), i);
}

TEST(Source, unknown_values_come_after_storage) {
  for (std::size_t value = source_count; value < 256; ++value) EXPECT_GT(static_cast<Source>(value), Source::storage);
}

TEST(Source, of_a_tier_has_its_name_and_its_place_in_the_order) {
  for (const Tier tier : all_tiers) {
    EXPECT_EQ(to_string(to_source(tier)), to_string(tier));
    EXPECT_EQ(index(to_source(tier)), index(tier));
  }
}

TEST(PerSource, adds_subtracts_and_sums) {
  SourceCounts a;
  EXPECT_EQ(a.sum(), 0U);
  a[Source::device] = 5;
  a[Source::storage] = 7;
  SourceCounts b;
  b[Source::device] = 2;
  b[Source::host] = 1;
  const SourceCounts both = a + b;
  EXPECT_EQ(both[Source::device], 7U);
  EXPECT_EQ(both[Source::host], 1U);
  EXPECT_EQ(both[Source::storage], 7U);
  EXPECT_EQ(both.sum(), a.sum() + b.sum());
  EXPECT_EQ(both - b, a);
  EXPECT_NE(both, a);
}

/// A program with an older header reads counts of a library that knows one source more.
TEST(PerSource, has_room_for_sources_that_come_later) {
  static_assert(sizeof(SourceCounts) == source_capacity * sizeof(std::uint64_t));
  static_assert(std::is_trivially_copyable_v<SourceCounts>);
  constexpr auto later = static_cast<Source>(source_capacity - 1);
  SourceCounts counts;
  counts[Source::host] = 3;
  counts[later] = 4;
  EXPECT_EQ(counts.sum(), 7U);
  EXPECT_EQ((counts + counts)[later], 8U);
  EXPECT_EQ((counts - counts).sum(), 0U);
}

TEST(PerSource, is_plain_words_for_difference) {
  SourceCounts now;
  now[Source::host] = 9;
  SourceCounts before;
  before[Source::host] = 4;
  EXPECT_EQ(difference(now, before)[Source::host], 5U);
}

}  // namespace
}  // namespace terrace
