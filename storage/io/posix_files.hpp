#pragma once

#include "storage/io/aligned_buffer.hpp"
#include "storage/io/io_engine.hpp"
#include "storage/io/posix_calls.hpp"

#include <atomic>
#include <filesystem>
#include <memory>
#include <vector>

namespace terrace {

/// Files of the operating system, and one piece of I/O on them at a time: what engines for real disks share.
/// Threads: the FileSystem's calls and file() from one; perform() from any, on files that stay open meanwhile.
class PosixFiles : public FileSystem {
 public:
  struct File {
    int fd = -1;
    std::filesystem::path path;       ///< absolute: a process may change its directory
    std::atomic<bool> direct{false};  ///< cleared by the first operation that is refused for it
    std::atomic<bool> sparse{false};  ///< set where room could not be taken ahead
  };

  explicit PosixFiles(PosixCalls& calls = PosixCalls::system()) : calls_{calls} {}
  ~PosixFiles() override;
  PosixFiles(const PosixFiles&) = delete;
  PosixFiles& operator=(const PosixFiles&) = delete;

  [[nodiscard]] Result<Made> make_directory(const std::filesystem::path& path) override;
  [[nodiscard]] Result<void> check_private(const std::filesystem::path& path) override;
  [[nodiscard]] Result<void> remove_directory(const std::filesystem::path& path) override;
  [[nodiscard]] Result<Made> link_directory(const std::filesystem::path& link, const std::filesystem::path& to) override;
  [[nodiscard]] Result<void> sync_directory(const std::filesystem::path& path) override;
  [[nodiscard]] Result<OpenedFile> open(const std::filesystem::path& path, Create create, Direct direct) override;
  [[nodiscard]] FileId prepare(const std::filesystem::path& path, Direct direct) override;
  void close(FileId file) override;
  [[nodiscard]] Result<void> remove_file(const std::filesystem::path& path) override;
  [[nodiscard]] Result<void> lock(FileId file) override;
  [[nodiscard]] Result<Bytes> size(FileId file) override;
  [[nodiscard]] Result<Bytes> allocated(FileId file) override;
  [[nodiscard]] Result<void> resize(FileId file, Bytes size) override;
  [[nodiscard]] Result<Bytes> free_space(const std::filesystem::path& path) override;
  [[nodiscard]] Direct direct(FileId file) const override;
  [[nodiscard]] bool sparse(FileId file) const override;

  /// Stays where it is until close().
  [[nodiscard]] File& file(FileId id) const;

  /// After a read or write of the file was refused, which direct I/O may be the reason for: goes on through the page cache.
  /// Several threads may find out at the same time. False where that cannot be done.
  [[nodiscard]] static bool leave_direct(File& file) noexcept;

  /// Carries the operation out, blocking. `scratch` is the calling thread's own; it grows where a buffer is not aligned.
  [[nodiscard]] IoCompletion perform(const IoOperation& operation, File& file, AlignedBuffer& scratch) noexcept;

 private:
  /// Opens file.path, or makes it where it may: the descriptor of a private file, or -1 and errno.
  [[nodiscard]] int open_path(File& file, Create create, Made& made) noexcept;
  /// An errno, or 0.
  [[nodiscard]] int allocate(File& file, off_t offset, off_t bytes) noexcept;
  [[nodiscard]] static int check(const File& file, std::uint64_t bytes) noexcept;
  [[nodiscard]] int sync_path(const std::filesystem::path& directory) noexcept;
  /// Of a kind that is no transfer.
  void work_on(const IoOperation& operation, File& file, IoCompletion& completion) noexcept;
  [[nodiscard]] int move_bytes(const IoOperation& operation, File& file, std::byte* buffer, std::uint64_t length,
                               std::uint64_t& moved) noexcept;

  PosixCalls& calls_;
  std::vector<std::unique_ptr<File>> files_;  ///< by id; null once closed
};

}  // namespace terrace
