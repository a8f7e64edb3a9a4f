#pragma once

#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "tools/cli.hpp"
#include "tools/usage_error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tools {

// Converters: each turns one word of the command line into a value. All take the name of the option and the word. They throw
// UsageError with one line that names the option, the word, and what would be right.

[[nodiscard]] std::uint64_t to_whole_number(const std::string& option, const std::string& word, std::uint64_t min,
                                            std::uint64_t max);
[[nodiscard]] Bytes to_size(const std::string& option, const std::string& word);
[[nodiscard]] BytesPerSecond to_bandwidth(const std::string& option, const std::string& word);
[[nodiscard]] BytesPerSecond to_positive_bandwidth(const std::string& option, const std::string& word);
/// A finite number greater than 0.
[[nodiscard]] double to_positive_number(const std::string& option, const std::string& word);
/// A number from 0 to 1, or a percentage.
[[nodiscard]] double to_fraction(const std::string& option, const std::string& word);
/// A duration with a unit, or a number of seconds: more than 0, a day at most. The result is at least one nanosecond.
[[nodiscard]] Duration to_duration(const std::string& option, const std::string& word);
/// Any word.
inline constexpr auto to_word = [](const std::string&, const std::string& word) { return word; };
/// A name that is not empty.
[[nodiscard]] std::filesystem::path to_file(const std::string& option, const std::string& word);
[[nodiscard]] std::filesystem::path to_directory(const std::string& option, const std::string& word);

/// Converts to an integer of type T in a range.
template <class T>
struct WholeNumber {
  T min = 0;
  T max = std::numeric_limits<T>::max();

  T operator()(const std::string& option, const std::string& word) const {
    return static_cast<T>(to_whole_number(option, word, min, max));
  }
};

/// Converts a name to one of `values`. These are names themselves, or have a to_string().
template <class T, std::size_t n>
struct OneOf {
  std::array<T, n> values;

  T operator()(const std::string& option, const std::string& word) const {
    for (const T& value : values) {
      if (name_of(value) == word) return value;
    }
    throw UsageError{fmt::format("{}: there is no \"{}\"; there is: {}", option, word, fmt::join(names(), ", "))};
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    all.reserve(n);
    for (const T& value : values) all.emplace_back(name_of(value));
    return all;
  }

 private:
  static std::string_view name_of(const T& value) {
    if constexpr (std::convertible_to<T, std::string_view>) return value;
    else return to_string(value);
  }
};
template <class T, std::size_t n>
OneOf(std::array<T, n>) -> OneOf<T, n>;
template <class... Ts>
[[nodiscard]] constexpr auto one_of(Ts... values) {
  return OneOf{std::array{values...}};
}

/// Notes the words that an option takes, which the completion of shells offers. The option's converter still decides.
void set_choices(CLI::Option& option, const std::vector<std::string>& words);
/// The noted words; nothing if there are none.
[[nodiscard]] std::vector<std::string> choices_of(CLI::Option& option);
/// Notes the words that the converter accepts, if it has a list of them.
template <class Convert>
CLI::Option* with_choices(CLI::Option* option, const Convert& convert) {
  if constexpr (requires { convert.names(); }) set_choices(*option, convert.names());
  return option;
}

inline constexpr auto to_io_choice = one_of(IoChoice::automatic, IoChoice::uring, IoChoice::threads);

enum class Words : unsigned char { one, several };

/// Adds an option to `command`. Parsing calls `take` with the option's first name and its words, unless the command is asked for
/// its help. `type` is what the help shows in place of a word. The other strings are as in CLI::App::add_option().
CLI::Option* add_words(CLI::App& command, const std::string& names, Words number,
                       std::function<void(const std::string& option, const std::vector<std::string>& words)> take,
                       const char* type, const char* text);
/// The same for an option with one value. Parsing converts the word and stores it in `into`, which must outlive the parsing.
template <class T, class Convert>
CLI::Option* add_value(CLI::App& command, const std::string& names, T& into, Convert convert, const char* type,
                       const char* text) {
  const auto take = [&into, convert](const std::string& option, const auto& words) { into = convert(option, words.front()); };
  return with_choices(add_words(command, names, Words::one, take, type, text), convert);
}
/// The same for an option with one or several values.
template <class T, class Convert>
CLI::Option* add_value(CLI::App& command, const std::string& names, std::vector<T>& into, Convert convert, const char* type,
                       const char* text) {
  const auto take = [&into, convert](const std::string& option, const auto& words) {
    into.clear();
    for (const std::string& word : words) into.push_back(convert(option, word));
  };
  return with_choices(add_words(command, names, Words::several, take, type, text), convert);
}

}  // namespace terrace::tools
