#pragma once

#include "storage/io/aligned_buffer.hpp"
#include "storage/io/io_engine.hpp"
#include "storage/io/posix_calls.hpp"

#include <atomic>
#include <filesystem>
#include <memory>
#include <vector>

namespace terrace {

/// Files of the operating system, and blocking I/O on them, one operation at a time. The engines for real disks share this class.
/// Threads: the calls of FileSystem and file() from one thread; perform() from any thread, on files that stay open during the
/// call.
class PosixFiles : public FileSystem {
 public:
  struct File {
    int fd = -1;
    std::filesystem::path path;       ///< absolute, because a process may change its working directory
    std::atomic<bool> direct{false};  ///< cleared when the first operation is refused because of direct I/O
    std::atomic<bool> sparse{false};  ///< set if space could not be allocated in advance
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
  [[nodiscard]] Bytes file_bytes_max() const override;
  [[nodiscard]] Direct direct(FileId id) const override { return file(id).direct ? Direct::yes : Direct::no; }
  [[nodiscard]] bool sparse(FileId id) const override { return file(id).sparse; }

  /// The reference stays valid until close().
  [[nodiscard]] File& file(FileId id) const;

  /// Switches the file to the page cache after a read or write was refused, because direct I/O may be the reason. Several threads
  /// may call it at the same time. Returns false if the switch is not possible.
  [[nodiscard]] static bool leave_direct(File& file) noexcept;

  /// Does the operation, and blocks until it is complete. `scratch` belongs to the calling thread; it grows if the operation's
  /// buffer is not aligned.
  [[nodiscard]] IoCompletion perform(const IoOperation& operation, File& file, AlignedBuffer& scratch) noexcept;

 private:
  /// Opens file.path, and creates the file if `create` allows it. Returns the descriptor of a private file, or -1 and sets errno.
  [[nodiscard]] int open_path(File& file, Create create, Made& made) noexcept;
  /// This function and the next two return an errno, or 0.
  [[nodiscard]] int allocate(File& file, off_t offset, off_t bytes) noexcept;
  [[nodiscard]] static int check(const File& file, std::uint64_t bytes) noexcept;
  [[nodiscard]] int sync_path(const std::filesystem::path& directory) noexcept;
  /// Does an operation for which is_transfer() is false.
  void work_on(const IoOperation& operation, File& file, IoCompletion& completion) noexcept;
  [[nodiscard]] int move_bytes(const IoOperation& operation, File& file, std::byte* buffer, std::uint64_t length,
                               std::uint64_t& moved) noexcept;

  PosixCalls& calls_;
  std::vector<std::unique_ptr<File>> files_;  ///< by id; null after close()
};

}  // namespace terrace
