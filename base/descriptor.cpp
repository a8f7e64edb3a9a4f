#include "base/descriptor.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace terrace {
namespace {

/// The address of the path, which must fit.
sockaddr_un name_of(const std::filesystem::path& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.native().size());
  return name;
}

}  // namespace

bool is_listened_on(const std::filesystem::path& path) {
  const Descriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const sockaddr_un name = name_of(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) return true;
  return errno != ECONNREFUSED && errno != ENOENT;
}

Descriptor lock_for_sockets(const std::filesystem::path& folder) {
  Descriptor lock{::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  for (int tries = 0; lock.is_open() && tries < 100; ++tries) {
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  return {};
}

int listen_on_socket(const std::filesystem::path& path, mode_t mode, Descriptor& out) {
  if (path.native().size() > socket_path_max) return ENAMETOOLONG;
  const Descriptor lock = lock_for_sockets(path.parent_path());
  Descriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  // On Linux, the mode of a socket that is not bound yet becomes the mode of its file.
  if (!fd.is_open() || ::fchmod(fd.get(), mode) != 0) return errno;
  const sockaddr_un name = name_of(path);
  const auto bind = [&] { return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0; };
  if (!bind()) {
    struct stat info {};
    if (errno != EADDRINUSE) return errno;
    if (::lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) return ENOTSOCK;
    if (is_listened_on(path)) return EADDRINUSE;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno;
    if (!bind()) return errno;
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) return errno;
  std::swap(out, fd);
  return 0;
}

}  // namespace terrace
