#include "terrace/types.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace terrace {
namespace {

template <class A, class B>
concept comparable = requires(A a, B b) { a == b; };
template <class A, class B>
concept ordered = requires(A a, B b) { a < b; };
template <class A, class B>
concept addable = requires(A a, B b) { a + b; };
template <class A, class B>
concept subtractable = requires(A a, B b) { a - b; };

template <class Count, class Other>
concept mixes =
    std::convertible_to<Other, Count> || std::constructible_from<Count, Other> || std::assignable_from<Count&, Other> ||
    comparable<Count, Other> || ordered<Count, Other> || addable<Count, Other> || subtractable<Count, Other>;

// Counts of two kinds do not mix, and neither do a count and a size or a bandwidth.
static_assert(!mixes<Blocks, HashUnits>);
static_assert(!mixes<HashUnits, Blocks>);
static_assert(!mixes<Blocks, Bytes>);
static_assert(!mixes<HashUnits, SlotId>);
static_assert(!mixes<BytesPerSecond, Bytes>);
static_assert(!mixes<Bytes, BytesPerSecond>);
// (This shows that the concept can be true.)
static_assert(mixes<Blocks, Blocks>);

// A count does not become a number implicitly, and only whole numbers become counts.
static_assert(!std::convertible_to<Blocks, std::uint32_t>);
static_assert(!std::convertible_to<Blocks, bool>);
static_assert(!std::convertible_to<bool, Blocks>);
static_assert(!std::convertible_to<double, Blocks>);

struct Options {
  Blocks blocks = 7;
  HashUnits units{};
};

/// Whether `Number` is a constant that becomes a count by itself.
template <auto Number>
concept converts = requires { typename std::bool_constant<Options{.blocks = Number}.blocks == Blocks{}>; };

static_assert(converts<0>);
static_assert(converts<4096>);
static_assert(converts<std::uint64_t{4096}>);
static_assert(converts<std::numeric_limits<std::uint32_t>::max()>);
static_assert(!converts<-1>);
static_assert(!converts<std::uint64_t{1} << 32>);
static_assert(!converts<true>);

// A count is as large as its number.
static_assert(sizeof(Blocks) == sizeof(std::uint32_t));
static_assert(std::is_trivially_copyable_v<Blocks>);

TEST(StrongCount, is_its_number_and_zero_unless_told_otherwise) {
  EXPECT_EQ(Blocks{}.value(), 0U);
  EXPECT_EQ(Options{}.blocks.value(), 7U);
  EXPECT_EQ((Options{.blocks = 4096, .units = 3}.blocks.value()), 4096U);
  static_assert(Blocks{3}.value() == 3);
}

TEST(StrongCount, takes_a_number_of_run_time_with_its_name) {
  for (std::uint32_t number = 0; number < 3; ++number) {
    Options options;
    options.units = HashUnits{number};
    EXPECT_EQ(options.units.value(), number);
  }
}

TEST(StrongCount, compares_as_its_number) {
  EXPECT_EQ(Blocks{1}, Blocks{1});
  EXPECT_NE(Blocks{1}, Blocks{2});
  EXPECT_LT(Blocks{1}, Blocks{2});
  EXPECT_TRUE(Blocks{5} >= 5);
  EXPECT_FALSE(Blocks{5} == 6);
}

TEST(StrongCount, adds_and_subtracts_counts_of_its_kind) {
  EXPECT_EQ(Blocks{5} + Blocks{2}, Blocks{7});
  EXPECT_EQ(Blocks{5} - Blocks{2}, Blocks{3});
  EXPECT_EQ(HashUnits{5} + 1, HashUnits{6});
}

TEST(BytesPerSecond, is_made_from_a_size) { EXPECT_EQ(count(per_second(MiB * 50)), 50U << 20); }

}  // namespace
}  // namespace terrace
