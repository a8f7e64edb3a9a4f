#include "runtime/system/trace_file.hpp"

#include "base/whole_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <system_error>

namespace terrace {
namespace {

constexpr std::size_t text_max = std::size_t{1} << 20U;

/// Opens a regular file, or a character device such as /dev/null. A slow reader of a pipe would block the cache, and a write to a
/// disk would destroy its contents.
int made(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  if (std::filesystem::exists(status) && !is_regular_file(status) && !is_character_file(status)) {
    throw std::invalid_argument{"trace-out: " + file.string() + " is no ordinary file"};
  }
  return ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0644);
}

}  // namespace

TraceFile::TraceFile(const std::filesystem::path& file, TimePoint origin, Log& log)
    : name_{file}, log_{log}, json_{origin}, file_{made(file)}, text_{TraceJson::begin()} {
  if (!file_.is_open()) throw std::system_error{errno, std::generic_category(), "trace-out: " + file.string()};
  write();
}

TraceFile::~TraceFile() { (void)end(); }

Result<void> TraceFile::end() {
  if (file_.is_open()) {
    text_ += TraceJson::end();
    write();
    // Some file systems report errors only here.
    if (file_.is_open() && ::close(file_.release()) != 0) fail(errno);
  }
  return error_ ? Result<void>{error_} : Result<void>{};
}

void TraceFile::on_span(const TraceSpan& span) {
  if (!file_.is_open()) return;
  json_.append(text_, span);
  if (text_.size() >= text_max) write();
}

void TraceFile::write() {
  if (file_.is_open() && !write_whole(file_.get(), text_)) return fail(errno);
  text_.clear();
}

void TraceFile::fail(int error) {
  error_ = ErrorCode{error, boost::system::generic_category()};
  log_.write(LogLevel::error, "trace", [&] { return "the trace " + name_.string() + " ends early: " + error_.message(); });
  file_ = Descriptor{};
  text_.clear();
}

}  // namespace terrace
