#include "tools/arguments.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

namespace terrace::tools {
namespace {

/// Returns nothing if the word is no number, or no finite one.
std::optional<double> real_number(const std::string& word) {
  double number = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc{} || rest != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace

std::uint64_t to_whole_number(const std::string& option, const std::string& word, std::uint64_t min, std::uint64_t max) {
  std::uint64_t number = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  if (error == std::errc::invalid_argument || rest != end)
    throw UsageError{fmt::format("{}: \"{}\" is not a whole number", option, word)};
  if (error != std::errc{} || number < min || number > max) {
    throw UsageError{fmt::format("{}: {} is not from {} to {}", option, word, min, max)};
  }
  return number;
}

Bytes to_size(const std::string& option, const std::string& word) {
  const Result<Bytes> size = parse_bytes(word);
  if (!size) throw UsageError{fmt::format("{}: \"{}\" is not a size (a number and B, KiB, MiB, GiB or TiB)", option, word)};
  return *size;
}

Bytes to_positive_size(const std::string& option, const std::string& word) {
  const Bytes size = to_size(option, word);
  if (size == Bytes{}) throw UsageError{fmt::format("{}: {} is too small: it must be more than 0", option, word)};
  return size;
}

double to_positive_number(const std::string& option, const std::string& word) {
  const std::optional<double> number = real_number(word);
  if (!number || *number <= 0) throw UsageError{fmt::format("{}: \"{}\" is not a number greater than 0", option, word)};
  return *number;
}

double to_fraction(const std::string& option, const std::string& word) {
  const std::optional<double> number = real_number(word);
  if (!number || *number < 0 || *number > 1) {
    throw UsageError{fmt::format("{}: \"{}\" is not a number from 0 to 1", option, word)};
  }
  return *number;
}

Duration to_duration(const std::string& option, const std::string& word) {
  const std::chrono::duration<double> seconds{to_positive_number(option, word)};
  constexpr std::chrono::seconds day = std::chrono::hours{24};
  if (seconds > day) throw UsageError{fmt::format("{}: {} is more than a day ({} seconds)", option, word, day.count())};
  return std::max(Duration{1}, std::chrono::duration_cast<Duration>(seconds));
}

std::filesystem::path to_file(const std::string& option, const std::string& word) {
  if (word.empty()) throw UsageError{fmt::format("{}: the file's name is empty", option)};
  return word;
}

std::filesystem::path to_directory(const std::string& option, const std::string& word) {
  if (word.empty()) throw UsageError{fmt::format("{0} needs a directory, as in {0} /mnt/b/terrace", option)};
  return word;
}

IoChoice to_io_choice(const std::string& option, const std::string& word) {
  return one_of(IoChoice::automatic, IoChoice::uring, IoChoice::threads)(option, word);
}

CLI::Option* add_words(CLI::App& command, const std::string& names, Words number,
                       std::function<void(const std::string& option, const std::vector<std::string>& words)> take,
                       const char* type, const char* text) {
  const auto asks = [](const CLI::Option* help) { return help != nullptr && help->count() > 0; };
  CLI::callback_t parse = [&command, asks, take = std::move(take), option = names.substr(0, names.find(','))](const auto& words) {
    // CLI11 converts before it looks for --help, which must work with a wrong word too.
    if (!asks(command.get_help_ptr()) && !asks(command.get_help_all_ptr())) take(option, words);
    return true;
  };
  CLI::Option* const added = command.add_option(names, std::move(parse), text)->type_name(type);
  return number == Words::one ? added : added->expected(CLI::detail::expected_max_vector_size);
}

}  // namespace terrace::tools
