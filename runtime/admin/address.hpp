#pragma once

#include "base/descriptor.hpp"
#include "terrace/admin.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::admin {

/// The place at which an endpoint listens.
struct Address {
  std::filesystem::path socket{};  ///< path of a Unix socket; if it is empty and is_unix is set, a name is made in admin_folder()
  bool is_unix = true;
  std::string host{};  ///< of TCP: 127.0.0.1 or ::1
  std::uint16_t port = 0;
};

/// Reads "unix:PATH", "unix:", "tcp:127.0.0.1:9464", "tcp:[::1]:9464". Throws std::invalid_argument with one sentence.
[[nodiscard]] Address parse_address(std::string_view text);
/// The address of the options. Also throws if they have no token and need one.
[[nodiscard]] Address checked_address(const AdminOptions& options);
/// The inverse of parse_address().
[[nodiscard]] std::string to_string(const Address& address);

/// Reads a token: the first line of a file that only its owner can read. Throws std::invalid_argument or std::system_error with
/// one sentence, which does not contain the token.
[[nodiscard]] std::string read_token(const std::filesystem::path& file);

/// Throws std::invalid_argument: the path of a socket has too many bytes.
[[noreturn]] void refuse_path(std::size_t bytes);

/// Throws std::system_error.
[[noreturn]] void throw_errno(int error, const std::string& what);

// Unix sockets by name, and the folder in which `terrace` looks for them (admin_folder()).

/// Makes a listening socket that only its user can connect to. A socket of a dead process is replaced. The caller closes the
/// descriptor. Throws std::system_error, and std::runtime_error if a process listens there or if the name is that of a file.
[[nodiscard]] int listen_on(const std::filesystem::path& path);

/// Makes the folder for sockets without a name, with mode 0700, removes the sockets of dead processes, and returns a free name.
/// Throws std::system_error, and std::runtime_error as live_sockets() does.
[[nodiscard]] std::filesystem::path new_socket_name();

/// The sockets in the folder on which a process listens, in the order of their names. Removes the sockets of dead processes.
/// Throws std::runtime_error if the folder belongs to another user, or if other users may write there: the listeners cannot be
/// trusted then.
[[nodiscard]] std::vector<std::filesystem::path> live_sockets(const std::filesystem::path& folder);

}  // namespace terrace::admin
