#include "runtime/config/table/values.hpp"

#include "terrace/config.hpp"
#include "terrace/types.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace terrace {

std::optional<BytesPerSecond> parse_bandwidth(std::string_view text) {
  constexpr std::string_view per_second = "/s";
  if (text.ends_with(per_second)) text.remove_suffix(per_second.size());
  const Result<Bytes> bytes = parse_bytes(text);
  if (!bytes) return std::nullopt;
  return BytesPerSecond{count(*bytes)};
}

std::string to_string(BytesPerSecond bandwidth) { return config::to_word(config::Type::size, count(bandwidth)) + "/s"; }

namespace config {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t size;
};
/// Smallest first.
constexpr std::array<Unit, 6> duration_units{
    {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}, {"min", 60'000'000'000}, {"h", 3'600'000'000'000}}};
constexpr std::array<Unit, 5> size_units{
    {{"B", 1}, {"KiB", count(KiB)}, {"MiB", count(MiB)}, {"GiB", count(GiB)}, {"TiB", count(TiB)}}};

/// Returns the number in the largest unit that divides it. `zero` is the unit of 0.
std::string in_units(std::uint64_t number, std::span<const Unit> units, std::string_view zero) {
  if (number == 0) return fmt::format("0{}", zero);
  for (std::size_t i = units.size(); i-- > 0;) {
    if (number % units[i].size == 0) return fmt::format("{}{}", number / units[i].size, units[i].name);
  }
  return "";
}

std::string size_word(std::uint64_t bytes) { return in_units(bytes, size_units, "B"); }
std::string duration_word(std::uint64_t nanoseconds) { return in_units(nanoseconds, duration_units, "s"); }

/// A user's words may have any characters, but a message must have one line.
[[noreturn]] void refuse(const std::string& message) { throw ConfigError{one_line(message)}; }

/// Returns nothing if the word is not a finite number.
std::optional<double> real_number(std::string_view word) {
  double number = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc{} || rest != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

void check_limits(std::string_view name, std::string_view word, std::uint64_t number, Limits limits, std::string_view small,
                  std::string (*shown)(std::uint64_t)) {
  if (number < limits.min && limits.min == 1) {
    refuse(fmt::format("{}: {} is too {}: it must be more than 0", name, word, small));
  }
  if (number < limits.min) refuse(fmt::format("{}: {} is less than {}", name, word, shown(limits.min)));
  if (number > limits.max) refuse(fmt::format("{}: {} is more than {}", name, word, shown(limits.max)));
}

std::string read_name(std::string_view name, std::string_view word, std::span<const std::string> names) {
  if (std::ranges::find(names, word) != names.end()) return std::string{word};
  refuse(fmt::format("{}: there is no \"{}\"; there is: {}", name, word, fmt::join(names, ", ")));
}

std::string read_storage(std::string_view name, std::string_view word) {
  constexpr std::string_view file = "file:";
  if (word == file) refuse(fmt::format("{} file: needs a directory, as in file:/var/cache/terrace", name));
  if (word == "none" || word == "memory:" || word.starts_with(file)) return std::string{word};
  if (word.starts_with('/')) refuse(fmt::format("{}: there is no \"{}\"; a directory is written file:{}", name, word, word));
  // It may be the URL of a shared store, with a password.
  refuse(fmt::format("{}: there is no \"{}\"; there is: none, memory:, file:DIR", name, word.substr(0, word.find(':'))));
}

/// The URL of a shared store. A password in it is refused, because values of options are shown.
std::string read_shared(std::string_view name, std::string_view word) {
  if (word == "none" || word == "memory:") return std::string{word};
  const std::size_t scheme = word.find("://");
  const std::string_view before = word.substr(0, scheme);
  if (scheme == std::string_view::npos || (before != "redis" && before != "rediss")) {
    // The rest may contain a password, so the message does not show it.
    refuse(fmt::format("{}: there is no \"{}\"; there is: none, memory:, redis://HOST, rediss://HOST", name,
                       word.substr(0, word.find(':'))));
  }
  const std::string_view rest = word.substr(scheme + 3);
  const std::string_view servers = rest.substr(0, rest.find_first_of("/?"));
  const std::size_t at = servers.rfind('@');
  const std::string_view user = at == std::string_view::npos ? "" : servers.substr(0, at);
  // A password may contain a / or a ?, and then the @ after it is not in `servers`.
  const bool is_cut = rest.find('@', servers.size()) != std::string_view::npos;
  if (user.find(':') != std::string_view::npos || is_cut) {
    refuse(fmt::format("{}: a URL is shown to operators, so it has no password: use TERRACE_SHARED_PASSWORD, or a file", name));
  }
  const std::string_view hosts = at == std::string_view::npos ? servers : servers.substr(at + 1);
  const bool has_blank = std::ranges::any_of(word, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; });
  if (hosts.empty() || has_blank) refuse(fmt::format("{}: {}:// needs a server, as in {}://cache:6379", name, before, before));
  return std::string{word};
}

std::string read_digest(std::string_view name, std::string_view word) {
  const Result<BlockKey> digest = parse_block_key(word);
  if (!digest) refuse(fmt::format("{}: \"{}\" is not 64 hexadecimal digits", name, word));
  return to_hex(*digest);
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) line += static_cast<unsigned char>(c) < 0x20 || c == '\x7f' ? ' ' : c;
  return line;
}

std::uint64_t read_whole(std::string_view name, std::string_view word, Limits limits) {
  std::uint64_t number = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, number);
  if (error == std::errc::invalid_argument || rest != end) {
    refuse(fmt::format("{}: \"{}\" is not a whole number", name, word));
  }
  if (error != std::errc{} || number < limits.min || number > limits.max) {
    refuse(fmt::format("{}: {} is not from {} to {}", name, word, limits.min, limits.max));
  }
  return number;
}

