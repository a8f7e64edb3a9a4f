#include "tools/replay/workload/trace_reader.hpp"

#include "base/whole_file.hpp"
#include "tools/interrupted.hpp"
#include "tools/replay/workload/workloads.hpp"
#include "tools/usage_error.hpp"

#include <boost/json.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

namespace json = boost::json;

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

constexpr double timestamp_max_ms = 1e15;  ///< later than any real date; it also excludes infinity (1e999)

/// Describes what is wrong with a line. The caller adds the line's number.
struct BadLine {
  std::string what;
};

const json::value& member(const json::object& line, const char* name) {
  const json::value* const found = line.if_contains(name);
  if (found == nullptr) throw BadLine{fmt::format("\"{}\" is missing", name)};
  return *found;
}

std::uint64_t whole_number(const json::value& value, std::string_view what, std::uint64_t max) {
  boost::system::error_code error;
  const auto number = value.to_number<std::uint64_t>(error);
  if (error || value.is_double() || number > max) {
    constexpr std::size_t shown_max = 40;
    throw BadLine{fmt::format("{} is not a whole number from 0 to {}: {:.{}}", what, max, json::serialize(value), shown_max)};
  }
  return number;
}

std::uint32_t length(const json::object& line, const char* name) {
  return static_cast<std::uint32_t>(
      whole_number(member(line, name), fmt::format("\"{}\"", name), std::numeric_limits<std::uint32_t>::max()));
}

double timestamp(const json::object& line) {
  const json::value& value = member(line, "timestamp");
  boost::system::error_code error;
  const double number = value.to_number<double>(error);
  if (error || !(number >= 0 && number <= timestamp_max_ms)) {
    throw BadLine{fmt::format("\"timestamp\" is not a number of milliseconds from 0 to {:.0e}", timestamp_max_ms)};
  }
  return number;
}

TraceRequest parse_line(std::string_view text, std::uint32_t block_tokens) {
  boost::system::error_code error;
  const json::value value = json::parse(json::string_view{text.data(), text.size()}, error);
  if (error) throw BadLine{fmt::format("not JSON: {}", error.message())};
  const json::object* const line = value.if_object();
  if (line == nullptr) throw BadLine{"not a JSON object"};

  TraceRequest request;
  request.timestamp_ms = timestamp(*line);
  request.input_tokens = length(*line, "input_length");
  request.output_tokens = length(*line, "output_length");
  const json::array* const ids = member(*line, "hash_ids").if_array();
  if (ids == nullptr) throw BadLine{"\"hash_ids\" is not an array"};
  request.hash_ids.reserve(ids->size());
  for (const json::value& id : *ids) {
    request.hash_ids.push_back(whole_number(id, "a hash id", std::numeric_limits<std::uint64_t>::max()));
  }

  const std::uint64_t full = request.input_tokens / block_tokens;
  const std::uint64_t all = full + (request.input_tokens % block_tokens != 0 ? 1 : 0);
  if (request.hash_ids.size() < full || request.hash_ids.size() > all) {
    throw BadLine{fmt::format("{} hash ids for {} tokens, which are {} blocks of {} tokens (is --block-tokens right?)",
                              request.hash_ids.size(), request.input_tokens, all, block_tokens)};
  }
  return request;
}

/// Formats that are not read, by how a file begins.
struct Format {
  std::string_view begin;
  const char* name;
};
constexpr std::array formats{Format{"\x28\xb5\x2f\xfd", "zstd"},
                             Format{"\xfd"
                                    "7zXZ",
                                    "xz"},
                             Format{"BZh", "bzip2"}, Format{"PK\x03\x04", "zip"}, Format{"PAR1", "Parquet"}};

std::string not_this_format(std::string_view name) {
  return fmt::format("this is {}: a trace is lines of JSON, as they are or compressed by gzip", name);
}

bool is_csv(std::string_view line) {
  return line.find(',') != std::string_view::npos && line.find_first_of("{[") == std::string_view::npos;
}

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

