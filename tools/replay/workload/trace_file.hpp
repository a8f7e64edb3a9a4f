#pragma once

#include "base/bytes.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace terrace::tools {

/// What is refused, so that no input takes all memory, all disk or all time; and who may stop the reading of it.
struct TraceLimits {
  Bytes line_max = MiB * 16;
  /// Of a compressed trace when it is decompressed, and of one from a pipe.
  Bytes content_max = GiB * 16;
  /// Asked every 64 KiB, and ten times a second while a pipe is waited for; where it says false, reading throws Interrupted.
  /// Null: nobody.
  std::function<bool()> go_on{};
};

/// A trace that was opened: a file, or something that can be read only once (a pipe, a FIFO, a terminal; "-" is standard input),
/// whose content is then copied to an unlinked temporary file first, so that it can be read again all the same.
/// Copies share the descriptor and its position: one of them is read at a time.
class TraceFile {
 public:
  /// Throws UsageError: `NAME: what is wrong`; Interrupted.
  explicit TraceFile(const std::filesystem::path& name, const TraceLimits& limits = {});

  /// For messages.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int descriptor() const { return descriptor_->number; }

 private:
  struct Descriptor {
    explicit Descriptor(int n) : number{n} {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    const int number;
  };
  [[nodiscard]] std::shared_ptr<Descriptor> copy_of(int source, const TraceLimits& limits) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string name_;
  std::shared_ptr<Descriptor> descriptor_;
};

}  // namespace terrace::tools
