#pragma once

#include "terrace/admin.hpp"

#include <cstddef>
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
/// The address of the options. Also throws if they have no token and need one.
[[nodiscard]] Address checked_address(const AdminOptions& options);
/// The inverse.
[[nodiscard]] std::string to_string(const Address& address);

/// Reads a token: the first line of a file that only its owner can read. Throws std::invalid_argument or std::system_error with
/// one sentence, which does not have the token.
[[nodiscard]] std::string read_token(const std::filesystem::path& file);

/// The room in sockaddr_un, less the end mark.
inline constexpr std::size_t socket_path_max = 107;
/// Throws std::invalid_argument: the path of a socket has too many bytes.
[[noreturn]] void refuse_path(std::size_t bytes);

/// Throws std::system_error.
[[noreturn]] void throw_errno(int error, const std::string& what);

}  // namespace terrace::admin
