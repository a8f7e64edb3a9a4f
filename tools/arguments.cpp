#include "tools/arguments.hpp"

#include "runtime/config/table/values.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <sstream>
#include <utility>

namespace terrace::tools {

std::uint64_t to_whole_number(const std::string& option, const std::string& word, std::uint64_t min, std::uint64_t max) {
  return as_usage([&] { return config::read_whole(option, word, {min, max}); });
}

Bytes to_size(const std::string& option, const std::string& word) {
  return as_usage([&] { return Bytes{config::read_size(option, word, {})}; });
}

BytesPerSecond to_bandwidth(const std::string& option, const std::string& word) {
  return as_usage([&] { return BytesPerSecond{config::read_bandwidth(option, word, {})}; });
}

BytesPerSecond to_positive_bandwidth(const std::string& option, const std::string& word) {
  return as_usage([&] { return BytesPerSecond{config::read_bandwidth(option, word, {.min = 1})}; });
}

double to_positive_number(const std::string& option, const std::string& word) {
  return as_usage([&] { return config::read_positive_number(option, word); });
}

double to_fraction(const std::string& option, const std::string& word) {
  return as_usage([&] { return config::read_share(option, word); });
}

Duration to_duration(const std::string& option, const std::string& word) {
  constexpr std::chrono::nanoseconds day = std::chrono::hours{24};
  const std::uint64_t nanoseconds = as_usage([&] {
    return config::read_duration(option, word, {1, static_cast<std::uint64_t>(day.count())});
  });
  return std::chrono::nanoseconds{nanoseconds};
}

std::filesystem::path to_file(const std::string& option, const std::string& word) {
  if (word.empty()) throw UsageError{fmt::format("{}: the file's name is empty", option)};
  return word;
}

std::filesystem::path to_directory(const std::string& option, const std::string& word) {
  return as_usage([&] { return config::read_path(option, word); });
}

// CLI11 has no place for them in an option, other than the name of a check. The check accepts every word.
void set_choices(CLI::Option& option, const std::vector<std::string>& words) {
  if (words.empty()) return;
  option.check(CLI::Validator{[](std::string&) { return std::string{}; }, "", fmt::format("{}", fmt::join(words, " "))});
}

std::vector<std::string> choices_of(CLI::Option& option) {
  std::vector<std::string> words;
  try {
    std::istringstream names{option.get_validator(0)->get_name()};
    for (std::string word; names >> word;) words.push_back(word);
  } catch (const CLI::OptionNotFound&) {
    // The option has no check, and so no list.
  }
  return words;
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
