#include "terrace/types.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <unordered_set>

namespace terrace {
namespace {

template <class A, class B>
concept ids_compare = requires(A a, B b) { a == b; };
template <class A, class B>
concept ids_order = requires(A a, B b) { a < b; };
template <class A, class B>
concept ids_add = requires(A a, B b) { a + b; };
template <class A>
concept countable = requires(A a) { ++a; };
template <class A>
concept truthy = requires(A a) { a ? 1 : 0; };

template <class Id, class Other>
concept ids_mix = std::convertible_to<Other, Id> || std::constructible_from<Id, Other> || std::assignable_from<Id&, Other> ||
                  ids_compare<Id, Other> || ids_order<Id, Other> || ids_add<Id, Other>;

// Ids with the same representation do not mix, and ids with different ones do not either.
static_assert(!ids_mix<RequestId, TransferId>);
static_assert(!ids_mix<TransferId, RequestId>);
static_assert(!ids_mix<TransferId, Fence>);
static_assert(!ids_mix<SlotId, Epoch>);
static_assert(!ids_mix<SlotId, TransferId>);
static_assert(!ids_mix<TransferId, SlotId>);
// (This shows that the concept can be true.)
static_assert(ids_mix<SlotId, SlotId>);

// A number becomes an id only by an explicit conversion, and an id never becomes a number implicitly.
static_assert(!std::convertible_to<std::uint32_t, SlotId>);
static_assert(!std::assignable_from<SlotId&, std::uint32_t>);
static_assert(std::constructible_from<SlotId, std::uint32_t>);
static_assert(!std::convertible_to<SlotId, std::uint32_t>);
static_assert(!ids_compare<SlotId, std::uint32_t>);
static_assert(!ids_add<SlotId, std::uint32_t>);
static_assert(!ids_add<SlotId, SlotId>);
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
