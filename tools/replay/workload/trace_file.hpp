#pragma once

#include "base/descriptor.hpp"
#include "terrace/types.hpp"

#include <filesystem>
#include <functional>
#include <memory>
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

}  // namespace terrace::tools
