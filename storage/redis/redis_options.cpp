#include "storage/redis/redis_options.hpp"

#include "base/whole_file.hpp"
#include "storage/redis/resp_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument{why}; }

template <class Number>
std::optional<Number> number_of(std::string_view text, std::uint64_t max) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || text.empty() || value > max) return std::nullopt;
  return static_cast<Number>(value);
}

/// Removes and returns the text before the first separator; without a separator, the whole text.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view first = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return first;
}

std::string unescaped(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const std::size_t size = text[0] == '%' ? 3 : 1;
    if (size == 1) {
      plain += text[0];
    } else {
      unsigned value = 0;
      const std::string_view digits = text.substr(1, 2);
      const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (digits.size() != 2 || error != std::errc{} || stop != digits.data() + 2 || value == 0) {
        refuse("after each % there must be two hexadecimal digits, not 00");
      }
      plain += static_cast<char>(value);
    }
    text.remove_prefix(size);
  }
  return plain;
}

bool yes_or_no(std::string_view name, std::string_view value) {
  if (value != "0" && value != "1") refuse(fmt::format("{} is 0 or 1, not \"{}\"", name, value));
  return value == "1";
}

void read_parameters(RedisOptions& options, std::string_view text) {
  constexpr std::array<std::string_view, 4> known{"cluster", "verify", "cert_file", "key_file"};
  std::vector<std::string_view> given;
  while (!text.empty()) {
    std::string_view escaped = take_until(text, '&');
    const std::string_view name = take_until(escaped, '=');
    if (std::ranges::find(known, name) == known.end()) {
      refuse(fmt::format("there is no parameter \"{}\"; there is: {}", readable(name), fmt::join(known, ", ")));
    }
    if (std::ranges::find(given, name) != given.end()) refuse(fmt::format("the parameter {} is given twice", name));
    if (!options.tls && name != "cluster")
      refuse(fmt::format("the parameter {} is for rediss://, because redis:// has no TLS", name));
    given.push_back(name);
    const std::string value = unescaped(escaped);
    if (value.empty()) refuse(fmt::format("the parameter {} has no value", name));
    if (name == "cluster") options.cluster = yes_or_no(name, value);
    else if (name == "verify") options.verify = yes_or_no(name, value);
    else if (name == "cert_file") options.cert_file = value;
    else options.key_file = value;
  }
}

/// The % before the zone of an IPv6 address is %25 in a URL (RFC 6874). Others may write it as it is.
std::string with_zone(std::string_view host) {
  std::string plain{host};
  if (const std::size_t at = plain.find("%25"); plain.starts_with('[') && at != std::string::npos) plain.erase(at + 1, 2);
  return plain;
}

void read_hosts(RedisOptions& options, std::string_view text) {
  if (text.empty()) refuse("it names no host");
  if (text.ends_with(',')) refuse("after each comma there must be a host");
  while (!text.empty()) {
    const std::string_view host = take_until(text, ',');
    if (!parse_address(with_zone(host), options.hosts.emplace_back())) {
      // The text after the colon may be a password without its @.
      refuse(fmt::format("\"{}\" is not the beginning of HOST or HOST:PORT, with a port from 1 to 65535",
                         readable(host.substr(0, host.find(':')))));
    }
  }
}

}  // namespace

std::string to_string(const RedisAddress& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", address.host, brackets ? "]" : "", address.port);
}

bool is_host(std::string_view text) {
  constexpr std::size_t bytes_max = 255;
  constexpr std::string_view others = "-._:%";
  const auto fits = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || others.find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= bytes_max && std::ranges::all_of(text, fits);
}

bool parse_address(std::string_view text, RedisAddress& address) {
  std::string_view host = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return false;
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (!is_host(host)) return false;
  address.host = host;
  if (port.empty()) return true;
  const auto number = port.starts_with(':') ? number_of<std::uint16_t>(port.substr(1), 65'535) : std::nullopt;
  if (!number || *number == 0) return false;
  address.port = *number;
  return true;
}

RedisOptions parse_redis_url(std::string_view url) {
  RedisOptions options;
  if (url.starts_with("rediss://")) options.tls = true;
  else if (!url.starts_with("redis://")) refuse("it begins with redis:// or rediss://");
  url.remove_prefix(options.tls ? 9 : 8);
  // The rest of the URL could be a part of a password, so it is not shown.
  if (const std::size_t end = url.find_first_of("/?");
      end != std::string_view::npos && url.find('@', end) != std::string_view::npos) {
    refuse("in USER and PASSWORD a / is %2F and a ? is %3F, and in parameters an @ is %40");
  }
  std::string_view place = take_until(url, '?');
  std::string_view servers = take_until(place, '/');
  // A password may contain an @.
  if (const std::size_t at = servers.rfind('@'); at != std::string_view::npos) {
    std::string_view user = servers.substr(0, at);
    options.user = unescaped(take_until(user, ':'));
    options.password = unescaped(user);
    servers.remove_prefix(at + 1);
  }
  read_hosts(options, servers);
  if (!place.empty()) {
    const auto database = number_of<std::uint32_t>(place, 1'000'000);
    if (!database) refuse("what follows the / after the host is not the number of a database, such as /1");
    options.database = *database;
  }
  read_parameters(options, url);
  if (options.hosts.size() > 1 && !options.cluster) refuse("several hosts are nodes of a cluster: add ?cluster=1");
  if (options.cluster && options.database != 0) refuse("a cluster has only the database 0");
  if (!options.key_file.empty() && options.cert_file.empty()) refuse("key_file is the key of cert_file, which is missing");
  return options;
}

std::string shown(const RedisOptions& options) {
  std::string text = options.tls ? "rediss://" : "redis://";
  if (!options.user.empty()) text += options.user + "@";
  for (const RedisAddress& host : options.hosts) {
    if (&host != &options.hosts.front()) text += ",";
    text += to_string(host);
  }
  if (options.database != 0) text += fmt::format("/{}", options.database);
  if (options.cluster) text += "?cluster=1";
  return text;
}

std::string read_secret(const std::string& path, std::string_view what) {
  // The content of a pipe could not be read a second time.
  if (is_no_ordinary_file(path)) {
    throw std::invalid_argument{fmt::format("{} with the {} of the shared store is no ordinary file", path, what)};
  }
  constexpr std::size_t enough = std::size_t{1} << 20U;
  try {
    return read_whole(path, enough);
  } catch (const std::runtime_error& reason) {
    throw std::invalid_argument{
        fmt::format("the file {} with the {} of the shared store cannot be read: {}", path, what, reason.what())};
  }
}

std::string current_password(const RedisOptions& options) {
  if (!options.password.empty() || options.password_file.empty()) return options.password;
  const std::string text = read_secret(options.password_file, "password");
  std::string password = text.substr(0, text.find_first_of("\r\n"));
  if (password.empty()) {
    throw std::invalid_argument{fmt::format("the file {} with the password of the shared store is empty", options.password_file)};
  }
  return password;
}

std::string without(std::string_view words, std::string_view secret) {
  const std::string password = readable(secret);  // in the same form as the text
  if (password.empty()) return std::string{words};
  // A server may truncate the data that it repeats.
  const std::size_t least = std::min<std::size_t>(4, password.size());
  std::string text;
  while (!words.empty()) {
    const auto same = std::ranges::mismatch(words, password).in1 - words.begin();
    const auto bytes = static_cast<std::size_t>(same);
    if (bytes >= least) text += "***";
    else text += words.front();
    words.remove_prefix(bytes >= least ? bytes : 1);
  }
  return text;
}

}  // namespace terrace
