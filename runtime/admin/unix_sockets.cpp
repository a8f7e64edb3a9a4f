#include "runtime/admin/address.hpp"

#include "base/descriptor.hpp"
#include "terrace/admin.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace terrace::admin {
namespace {

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
  Descriptor fd;
  const int error = listen_on_socket(path, 0600, fd);  // other users can never connect
  if (error == ENOTSOCK) throw std::runtime_error{fmt::format("admin.listen: {} exists and is not a socket", path.string())};
  if (error == EADDRINUSE) {
    throw std::runtime_error{
        fmt::format("admin.listen: another process listens on {}; give this one another path", path.string())};
  }
  if (error != 0) throw_errno(error, fmt::format("admin.listen: {}", path.string()));
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
  const Descriptor lock = lock_for_sockets(folder);
  std::vector<std::filesystem::path> live;
  std::error_code error;
  for (std::filesystem::directory_iterator each{folder, error}, end; !error && each != end; each.increment(error)) {
    if (!each->is_socket(error) || each->path().native().size() > socket_path_max) continue;
    if (is_listened_on(each->path())) live.push_back(each->path());
    else if (lock.is_open()) ::unlink(each->path().c_str());
  }
  std::ranges::sort(live);
  return live;
}

}  // namespace terrace::admin
