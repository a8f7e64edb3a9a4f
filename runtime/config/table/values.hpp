#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The types of configuration values: how words become values, and values become words. Nothing here knows an option.
///
/// Each reader takes the name of the option as the user wrote it ("--host-blocks", "terrace.toml:12: host-blocks") and the word.
/// It throws ConfigError with one line that says the name, the word, and what would be right.
namespace terrace::config {

enum class Type : unsigned char {
  whole,      ///< std::uint64_t
  size,       ///< std::uint64_t: bytes
  bandwidth,  ///< std::uint64_t: bytes per second
  duration,   ///< std::uint64_t: nanoseconds
  share,      ///< double, 0 to 1
  yes_no,     ///< bool
  name,       ///< std::string, one of a list
  text,       ///< std::string
  path,       ///< std::string, not empty
  paths,      ///< std::vector<std::string>
  device,     ///< std::string: emulated, cuda, cuda:N
  storage,    ///< std::string: none, memory:, file:DIR
  shared,     ///< std::string: none, memory:, redis://HOST, rediss://HOST
  digest,     ///< std::string: 64 lower-case hexadecimal digits
};
using Value = std::variant<std::uint64_t, double, bool, std::string, std::vector<std::string>>;

/// The limits of a number: a count, bytes, bytes per second, or nanoseconds.
struct Limits {
  std::uint64_t min = 0;
  std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
};

/// Returns the text with a space in place of each control character.
[[nodiscard]] std::string one_line(std::string_view text);

[[nodiscard]] std::uint64_t read_whole(std::string_view name, std::string_view word, Limits limits);
[[nodiscard]] std::uint64_t read_size(std::string_view name, std::string_view word, Limits limits);
[[nodiscard]] std::uint64_t read_bandwidth(std::string_view name, std::string_view word, Limits limits);
[[nodiscard]] std::uint64_t read_duration(std::string_view name, std::string_view word, Limits limits);
/// A finite number greater than 0.
[[nodiscard]] double read_positive_number(std::string_view name, std::string_view word);
[[nodiscard]] double read_share(std::string_view name, std::string_view word);
[[nodiscard]] bool read_yes_no(std::string_view name, std::string_view word);
[[nodiscard]] std::string read_path(std::string_view name, std::string_view word);
[[nodiscard]] std::string read_device(std::string_view name, std::string_view word);

/// Reads a value of any type. `names` is the list for Type::name. The word of Type::paths is one path.
[[nodiscard]] Value read_value(Type type, std::string_view name, std::string_view word, Limits limits,
                               std::span<const std::string> names);

/// Returns the exact value as a word that read_value() takes: "64KiB", "500ms", "on". Paths are separated by commas.
[[nodiscard]] std::string to_word(Type type, const Value& value);
/// Returns the value as TOML.
[[nodiscard]] std::string to_toml(Type type, const Value& value);
/// Returns the text as a TOML string, with quotes.
[[nodiscard]] std::string toml_string(std::string_view text);
/// The word for a value in help texts: "SIZE".
[[nodiscard]] std::string_view placeholder(Type type);

}  // namespace terrace::config
