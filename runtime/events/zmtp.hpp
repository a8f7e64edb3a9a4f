#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The bytes of ZeroMQ's sockets: ZMTP 3.0 with the mechanism NULL. A peer sends a greeting, then the command READY, then
/// messages of one or more frames.
namespace terrace::events::zmtp {

inline constexpr std::size_t greeting_bytes = 64;
/// Before each frame are its flags and its size: one byte, or eight if the flags say so.
inline constexpr unsigned char has_more = 1;
inline constexpr unsigned char is_long = 2;
inline constexpr unsigned char is_command = 4;

struct Frame {
  bool more = false;     ///< the message has further frames
  bool command = false;  ///< it is of the connection, and part of no message
  std::string body{};
};

[[nodiscard]] std::string greeting();
/// Whether 64 bytes are the greeting of a peer that this one can talk to.
[[nodiscard]] bool is_greeting(std::string_view bytes);

/// Appends the flags and the size of a frame, whose body follows.
void append_header(std::string& out, unsigned char flags, std::size_t size);
void append_frame(std::string& out, unsigned char flags, std::string_view body);
[[nodiscard]] std::array<char, 8> big_endian(std::uint64_t number);
[[nodiscard]] std::uint64_t from_big_endian(std::string_view bytes);

/// The command READY of a socket of this type ("PUB"), as a frame.
[[nodiscard]] std::string ready(std::string_view socket_type);
/// The type of the peer's socket, if the frame is its READY; otherwise nothing.
[[nodiscard]] std::optional<std::string> socket_type_of(const Frame& frame);

struct Subscription {
  bool ends = false;
  std::string_view topic{};
};
/// What a subscriber asks for, as a message (3.0) or a command (3.1). Refers to the frame.
[[nodiscard]] std::optional<Subscription> subscription_of(const Frame& frame);
/// The answer to the command PING, as a frame; nothing if the frame is another one.
[[nodiscard]] std::optional<std::string> pong_for(const Frame& frame);

}  // namespace terrace::events::zmtp
