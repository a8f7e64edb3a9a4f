#include "terrace/result.hpp"

#include "base/failure.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <type_traits>

namespace terrace {
namespace {

// An Errc converts to an error code, and both convert to a Result.
static_assert(std::is_convertible_v<Errc, ErrorCode>);
static_assert(std::is_convertible_v<Errc, Result<int>>);
static_assert(std::is_convertible_v<ErrorCode, Result<int>>);
static_assert(std::is_convertible_v<int, Result<int>>);
static_assert(std::is_nothrow_move_constructible_v<Result<int>>);

constexpr int last_errc = static_cast<int>(Errc::stopped);

TEST(ErrorCategory, has_a_message_of_its_own_for_every_error) {
  std::set<std::string> messages;
  for (int code = 0; code <= last_errc; ++code) {
    const std::string message = terrace_category().message(code);
    EXPECT_NE(message, "unknown error") << code;
    EXPECT_FALSE(message.empty()) << code;
    EXPECT_NE(message.back(), '.') << message;
    EXPECT_TRUE(messages.insert(message).second) << message;
  }
  // This line fails when an error is added after the last one: then adjust last_errc.
  EXPECT_EQ(terrace_category().message(last_errc + 1), "unknown error");
  EXPECT_EQ(terrace_category().message(-1), "unknown error");
}

TEST(ErrorCategory, is_one_and_has_a_name) {
  EXPECT_EQ(&terrace_category(), &terrace_category());
  EXPECT_STREQ(terrace_category().name(), "terrace");
  EXPECT_NE(terrace_category(), boost::system::generic_category());
}

TEST(ErrorCode, of_an_errc_compares_with_it_and_with_no_other) {
  const ErrorCode code = Errc::no_room;
  EXPECT_TRUE(code == Errc::no_room);
  EXPECT_FALSE(code == Errc::never_fits);
  EXPECT_EQ(code.message(), "no room until something in use is released");
  // An errno of the same number is a different error.
  EXPECT_NE(code, (ErrorCode{code.value(), boost::system::generic_category()}));
}

TEST(ErrorCode, is_an_error_but_for_ok) {
  EXPECT_FALSE(ErrorCode{}.failed());
  EXPECT_FALSE(make_error_code(Errc::ok).failed());
  for (int code = 1; code <= last_errc; ++code) EXPECT_TRUE(make_error_code(static_cast<Errc>(code)).failed()) << code;
}

TEST(Result, holds_a_value_or_the_reason_there_is_none) {
  const Result<int> value = 42;
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(*value, 42);
  const Result<int> failure = Errc::full;
  EXPECT_FALSE(failure.has_value());
  EXPECT_FALSE(failure);
  EXPECT_EQ(failure.error(), Errc::full);
  EXPECT_THROW((void)failure.value(), boost::system::system_error);
}

TEST(Result, of_nothing_says_that_it_went_well) {
  const Result<void> fine{};
  EXPECT_TRUE(fine.has_value());
  const Result<void> failure = Errc::io_failed;
  EXPECT_EQ(failure.error(), Errc::io_failed);
}

Result<int> halve(int number) {
  if (number % 2 != 0) return failure<Errc::invalid_argument, "the number must be even">;
  return number / 2;
}

TEST(Failure, is_its_errc_with_a_sentence_of_its_own) {
  const ErrorCode error = halve(3).error();
  EXPECT_TRUE(error.failed());
  EXPECT_EQ(error, Errc::invalid_argument);
  EXPECT_NE(error, Errc::no_room);
  EXPECT_EQ(error, make_error_code(Errc::invalid_argument));
  EXPECT_EQ(error.category(), terrace_category());
  EXPECT_EQ(error.message(), "the number must be even");
  EXPECT_EQ(error.what(), "the number must be even [terrace:1]");
  EXPECT_EQ(halve(4).value(), 2);
  const ErrorCode other = failure<Errc::invalid_argument, "the number must be positive">;
  EXPECT_EQ(error, other) << "callers compare what they can act on";
  EXPECT_EQ(error.message(), "the number must be even") << "a later failure changes nothing";
  const std::error_code standard = error;
  EXPECT_EQ(standard.message(), "the number must be even");
  EXPECT_STREQ(standard.category().name(), "terrace");
  try {
    (void)halve(5).value();
    FAIL();
  } catch (const boost::system::system_error& thrown) {
    EXPECT_STREQ(thrown.what(), "the number must be even [terrace:1]");
  }
}

}  // namespace
}  // namespace terrace
