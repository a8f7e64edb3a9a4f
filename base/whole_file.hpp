#pragma once

#include "base/descriptor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace terrace {

/// Returns true if the path exists and is a pipe, a device, a socket or a directory. Call it before a library opens a file that a
/// user has named, because opening a pipe may wait forever, and before a file is replaced, because root can replace a device.
[[nodiscard]] inline bool is_no_ordinary_file(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

/// Writes the whole text to a descriptor, also if signals interrupt it. Returns false and sets errno if that fails.
[[nodiscard]] inline bool write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Reads a small file, such as a configuration or a password, to its end, but at most `bytes_max` bytes of it. It may be a pipe
/// (`--config <(command)`). For a pipe, it does not wait until a writer opens it, and it waits only some seconds for a silent
/// writer. Throws std::runtime_error with the reason: "No such file or directory".
[[nodiscard]] inline std::string read_whole(const std::filesystem::path& file, std::size_t bytes_max) {
  constexpr int silence_max_ms = 5000;
  const auto fail = [](const std::string& why) -> void { throw std::runtime_error{why}; };
  const auto fail_by = [&](int error) { fail(std::generic_category().message(error)); };
  const Descriptor fd{::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (!fd.is_open()) fail_by(errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) fail_by(errno);
  std::string text;
  while (text.size() < bytes_max) {
    char part[4096];
    const ssize_t got = ::read(fd.get(), part, std::min(sizeof part, bytes_max - text.size()));
    if (got > 0) {
      text.append(part, static_cast<std::size_t>(got));
    } else if (got == 0) {
      break;
    } else if (errno == EAGAIN) {
      pollfd until_written{fd.get(), POLLIN, 0};
      if (::poll(&until_written, 1, silence_max_ms) == 0) fail("nobody writes to this pipe");
    } else if (errno != EINTR) {
      fail_by(errno);
    }
  }
  if (text.empty() && S_ISFIFO(info.st_mode)) fail("nobody writes to this pipe");
  return text;
}

}  // namespace terrace
