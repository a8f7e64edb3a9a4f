#include "terrace/types.hpp"

#include "base/random.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <limits>
#include <string>

namespace terrace {
namespace {

// A size does not convert to a number, and a number does not convert to a size.
static_assert(!std::convertible_to<std::uint64_t, Bytes>);
static_assert(!std::convertible_to<Bytes, std::uint64_t>);
template <class A, class B>
concept sizes_add = requires(A a, B b) { a + b; };
template <class A, class B>
concept multipliable = requires(A a, B b) { a* b; };
static_assert(sizes_add<Bytes, Bytes> && !sizes_add<Bytes, std::uint64_t>);
static_assert(multipliable<Bytes, std::uint64_t> && !multipliable<Bytes, Bytes>);

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

std::uint64_t parsed(std::string_view text) {
  const Result<Bytes> size = parse_bytes(text);
  EXPECT_TRUE(size.has_value()) << text;
  return size ? count(*size) : 0;
}

TEST(Bytes, are_read_in_every_unit) {
  EXPECT_EQ(parsed("4096"), 4096U);
  EXPECT_EQ(parsed("512B"), 512U);
  EXPECT_EQ(parsed("3KiB"), std::uint64_t{3} << 10);
  EXPECT_EQ(parsed("3MiB"), std::uint64_t{3} << 20);
  EXPECT_EQ(parsed("64GiB"), std::uint64_t{64} << 30);
  EXPECT_EQ(parsed("2TiB"), std::uint64_t{2} << 40);
  EXPECT_EQ(parsed("0"), 0U);
  EXPECT_EQ(parsed("0TiB"), 0U);
  EXPECT_EQ(parsed("007KiB"), std::uint64_t{7} << 10);
}

TEST(Bytes, are_read_exactly_where_there_is_a_fraction) {
  EXPECT_EQ(parsed("1.5KiB"), 1536U);
  EXPECT_EQ(parsed("1.5MiB"), std::uint64_t{3} << 19);
  EXPECT_EQ(parsed("0.25GiB"), std::uint64_t{1} << 28);
  EXPECT_EQ(parsed("2.000KiB"), 2048U);
  EXPECT_EQ(parsed("12.0B"), 12U);
  // 2^-9 TiB: the most digits that are read, exact because no floating point is used: 2^40 - 2^31.
  EXPECT_EQ(parsed("0.998046875TiB"), (std::uint64_t{1} << 40) - (std::uint64_t{1} << 31));
  EXPECT_EQ(parsed("1048575.998046875TiB") % (std::uint64_t{1} << 40), (std::uint64_t{1} << 40) - (std::uint64_t{1} << 31));
}

TEST(Bytes, that_are_not_whole_are_refused) {
  for (const char* text : {"0.1B", "0.5", "1.1KiB", "0.3MiB", "1.000000001TiB"}) {
    EXPECT_EQ(parse_bytes(text).error(), Errc::invalid_argument) << text;
  }
}

TEST(Bytes, are_read_with_nine_digits_behind_the_point_at_most) {
  EXPECT_EQ(parsed("1.500000000KiB"), 1536U);
  for (const char* text : {"1.5000000000KiB", "1.50000000000000000000KiB", "1.000000000000000000000000000000KiB"}) {
    EXPECT_EQ(parse_bytes(text).error(), Errc::invalid_argument) << text;
  }
}

TEST(Bytes, beyond_64_bits_are_refused) {
  EXPECT_EQ(parsed("18446744073709551615"), largest);
  EXPECT_EQ(parsed("18014398509481983KiB"), largest - 1023);
  EXPECT_EQ(parsed("16777215.5TiB"), largest - (std::uint64_t{1} << 39) + 1);
  for (const char* text : {"18446744073709551616", "18014398509481984KiB", "17592186044416MiB", "17179869184GiB", "16777216TiB",
                           "99999999999999999999KiB", "18446744073709551615TiB"}) {
    EXPECT_EQ(parse_bytes(text).error(), Errc::invalid_argument) << text;
  }
}

TEST(Bytes, in_decimal_or_unknown_units_are_refused_and_not_guessed) {
  for (const char* text :
       {"1GB", "1kB", "1KB", "1MB", "1TB", "1K", "1M", "1G", "1kib", "1gib", "1PiB", "1 GiB", "1GiB ", "1GiBs"}) {
    EXPECT_EQ(parse_bytes(text).error(), Errc::invalid_argument) << text;
  }
}

TEST(Bytes, that_are_no_number_are_refused) {
  for (const char* text :
       {"", "B", "GiB", "-1", "+1", " 1", "1.", "1.KiB", ".5KiB", "1.-5KiB", "1.5.5KiB", "0x10", "1e3", "nan"}) {
    EXPECT_EQ(parse_bytes(text).error(), Errc::invalid_argument) << text;
  }
  EXPECT_EQ(parse_bytes(std::string_view{}).error(), Errc::invalid_argument);
}

TEST(Bytes, are_read_up_to_the_end_of_the_view_and_no_further) {
  EXPECT_EQ(parsed(std::string_view{"12KiB34"}.substr(0, 5)), 12U << 10);
  EXPECT_EQ(parsed(std::string_view{"1234"}.substr(0, 2)), 12U);
}

TEST(Bytes, print_in_the_largest_unit_that_fits) {
  EXPECT_EQ(to_string(Bytes{0}), "0B");
  EXPECT_EQ(to_string(Bytes{517}), "517B");
  EXPECT_EQ(to_string(Bytes{1023}), "1023B");
  EXPECT_EQ(to_string(KiB), "1KiB");
  EXPECT_EQ(to_string(Bytes{1536}), "1.5KiB");
  EXPECT_EQ(to_string(MiB * 3), "3MiB");
  EXPECT_EQ(to_string(GiB * 64), "64GiB");
  EXPECT_EQ(to_string(TiB * 2000), "2000TiB");
  // Prints three digits if the exact form is longer.
  EXPECT_EQ(to_string(Bytes{1234567}), "1.18MiB");
  EXPECT_EQ(to_string(GiB * 64 + MiB * 300), "64.3GiB");
  EXPECT_EQ(to_string(GiB - KiB * 64), "1GiB") << "rounded, and not 1024MiB";
  EXPECT_EQ(to_string(GiB - MiB), "1023MiB");
  EXPECT_EQ(to_string(TiB * 1024 - GiB), "1024TiB");
}

TEST(Bytes, that_are_a_whole_number_of_a_unit_come_back_from_print) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  for (int i = 0; i < 2000; ++i) {
    const Bytes unit{std::uint64_t{1} << (10 * random.below(5))};
    const Bytes size = unit * random.below(1024);
    ASSERT_EQ(parse_bytes(to_string(size)).value(), size) << to_string(size);
    const Bytes half = unit * random.below(99) + Bytes{count(unit) / 2};
    ASSERT_EQ(parse_bytes(to_string(half)).value(), half) << to_string(half);
  }
}

TEST(Bytes, of_any_number_written_plainly_come_back) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t n = random.between(0, largest) >> random.below(64);
    ASSERT_EQ(parsed(std::to_string(n)), n);
    ASSERT_EQ(parsed(std::to_string(n) + "B"), n);
  }
}

TEST(Bytes, count_how_often_one_goes_into_another) {
  EXPECT_EQ(GiB / KiB, std::uint64_t{1} << 20);
  EXPECT_EQ((KiB * 10) / (KiB * 3), 3U);
  Bytes sum = KiB;
  sum += Bytes{24};
  EXPECT_EQ(count(sum), 1048U);
  EXPECT_EQ(sum - KiB, Bytes{24});
  EXPECT_LT(KiB, MiB);
}

TEST(Bytes, print_no_exponents) {
  EXPECT_EQ(to_string(Bytes{1000 * 1024 + 256}), "1000KiB");
  EXPECT_EQ(to_string(Bytes{~std::uint64_t{0}}), "16777216TiB");
}

}  // namespace
}  // namespace terrace
