#include "terrace/types.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <unordered_set>

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

template <class A>
concept countable = requires(A a) { ++a; };
template <class A>
concept truthy = requires(A a) { a ? 1 : 0; };

template <class Count, class Other>
concept mixes =
    std::convertible_to<Other, Count> || std::constructible_from<Count, Other> || std::assignable_from<Count&, Other> ||
    comparable<Count, Other> || ordered<Count, Other> || addable<Count, Other> || subtractable<Count, Other>;

// ---- counts

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

// ---- ids

// Ids with the same representation do not mix, and ids with different ones do not either.
static_assert(!mixes<RequestId, TransferId>);
static_assert(!mixes<TransferId, RequestId>);
static_assert(!mixes<TransferId, Fence>);
static_assert(!mixes<SlotId, Epoch>);
static_assert(!mixes<SlotId, TransferId>);
static_assert(!mixes<TransferId, SlotId>);
// (This shows that the concept can be true.)
static_assert(mixes<SlotId, SlotId>);

// A number becomes an id only by an explicit conversion, and an id never becomes a number implicitly.
static_assert(!std::convertible_to<std::uint32_t, SlotId>);
static_assert(!std::assignable_from<SlotId&, std::uint32_t>);
static_assert(std::constructible_from<SlotId, std::uint32_t>);
static_assert(!std::convertible_to<SlotId, std::uint32_t>);
static_assert(!comparable<SlotId, std::uint32_t>);
static_assert(!addable<SlotId, std::uint32_t>);
static_assert(!addable<SlotId, SlotId>);
static_assert(!countable<SlotId>);
static_assert(!truthy<SlotId>);

// An id is as large as its number.
static_assert(sizeof(SlotId) == sizeof(std::uint32_t));
static_assert(sizeof(TransferId) == sizeof(std::uint64_t));
static_assert(std::is_trivially_copyable_v<SlotId>);

TEST(StrongId, is_its_number_and_zero_unless_told_otherwise) {
  EXPECT_EQ(SlotId{}.value(), 0U);
  EXPECT_EQ(SlotId{7}.value(), 7U);
  EXPECT_EQ(TransferId{0xFFFF'FFFF'FFFF'FFFF}.value(), 0xFFFF'FFFF'FFFF'FFFFU);
  static_assert(SlotId{3}.value() == 3);
}

TEST(StrongId, compares_as_its_number) {
  EXPECT_EQ(SlotId{1}, SlotId{1});
  EXPECT_NE(SlotId{1}, SlotId{2});
  EXPECT_LT(SlotId{1}, SlotId{2});
  EXPECT_GE(Fence{5}, Fence{5});
}

TEST(StrongId, serves_as_a_key_of_a_hash_table) {
  const std::unordered_set<RequestId> ids{RequestId{1}, RequestId{2}, RequestId{1}};
  EXPECT_EQ(ids.size(), 2U);
  EXPECT_TRUE(ids.contains(RequestId{2}));
}

}  // namespace
}  // namespace terrace
