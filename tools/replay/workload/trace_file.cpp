#include "tools/replay/workload/trace_file.hpp"

#include "base/whole_file.hpp"
#include "tools/interrupted.hpp"
#include "tools/usage_error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

namespace terrace::tools {
namespace {

/// Blocks until there is something to read, or the source has ended.
void wait_for(int source, const TraceLimits& limits) {
  pollfd entry{source, POLLIN, 0};
  while (::poll(&entry, 1, 100) <= 0 || entry.revents == 0) {
    if (limits.go_on && !limits.go_on()) throw Interrupted{};
  }
}

/// Counts the bytes after the last line end of a text. For compressed data it returns 0, because lines are unknown.
class OpenLine {
 public:
  [[nodiscard]] std::uint64_t after(std::string_view bytes) {
    constexpr std::string_view gzip_magic = "\x1f\x8b";
    if (first_) compressed_ = bytes.starts_with(gzip_magic.substr(0, bytes.size()));
    first_ = false;
    const std::size_t end = bytes.rfind('\n');
    length_ = end == std::string_view::npos ? length_ + bytes.size() : bytes.size() - end - 1;
    return compressed_ ? 0 : length_;
  }

 private:
  bool first_ = true;
  bool compressed_ = false;
  std::uint64_t length_ = 0;
};

}  // namespace

void TraceFile::fail(const std::string& what) const { throw UsageError{fmt::format("{}: {}", name_, what)}; }

TraceFile::TraceFile(const std::filesystem::path& name, const TraceLimits& limits)
    : name_{name == "-" ? "standard input" : name.string()} {
  // Without O_NONBLOCK, opening a FIFO would wait for its writer and ignore signals.
  const int opened =
      name == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : ::open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (opened < 0) fail(fmt::format("cannot open: {}", std::generic_category().message(errno)));
  descriptor_ = std::make_shared<Descriptor>(opened);
  struct stat status {};
  if (::fstat(opened, &status) != 0) fail(fmt::format("cannot open: {}", std::generic_category().message(errno)));
  if (S_ISDIR(status.st_mode)) fail("is a directory");
  if (S_ISBLK(status.st_mode)) fail("is a disk, not a file");
  if (!S_ISREG(status.st_mode)) descriptor_ = copy_of(opened, limits);
}

std::shared_ptr<Descriptor> TraceFile::copy_of(int source, const TraceLimits& limits) const {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  std::string file = (folder / "terrace-trace-XXXXXX").string();
  const int made = ::mkostemp(file.data(), O_CLOEXEC);
  if (made < 0) fail(fmt::format("cannot make a copy in {}: {}", folder.string(), std::generic_category().message(errno)));
  ::unlink(file.c_str());
  auto copy = std::make_shared<Descriptor>(made);
  std::uint64_t copied = 0;
  OpenLine line;
  std::vector<char> buffer(1 << 16);
  for (;;) {
    wait_for(source, limits);
    const ssize_t got = ::read(source, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) fail(fmt::format("cannot read on: {}", std::generic_category().message(errno)));
    if (got == 0) return copy;
    copied += static_cast<std::uint64_t>(got);
    // The line is checked before the copy fills the disk.
    if (line.after({buffer.data(), static_cast<std::size_t>(got)}) > count(limits.line_max)) {
      fail(fmt::format("a line is longer than {}", to_string(limits.line_max)));
    }
    if (copied > count(limits.content_max)) {
      fail(fmt::format("is longer than {}: give it as a file", to_string(limits.content_max)));
    }
    if (!write_whole(made, {buffer.data(), static_cast<std::size_t>(got)})) {
      fail(fmt::format("cannot make a copy in {}: {}", folder.string(), std::generic_category().message(errno)));
    }
  }
}

}  // namespace terrace::tools
