#pragma once

#include "base/result.hpp"
#include "base/strong_id.hpp"
#include "runtime/request.hpp"

#include <cstdint>
#include <filesystem>

namespace terrace {

/// A page of memory in a file, on which a cache shows to other processes what it is doing: its status and its epoch, as one word,
/// so that a reader never sees a mixture. Best on a file system in memory. One writer a file: it is locked while the page lives.
///
///     offset  bytes
///          0      8  "terrstat"
///          8      4  version: 1
///         12      4  the writer's process id
///         16      8  status (bits 0 to 7), whether the writer has ended (bit 8), epoch (bits 32 to 63)
///
/// Threads: publish() from one.
class StatusPage {
 public:
  /// Makes the file, mode 0600, or takes over what an earlier process left. Throws std::system_error, naming the file, where that
  /// fails, and where another process shows its own there.
  explicit StatusPage(const std::filesystem::path& file);
  /// Says so to readers that have it open, and removes the file.
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  void publish(CacheStatus status, Epoch epoch) noexcept;

 private:
  std::filesystem::path file_;
  int fd_ = -1;
  void* page_ = nullptr;
};

/// Another process's StatusPage. Threads: any.
class StatusView {
 public:
  struct Shown {
    CacheStatus status = CacheStatus::normal;
    Epoch epoch;
    bool ended = false;  ///< the writer has gone, with or without having said so
  };

  /// Fails: not_found (no such file, or not ours to read), corrupt (no page of this version).
  [[nodiscard]] static Result<StatusView> open(const std::filesystem::path& file);
  ~StatusView();
  StatusView(StatusView&& other) noexcept;
  StatusView& operator=(StatusView&& other) noexcept;

  [[nodiscard]] Shown read() const noexcept;

 private:
  explicit StatusView(const void* page) : page_{page} {}
  const void* page_ = nullptr;
};

}  // namespace terrace
