#pragma once

#include "base/descriptor.hpp"
#include "terrace/types.hpp"
#include "tools/replay/workload/workloads.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace terrace::tools {

/// Limits, so that no input can use all memory, disk space or time; and a way to stop reading.
struct TraceLimits {
  Bytes line_max = MiB * 16;
  /// The limit for a compressed trace after decompression, and for a trace from a pipe.
  Bytes content_max = GiB * 16;
  /// Called every 64 KiB, and ten times a second while a pipe is waited for. If it returns false, reading throws Interrupted. May
  /// be null.
  std::function<bool()> go_on{};
};

/// An open trace: a file, or something that can be read only once (a pipe, a FIFO, a terminal; "-" is standard input). The second
/// kind is first copied to an unlinked temporary file, so that it can be read twice. Copies of this object share the descriptor
/// and its position, so only one of them may be read at a time.
class TraceFile {
 public:
  /// Throws UsageError with `NAME: what is wrong`, or Interrupted.
  explicit TraceFile(const std::filesystem::path& name, const TraceLimits& limits = {});

  /// The name for messages.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int descriptor() const { return descriptor_->get(); }

 private:
  [[nodiscard]] std::shared_ptr<Descriptor> copy_of(int source, const TraceLimits& limits) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_;
  std::shared_ptr<Descriptor> descriptor_;
};

/// Reads a trace in Mooncake's format: one JSON object in each line, as text or compressed by gzip. The content decides, not the
/// file's name:
///
///     {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48, 2353]}
///
/// `hash_ids` has one id for each block of `block_tokens` tokens; the id of a partly filled last block may be missing. Other
/// members, empty lines and a byte order mark are ignored. Lines are read as they are asked for, so a file may have any length.
///
/// Errors: a UsageError with one line, `FILE:LINE: what is wrong`; or Interrupted. Threads: one.
class TraceReader final : public RequestSource {
 public:
  TraceReader(const TraceFile& file, std::uint32_t block_tokens, TraceLimits limits = {});
  ~TraceReader() override;

  [[nodiscard]] std::optional<TraceRequest> next() override;

  class Lines;

 private:
  std::string name_;
  std::uint32_t block_tokens_;
  std::unique_ptr<Lines> lines_;
};

/// The tokens of a block in a trace if nobody says otherwise: those that its first line names, `"block_tokens": 16`, as a
/// recording of `terrace record` does; otherwise those of Mooncake's traces. A pipe is not looked at. Throws UsageError if the
/// trace cannot be opened.
[[nodiscard]] std::uint32_t usual_block_tokens(const std::filesystem::path& trace);

/// The result of one pass over a trace. A summary also shows that the trace is well-formed to its end.
struct TraceSummary {
  std::uint64_t requests = 0;
  std::uint32_t full_blocks_max = 0;  ///< in one request
};

/// Reads the first `requests_max` requests. Throws UsageError and Interrupted.
[[nodiscard]] TraceSummary scan_trace(const TraceFile& file, std::uint32_t block_tokens, std::uint64_t requests_max,
                                      const TraceLimits& limits = {});

}  // namespace terrace::tools
