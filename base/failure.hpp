#pragma once

#include "terrace/result.hpp"

#include <boost/system/error_category.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace terrace {

/// The error category of one failure, which has its own sentence. An ErrorCode that is made from it equals its Errc, and
/// message() returns the sentence: what was wrong, and what would be right. It is a constant, so a failing call allocates no
/// memory, and the sentence stays with the code when the code is copied.
class Failure final : public boost::system::error_category {
 public:
  constexpr Failure(Errc code, const char* sentence) noexcept
      : error_category{terrace_category_id}, code_{code}, sentence_{sentence} {}

  [[nodiscard]] const char* name() const noexcept override { return terrace_category().name(); }
  [[nodiscard]] std::string message(int) const override { return sentence_; }

  // NOLINTNEXTLINE(google-explicit-constructor,hicpp-explicit-conversions): `return failure<...>;` where a Result is returned
  operator ErrorCode() const noexcept { return {static_cast<int>(code_), *this}; }

 private:
  Errc code_;
  const char* sentence_;
};

/// A text that can be a template argument.
template <std::size_t size>
struct FixedText {
  // NOLINTNEXTLINE(google-explicit-constructor,hicpp-explicit-conversions,*-avoid-c-arrays): made of a literal
  consteval FixedText(const char (&literal)[size]) { std::copy_n(literal, size, text.begin()); }
  std::array<char, size> text{};
};

///     if (slots.size() != keys.size()) return failure<Errc::invalid_argument, "there must be one slot for each key">;
template <Errc code, FixedText sentence>
inline constinit const Failure failure{code, sentence.text.data()};

}  // namespace terrace