std::uint64_t read_size(std::string_view name, std::string_view word, Limits limits) {
  const Result<Bytes> size = parse_bytes(word);
  if (!size) refuse(fmt::format("{}: \"{}\" is not a size (a number and B, KiB, MiB, GiB or TiB)", name, word));
  check_limits(name, word, count(*size), limits, "small", size_word);
  return count(*size);
}

std::uint64_t read_bandwidth(std::string_view name, std::string_view word, Limits limits) {
  const std::optional<BytesPerSecond> bandwidth = parse_bandwidth(word);
  if (!bandwidth) refuse(fmt::format("{}: \"{}\" is not a size per second, as in 50MiB/s", name, word));
  check_limits(name, word, count(*bandwidth), limits, "small", size_word);
  return count(*bandwidth);
}

std::uint64_t read_duration(std::string_view name, std::string_view word, Limits limits) {
  const std::size_t letters = std::min(word.find_last_not_of("abcdefghijklmnopqrstuvwxyz") + 1, word.size());
  const std::string_view unit_name = letters == word.size() ? "s" : word.substr(letters);
  const auto unit = std::ranges::find(duration_units, unit_name, &Unit::name);
  const std::optional<double> number = real_number(word.substr(0, letters));
  if (unit == duration_units.end() || !number || *number < 0) {
    refuse(
        fmt::format("{}: \"{}\" is not a duration (a number and ns, us, ms, s, min or h; without a unit: seconds)", name, word));
  }
  constexpr double most = 9e18;  // the limits of all options are lower
  const double exact = std::min(*number * static_cast<double>(unit->size), most);
  const auto nanoseconds = static_cast<std::uint64_t>(*number > 0 ? std::max(1.0, std::round(exact)) : 0);
  check_limits(name, word, nanoseconds, limits, "short", duration_word);
  return nanoseconds;
}

double read_positive_number(std::string_view name, std::string_view word) {
  const std::optional<double> number = real_number(word);
  if (!number || *number <= 0) refuse(fmt::format("{}: \"{}\" is not a number greater than 0", name, word));
  return *number;
}

double read_share(std::string_view name, std::string_view word) {
  const bool percent = word.ends_with('%');
  std::optional<double> number = real_number(percent ? word.substr(0, word.size() - 1) : word);
  if (number && percent) *number /= 100;
  if (!number || *number < 0 || *number > 1) {
    refuse(fmt::format("{}: \"{}\" is not a number from 0 to 1, or a percentage", name, word));
  }
  return *number;
}

