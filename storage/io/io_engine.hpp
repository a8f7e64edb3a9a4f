#pragma once

#include "base/waker.hpp"
#include "storage/io/checksum.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <boost/system/generic_category.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// An open file of one engine. An id is never used again during the lifetime of the engine.
using FileId = StrongId<struct FileIdTag>;

enum class Create : unsigned char { no, if_missing };
enum class Direct : unsigned char { no, yes };
enum class Made : unsigned char { created, existed };

struct OpenedFile {
  FileId id;
  Made made = Made::existed;
};

/// The file operations that a store needs when it starts and stops. All calls except prepare(), file_bytes_max(), direct() and
/// sparse() may block, so a store does not make them while it serves; it submits an IoOperation instead. Threads: the engine
/// owner's. Errors carry an errno. A path whose last component is a symbolic link is not opened. A file or directory is *private*
/// if it belongs to this user and its mode grants no access to others (mode & 077 is 0). A private file must also be a regular
/// file with one link.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Makes one directory with mode 0700. The parent must exist.
  [[nodiscard]] virtual Result<Made> make_directory(const std::filesystem::path& path) = 0;
  /// Fails with EPERM if the directory is not private, or if the path is a symbolic link.
  [[nodiscard]] virtual Result<void> check_private(const std::filesystem::path& path) = 0;
  [[nodiscard]] virtual Result<void> remove_directory(const std::filesystem::path& path) = 0;
  /// Makes a symbolic link to a directory. An existing link that leads elsewhere is replaced.
  [[nodiscard]] virtual Result<Made> link_directory(const std::filesystem::path& link, const std::filesystem::path& to) = 0;
  /// Makes the names in the directory survive a power failure.
  [[nodiscard]] virtual Result<void> sync_directory(const std::filesystem::path& path) = 0;
  /// Opens a private file for reading and writing. A file that it creates gets mode 0600. `Direct::yes` bypasses the page cache.
  /// If the file system refuses that, at open or at the first read or write, the file is used through the page cache. Fails with
  /// EPERM if the path does not lead to a private file. It never waits for another process, as opening a pipe could.
  [[nodiscard]] virtual Result<OpenedFile> open(const std::filesystem::path& path, Create create, Direct direct) = 0;
  /// Returns the id of a file that is not open yet. An operation of kind `open` then opens it, or creates it, with the same rules
  /// as open(). Until that has succeeded no other operation may name the file, and close() is the only call allowed.
  [[nodiscard]] virtual FileId prepare(const std::filesystem::path& path, Direct direct) = 0;
  /// Closes the file and releases its lock. No operation may be under way on the file.
  virtual void close(FileId file) = 0;
  [[nodiscard]] virtual Result<void> remove_file(const std::filesystem::path& path) = 0;
  /// Locks the file until close() or the end of the process. Fails with in_use if another open file has the lock. Other programs
  /// can query the lock without taking it (StoreReader).
  [[nodiscard]] virtual Result<void> lock(FileId file) = 0;
  [[nodiscard]] virtual Result<Bytes> size(FileId file) = 0;
  /// The space that the file takes on the device. It is less than the size if the file has holes.
  [[nodiscard]] virtual Result<Bytes> allocated(FileId file) = 0;
  /// Truncates the file. To extend it, an operation of kind `allocate` is used.
  [[nodiscard]] virtual Result<void> resize(FileId file, Bytes size) = 0;
  /// The number of bytes that this user may still write to the file system of `path`.
  [[nodiscard]] virtual Result<Bytes> free_space(const std::filesystem::path& path) = 0;
  /// The largest size of a file that this process may write. Beyond it, writes, allocate and resize() fail with EFBIG.
  [[nodiscard]] virtual Bytes file_bytes_max() const = 0;
  /// Whether the file currently bypasses the page cache.
  [[nodiscard]] virtual Direct direct(FileId file) const = 0;
  /// Returns true if an operation of kind `allocate` could not allocate space for this file because the file system does not
  /// support it. The file then takes its space only as it is written.
  [[nodiscard]] virtual bool sparse(FileId file) const = 0;
};

/// Direct I/O needs buffers, lengths and offsets that are aligned to the sectors of the device. Alignment to pages always
/// suffices. Engines also accept unaligned buffers, but have to copy them.
inline constexpr std::size_t io_alignment = 4096;