/// The lines of a file that may be compressed. zlib's gzread returns uncompressed text as it is.
class TraceReader::Lines {
 public:
  Lines(const TraceFile& file, TraceLimits limits) : file_{file}, limits_{std::move(limits)} {
    // Reading starts at the beginning, wherever an earlier reader has left the position.
    const int descriptor = ::lseek(file.descriptor(), 0, SEEK_SET) == 0 ? ::dup(file.descriptor()) : -1;
    stream_ = descriptor < 0 ? nullptr : ::gzdopen(descriptor, "rb");
    if (stream_ == nullptr) {
      throw UsageError{fmt::format("{}: cannot open: {}", file_.name(), std::generic_category().message(errno))};
    }
  }
  ~Lines() { ::gzclose(stream_); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  /// Returns false at the end.
  bool next(std::string& line) {
    line.clear();
    for (;;) {
      const auto* const begin = buffer_.data() + at_;
      const auto* const end = buffer_.data() + size_;
      const auto* const newline = std::find(begin, end, '\n');
      line.append(begin, newline);
      if (line.size() > count(limits_.line_max)) fail(fmt::format("the line is longer than {}", to_string(limits_.line_max)));
      if (newline != end) {
        at_ = static_cast<std::size_t>(newline - buffer_.data()) + 1;
        break;
      }
      if (!fill()) {
        if (line.empty()) return false;
        break;
      }
    }
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (number_++ == 0 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
    return true;
  }
  /// The number of the line that was read last, counted from 1.
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  /// Throws an error for the line that is being read.
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError{fmt::format("{}:{}: {}", file_.name(), number_ + 1, what)};
  }

  bool fill() {
    if (limits_.go_on && !limits_.go_on()) throw Interrupted{};
    const int got = ::gzread(stream_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int error = Z_OK;
    const char* const message = ::gzerror(stream_, &error);
    // A truncated compressed file can be read up to its end; only this error shows that a part is missing.
    if (got < 0 || error == Z_BUF_ERROR) {
      const std::string system_message = std::generic_category().message(errno);
      const char* const what = error == Z_ERRNO ? system_message.c_str() : error == Z_BUF_ERROR ? "cut short" : message;
      fail(fmt::format("cannot read on: {}", what));
    }
    at_ = 0;
    size_ = static_cast<std::size_t>(got);
    for (const Format& format : formats) {
      if (read_ == 0 && std::string_view{buffer_.data(), size_}.starts_with(format.begin)) fail(not_this_format(format.name));
    }
    read_ += size_;
    if (::gzdirect(stream_) == 0 && read_ > count(limits_.content_max)) {
      fail(fmt::format("decompressed, the trace is longer than {}", to_string(limits_.content_max)));
    }
    return got > 0;
  }

  const TraceFile file_;
  const TraceLimits limits_;
  gzFile stream_ = nullptr;
  std::array<char, 1 << 16> buffer_;
  std::size_t at_ = 0;
  std::size_t size_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t number_ = 0;
};

TraceReader::TraceReader(const TraceFile& file, std::uint32_t block_tokens, TraceLimits limits)
    : name_{file.name()}, block_tokens_{block_tokens}, lines_{std::make_unique<Lines>(file, std::move(limits))} {}

TraceReader::~TraceReader() = default;

std::optional<TraceRequest> TraceReader::next() {
  std::string line;
  while (lines_->next(line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      return parse_line(line, block_tokens_);
    } catch (const BadLine& bad) {
      const bool csv = lines_->number() == 1 && is_csv(line);
      throw UsageError{fmt::format("{}:{}: {}", name_, lines_->number(), csv ? not_this_format("CSV") : bad.what)};
    }
  }
  return std::nullopt;
}

std::uint32_t usual_block_tokens(const std::filesystem::path& trace) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(trace, unknown)) return default_trace_block_tokens;
  TraceReader::Lines lines{TraceFile{trace}, {}};
  std::string first;
  if (!lines.next(first)) return default_trace_block_tokens;
  boost::system::error_code error;
  const json::value line = json::parse(first, error);
  const json::value* const named = error || !line.is_object() ? nullptr : line.get_object().if_contains("block_tokens");
  if (named == nullptr) return default_trace_block_tokens;
  const auto tokens = named->to_number<std::uint32_t>(error);
  return error || tokens == 0 ? default_trace_block_tokens : tokens;
}

TraceSummary scan_trace(const TraceFile& file, std::uint32_t block_tokens, std::uint64_t requests_max,
                        const TraceLimits& limits) {
  TraceReader reader{file, block_tokens, limits};
  TraceSummary summary;
  while (summary.requests < requests_max) {
    const std::optional<TraceRequest> request = reader.next();
    if (!request) break;
    ++summary.requests;
    summary.full_blocks_max = std::max(summary.full_blocks_max, request->input_tokens / block_tokens);
  }
  if (summary.requests == 0) throw UsageError{fmt::format("{}: no requests", file.name())};
  return summary;
}

}  // namespace terrace::tools
