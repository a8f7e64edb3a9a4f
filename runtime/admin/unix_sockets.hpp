#pragma once

#include <filesystem>
#include <vector>

/// Unix sockets by name, and the folder in which `terrace` looks for them (admin_folder()).
namespace terrace::admin {

/// Makes a listening socket that only its user can connect to. A socket that a dead process has left is replaced. The caller
/// closes the descriptor. Throws std::system_error, and std::runtime_error if a process listens there or the name is a file's.
[[nodiscard]] int listen_on(const std::filesystem::path& path);

/// Makes the folder for sockets without a name, with mode 0700, removes those of dead processes, and returns a free name. Throws
/// std::system_error, and std::runtime_error as live_sockets() does.
[[nodiscard]] std::filesystem::path new_socket_name();

/// The sockets in the folder that somebody listens on, in the order of their names. Removes those of dead processes. Throws
/// std::runtime_error if the folder belongs to another user or others may write there: who listens there may be anybody.
[[nodiscard]] std::vector<std::filesystem::path> live_sockets(const std::filesystem::path& folder);

}  // namespace terrace::admin
