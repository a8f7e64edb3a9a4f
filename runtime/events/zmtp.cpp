#include "runtime/events/zmtp.hpp"

#include <algorithm>

namespace terrace::events::zmtp {
namespace {

constexpr std::string_view mechanism{"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20};
constexpr std::size_t version_at = 10;
constexpr std::size_t mechanism_at = 12;

/// What follows the name of a command; nothing if it is another command.
std::optional<std::string_view> body_of(const Frame& frame, std::string_view name) {
  const std::string_view body = frame.body;
  if (!frame.command || body.empty() || static_cast<unsigned char>(body[0]) != name.size()) return std::nullopt;
  if (body.substr(1, name.size()) != name) return std::nullopt;
  return body.substr(1 + name.size());
}

void append_number(std::string& out, std::uint64_t number, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift));
}

}  // namespace

std::string greeting() {
  std::string bytes(greeting_bytes, '\0');
  bytes[0] = '\xff';
  bytes[version_at - 1] = '\x7f';
  bytes[version_at] = 3;
  bytes.replace(mechanism_at, mechanism.size(), mechanism);
  return bytes;
}

bool is_greeting(std::string_view bytes) {
  return bytes[0] == '\xff' && bytes[version_at - 1] == '\x7f' && bytes[version_at] >= 3 &&
         bytes.substr(mechanism_at, mechanism.size()) == mechanism;
}

std::array<char, 8> big_endian(std::uint64_t number) {
  std::array<char, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(number >> (56 - 8 * i));
  return bytes;
}

std::uint64_t from_big_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes) number = number << 8U | static_cast<unsigned char>(byte);
  return number;
}

void append_header(std::string& out, unsigned char flags, std::size_t size) {
  const bool is_short = size <= 255;
  out.push_back(static_cast<char>(is_short ? flags : flags | is_long));
  append_number(out, size, is_short ? 1 : 8);
}

void append_frame(std::string& out, unsigned char flags, std::string_view body) {
  append_header(out, flags, body.size());
  out += body;
}

std::string ready(std::string_view socket_type) {
  constexpr std::string_view property = "Socket-Type";
  std::string body = "\x05READY";
  body.push_back(static_cast<char>(property.size()));
  body += property;
  append_number(body, socket_type.size(), 4);
  body += socket_type;
  std::string frame;
  append_frame(frame, is_command, body);
  return frame;
}

std::optional<std::string> socket_type_of(const Frame& frame) {
  const auto properties = body_of(frame, "READY");
  if (!properties) return std::nullopt;
  std::string_view rest = *properties;
  while (!rest.empty()) {
    const std::size_t name_size = static_cast<unsigned char>(rest[0]);
    if (rest.size() < 1 + name_size + 4) return std::nullopt;
    const std::string_view name = rest.substr(1, name_size);
    const std::uint64_t size = from_big_endian(rest.substr(1 + name_size, 4));
    rest.remove_prefix(1 + name_size + 4);
    if (rest.size() < size) return std::nullopt;
    const auto is_equal = [](char a, char b) { return (a | 0x20) == (b | 0x20); };  // names of properties have no case
    if (std::ranges::equal(name, std::string_view{"socket-type"}, is_equal)) return std::string{rest.substr(0, size)};
    rest.remove_prefix(size);
  }
  return std::nullopt;
}

std::optional<Subscription> subscription_of(const Frame& frame) {
  if (const auto topic = body_of(frame, "SUBSCRIBE")) return Subscription{false, *topic};
  if (const auto topic = body_of(frame, "CANCEL")) return Subscription{true, *topic};
  if (frame.command || frame.body.empty() || (frame.body[0] != 0 && frame.body[0] != 1)) return std::nullopt;
  return Subscription{frame.body[0] == 0, std::string_view{frame.body}.substr(1)};
}

std::optional<std::string> pong_for(const Frame& frame) {
  const auto ping = body_of(frame, "PING");
  constexpr std::size_t ttl_bytes = 2;
  constexpr std::size_t context_max = 16;
  if (!ping || ping->size() < ttl_bytes) return std::nullopt;
  std::string out;
  append_frame(out, is_command, "\x04PONG" + std::string{ping->substr(ttl_bytes, context_max)});
  return out;
}

}  // namespace terrace::events::zmtp