/// One I/O operation. Operations under way may run in any order. A caller that needs an order waits for one operation to complete
/// before it submits the next.
struct IoOperation {
  enum class Kind : unsigned char {
    read,
    write,
    sync,
    // Operations on a whole file. They may take long; an engine runs them in parallel to other operations, one at a time.
    open,  ///< opens a file that prepare() has named; if it creates the file, the name survives a power failure
    /// Allocates `length` bytes at `offset` on the device if the file system can do that, and extends the file with zeros if it
    /// is shorter. After ENOSPC a part may be allocated.
    allocate,
    /// Gives the space of whole pages back to the device. The range then reads as zeros, and the file keeps its size. Fails with
    /// EOPNOTSUPP if the file system cannot do that.
    deallocate,
    free_space,  ///< the completion's `bytes` are the bytes that this user may still write to the file system of the file
    /// whether the file still has its name (else ENOENT, ENOTDIR or ESTALE) and at least `length` bytes (else ENODATA)
    check,
  };

  Kind kind = Kind::read;
  std::uint64_t token = 0;  ///< returned with the completion
  FileId file{};
  std::uint64_t offset = 0;
  /// Buffers of a read (`into`) and of a write (`from`). They must stay valid until the completion has been polled. Until then,
  /// `into` must not be used, and `from` must not be changed.
  std::span<std::byte> into{};
  std::span<const std::byte> from{};
  /// The length of the range to allocate or deallocate, or the smallest size that `check` accepts.
  std::uint64_t length = 0;
  /// If not null, the engine computes payload_checksum(key, *fingerprint, buffer) on the thread that moves the bytes: before a
  /// write, or after a read. Must outlive the operation.
  const Fingerprint* fingerprint = nullptr;
  BlockKey key{};
  /// If true, the operation starts before all others that wait. For small and rare operations on which others depend.
  bool ahead = false;
};

/// Returns true for operations that move the bytes of a buffer, and for `sync`.
[[nodiscard]] constexpr bool is_transfer(IoOperation::Kind kind) noexcept { return kind <= IoOperation::Kind::sync; }

struct IoCompletion {
  std::uint64_t token = 0;
  /// an errno; also 0 if fewer bytes than requested were moved without an error (end of file, full device)
  int error = 0;
  /// bytes moved; the engine has already retried partial transfers, so a smaller number than requested is final
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< checksum of an operation with `fingerprint` that moved all its bytes
};

/// The interface through which a store does all disk I/O. It lets one engine, or a simulation, replace another without a change
/// in the store. Each engine serves one store and must outlive it. Threads: the owner calls all members from one thread unless a
/// comment says otherwise; an engine may have its own threads.
class IoEngine {
 public:
  virtual ~IoEngine() = default;

  [[nodiscard]] virtual FileSystem& files() = 0;
  /// Accepts the whole batch without blocking. The engine sets no bound on the number of operations; the owner does.
  virtual void submit(std::span<const IoOperation> batch) = 0;
  /// Appends the completions since the last call. Returns how many.
  virtual std::size_t poll(std::vector<IoCompletion>& out) = 0;
  /// Blocks until poll() has something to return. Returns at once if nothing is under way. Used at start and stop.
  virtual void wait() = 0;
  /// Operations that were submitted and whose completion has not been polled.
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  /// The waker that is woken when there is something to poll.
  [[nodiscard]] virtual Waker& waker() = 0;

  /// Announces memory that many operations will use until forget_memory() is called with the same span. An engine may let the
  /// kernel map it once, instead of once for each operation. If this is not possible, operations still work; describe() reports
  /// it. When the memory is forgotten, no operation may use it. It must be forgotten before it is unmapped and before the engine
  /// ends. Threads: any, also during calls of the owner; one call at a time. May block for a long time.
  virtual void register_memory(std::span<std::byte>) {}
  virtual void forget_memory(std::span<std::byte>) {}
  /// Returns a text for people that describes how I/O is done, for example "4 threads". Threads: the owner's.
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// Returns true if the errno says that a device or the user's share of it is full.
[[nodiscard]] constexpr bool is_no_space(int error) noexcept { return error == ENOSPC || error == EDQUOT; }

[[nodiscard]] inline ErrorCode errno_code(int error) noexcept { return {error, boost::system::generic_category()}; }

}  // namespace terrace
