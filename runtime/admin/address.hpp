#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace terrace::admin {

/// The place at which an endpoint listens.
struct Address {
  std::filesystem::path socket{};  ///< of a Unix socket; empty with is_unix: a name is made in admin_folder()
  bool is_unix = true;
  std::string host{};  ///< of TCP: 127.0.0.1 or ::1
  std::uint16_t port = 0;
};

/// Reads "unix:PATH", "unix:", "tcp:127.0.0.1:9464", "tcp:[::1]:9464". Throws std::invalid_argument with one sentence.
[[nodiscard]] Address parse_address(std::string_view text);
/// The inverse.
[[nodiscard]] std::string to_string(const Address& address);

/// Reads a token: the first line of a file that only its owner can read. Throws std::invalid_argument or std::system_error with
/// one sentence, which does not have the token.
[[nodiscard]] std::string read_token(const std::filesystem::path& file);

/// Throws std::system_error.
[[noreturn]] void throw_errno(int error, const std::string& what);

/// Makes the folder for sockets without a name, with mode 0700, and returns a free name in it. Throws std::system_error, and
/// std::runtime_error if the folder belongs to another user or others may write there.
[[nodiscard]] std::filesystem::path new_socket_name();

}  // namespace terrace::admin
