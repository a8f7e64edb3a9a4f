#include "runtime/admin/address.hpp"

#include "base/descriptor.hpp"
#include "terrace/admin.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace terrace::admin {
namespace {

/// The address of the path, which must fit.
sockaddr_un name_of(const std::filesystem::path& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), path.native().size());
  return name;
}

/// Returns true if a process listens on the socket. Does not wait, even if the backlog is full.
bool answers(const std::filesystem::path& path) {
  const Descriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const sockaddr_un name = name_of(path);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) return true;
  return errno != ECONNREFUSED && errno != ENOENT;
}

/// A lock that is held while a socket is made, and while the sockets of dead processes are removed: between bind() and listen(),
/// a socket looks like that of a dead process. The descriptor is not open if the folder cannot be opened, or if another process
/// holds the lock for too long.
Descriptor lock_of(const std::filesystem::path& folder) {
  Descriptor lock{::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  for (int tries = 0; lock.is_open() && tries < 100; ++tries) {
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  return {};
}

void check_folder(const std::filesystem::path& folder, const struct stat& info) {
  const std::string what = !S_ISDIR(info.st_mode)       ? "is not a folder"
                           : info.st_uid != ::geteuid() ? fmt::format("belongs to user {}", info.st_uid)
                           : (info.st_mode & 022U) != 0 ? "is one in which other users can write"
                                                        : "";
  if (what.empty()) return;
  throw std::runtime_error{fmt::format(
      "{}, the folder for sockets of admin endpoints, {}: nothing in it is trusted; name a socket in another folder (unix:PATH)",
      folder.string(), what)};
}

/// The name of the program. A program may have overwritten it with any text, to change the output of `ps`.
std::string program_name() {
  std::string name{program_invocation_short_name};
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  for (char& c : name) {
    if (!fits(c) && c != '.' && c != '_') c = '-';
  }
  name = name.substr(0, 32);
  return std::ranges::any_of(name, fits) ? name : "process";
}

}  // namespace

int listen_on(const std::filesystem::path& path) {
  if (path.native().size() > socket_path_max) refuse_path(path.native().size());
  const Descriptor lock = lock_of(path.parent_path());
  Descriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (fd.get() < 0) throw_errno(errno, "admin.listen: no socket");
  // On Linux, the mode of a socket that is not bound yet becomes the mode of its file. So other users can never connect.
  if (::fchmod(fd.get(), 0600) != 0) throw_errno(errno, "admin.listen: the mode of the socket");
  const sockaddr_un name = name_of(path);
  const auto bind = [&] { return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0; };
  if (!bind()) {
    struct stat info {};
    if (errno != EADDRINUSE) throw_errno(errno, fmt::format("admin.listen: {}", path.string()));
    if (::lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
      throw std::runtime_error{fmt::format("admin.listen: {} exists and is not a socket", path.string())};
    }
    if (answers(path)) {
      throw std::runtime_error{
          fmt::format("admin.listen: another process listens on {}; give this one another path", path.string())};
    }
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_errno(errno, fmt::format("admin.listen: {}", path.string()));
    if (!bind()) throw_errno(errno, fmt::format("admin.listen: {}", path.string()));
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) throw_errno(errno, fmt::format("admin.listen: {}", path.string()));
  return fd.release();
}

std::filesystem::path new_socket_name() {
  static std::atomic<unsigned> last{0};
  const std::filesystem::path folder = admin_folder();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw_errno(errno, fmt::format("admin.listen: cannot make {}", folder.string()));
  (void)live_sockets(folder);
  const unsigned number = ++last;
  const std::string suffix = number == 1 ? "" : fmt::format("-{}", number);
  return folder / fmt::format("{}-{}{}.sock", program_name(), ::getpid(), suffix);
}

std::vector<std::filesystem::path> live_sockets(const std::filesystem::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return {};
  check_folder(folder, info);
  const Descriptor lock = lock_of(folder);
  std::vector<std::filesystem::path> live;
  std::error_code error;
  for (std::filesystem::directory_iterator each{folder, error}, end; !error && each != end; each.increment(error)) {
    if (!each->is_socket(error) || each->path().native().size() > socket_path_max) continue;
    if (answers(each->path())) live.push_back(each->path());
    else if (lock.is_open()) ::unlink(each->path().c_str());
  }
  std::ranges::sort(live);
  return live;
}

}  // namespace terrace::admin