bool read_yes_no(std::string_view name, std::string_view word) {
  if (word == "true" || word == "on") return true;
  if (word == "false" || word == "off") return false;
  refuse(fmt::format("{}: there is no \"{}\"; there is: on, off, true, false", name, word));
}

std::string read_path(std::string_view name, std::string_view word) {
  if (word.empty()) refuse(fmt::format("{0} needs a directory, as in {0} /mnt/b/terrace", name));
  return std::string{word};
}

std::string read_device(std::string_view name, std::string_view word) {
  constexpr std::string_view prefix = "cuda:";
  constexpr std::uint64_t ordinal_max = 1023;
  bool understood = word == "emulated" || word == "cuda";
  if (word.starts_with(prefix)) {
    std::uint64_t ordinal = 0;
    const char* const end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data() + prefix.size(), end, ordinal);
    understood = error == std::errc{} && rest == end && ordinal <= ordinal_max;
  }
  if (!understood) refuse(fmt::format("{}: there is no \"{}\"; there is: emulated, cuda, cuda:N", name, word));
  return word == "cuda" ? "cuda:0" : std::string{word};
}

Value read_value(Type type, std::string_view name, std::string_view word, Limits limits, std::span<const std::string> names) {
  switch (type) {
    case Type::whole: return read_whole(name, word, limits);
    case Type::size: return read_size(name, word, limits);
    case Type::bandwidth: return read_bandwidth(name, word, limits);
    case Type::duration: return read_duration(name, word, limits);
    case Type::share: return read_share(name, word);
    case Type::yes_no: return read_yes_no(name, word);
    case Type::name: return read_name(name, word, names);
    case Type::text: return std::string{word};
    case Type::path: return std::string{word};
    case Type::paths: return std::vector<std::string>{read_path(name, word)};
    case Type::device: return read_device(name, word);
    case Type::storage: return read_storage(name, word);
    case Type::shared: return read_shared(name, word);
    case Type::digest: return read_digest(name, word);
  }
  refuse(fmt::format("{}: its type is unknown", name));
}

std::string to_word(Type type, const Value& value) {
  switch (type) {
    case Type::size: return size_word(std::get<std::uint64_t>(value));
    case Type::bandwidth: return size_word(std::get<std::uint64_t>(value)) + "/s";
    case Type::duration: return duration_word(std::get<std::uint64_t>(value));
    case Type::whole: return fmt::format("{}", std::get<std::uint64_t>(value));
    case Type::share: return fmt::format("{}", std::get<double>(value));
    case Type::yes_no: return std::get<bool>(value) ? "on" : "off";
    case Type::paths: return fmt::format("{}", fmt::join(std::get<std::vector<std::string>>(value), ","));
    case Type::name:
    case Type::text:
    case Type::path:
    case Type::device:
    case Type::storage:
    case Type::shared:
    case Type::digest: return std::get<std::string>(value);
  }
  return "";
}

std::string to_toml(Type type, const Value& value) {
  if (type == Type::whole || type == Type::share) return to_word(type, value);
  if (type == Type::yes_no) return std::get<bool>(value) ? "true" : "false";
  if (type != Type::paths) return toml_string(to_word(type, value));
  std::string list;
  for (const std::string& path : std::get<std::vector<std::string>>(value)) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", toml_string(path));
  }
  return fmt::format("[{}]", list);
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string_view placeholder(Type type) {
  switch (type) {
    case Type::whole: return "COUNT";
    case Type::size: return "SIZE";
    case Type::bandwidth: return "SIZE/s";
    case Type::duration: return "DURATION";
    case Type::share: return "SHARE";
    case Type::yes_no: return "on|off";
    case Type::name: return "NAME";
    case Type::text: return "WORD";
    case Type::path: return "FILE";
    case Type::paths: return "DIR";
    case Type::device: return "DEVICE";
    case Type::storage: return "WHERE";
    case Type::shared: return "URL";
    case Type::digest: return "DIGITS";
  }
  return "";
}

}  // namespace config
}  // namespace terrace
