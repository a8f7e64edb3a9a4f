#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <utility>

namespace terrace {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_{fd} {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_{other.release()} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  /// Releases the ownership: the caller must close the descriptor.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// ---- Unix sockets by name

/// The longest path that sockaddr_un can hold, without the final null.
inline constexpr std::size_t socket_path_max = 107;

/// Returns true if a process listens on the socket. Does not wait, even if the backlog is full. The path must fit.
[[nodiscard]] bool is_listened_on(const std::filesystem::path& path);

/// A lock that is held while a socket is made, and while the sockets of dead processes are removed: between bind() and listen(),
/// a socket looks like that of a dead process. The descriptor is not open if the folder cannot be opened, or if another process
/// holds the lock for too long.
[[nodiscard]] Descriptor lock_for_sockets(const std::filesystem::path& folder);

/// Makes a listening socket, whose file has the mode as far as the umask lets it. A socket of a dead process is replaced. Returns
/// an errno: EADDRINUSE (a process listens there), ENOTSOCK (the name is that of a file, which stays), ENAMETOOLONG, and others
/// of the system; 0 on success.
[[nodiscard]] int listen_on_socket(const std::filesystem::path& path, mode_t mode, Descriptor& out);

}  // namespace terrace
