#include "base/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace terrace {
namespace {

template <class Draw>
std::vector<std::uint64_t> ten(std::uint64_t seed, Draw draw) {
  Random random{seed};
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < 10; ++i) numbers.push_back(draw(random));
  return numbers;
}

TEST(Random, draws_the_same_numbers_from_the_same_seed_and_others_from_another) {
  const auto draw = [](Random& random) { return random.below(1'000'000'007); };
  EXPECT_EQ(ten(1, draw), ten(1, draw));
  EXPECT_NE(ten(1, draw), ten(2, draw));
}

// A seed must give the same numbers on every platform, so that a failure can be repeated. The number of the engine is from the
// C++ standard. The others were drawn once and must not change.
TEST(Random, draws_the_golden_numbers) {
  Random standard{5489};
  standard.engine().discard(9999);
  EXPECT_EQ(standard.engine()(), 9'981'545'732'273'789'042ULL);

  using Ten = std::vector<std::uint64_t>;
  EXPECT_EQ(ten(1, [](Random& r) { return r.below(100); }), (Ten{13, 13, 45, 2, 35, 91, 47, 7, 56, 63}));
  EXPECT_EQ(ten(1, [](Random& r) { return r.between(1000, 2000); }),
            (Ten{1134, 1136, 1451, 1021, 1351, 1912, 1471, 1074, 1570, 1635}));
  EXPECT_EQ(ten(1, [](Random& r) { return std::uint64_t{r.chance(0.5)}; }), (Ten{1, 1, 1, 1, 1, 0, 1, 1, 0, 0}));
}

TEST(Random, stays_within_its_bounds_and_reaches_them) {
  Random random{1};
  std::array<bool, 3> seen{};
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t below = random.below(3);
    ASSERT_LT(below, 3U);
    seen[below] = true;
    const std::uint64_t between = random.between(7, 9);
    ASSERT_GE(between, 7U);
    ASSERT_LE(between, 9U);
    EXPECT_EQ(random.below(1), 0U);
    EXPECT_EQ(random.between(5, 5), 5U);
    EXPECT_FALSE(random.chance(0.0));
    EXPECT_TRUE(random.chance(1.0));
  }
  EXPECT_EQ(seen, (std::array{true, true, true}));
}

}  // namespace
}  // namespace terrace
