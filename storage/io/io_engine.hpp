#pragma once

#include "base/block_key.hpp"
#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"
#include "base/waker.hpp"
#include "storage/io/checksum.hpp"

#include <boost/system/generic_category.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// An open file of one engine. Never re-used within the engine's life.
using FileId = StrongId<struct FileIdTag>;

enum class Create : unsigned char { no, if_missing };
enum class Direct : unsigned char { no, yes };
enum class Made : unsigned char { created, existed };

struct OpenedFile {
  FileId id;
  Made made = Made::existed;
};

/// What a store does with files when it starts and stops. Every call but prepare(), direct() and sparse() may block, and none
/// of those that may is made while serving: what has to be done to files then is an IoOperation. Errors carry an errno. Paths
/// are not followed if their last component is a symbolic link. A file or directory is private if it belongs to this user, its
/// mode gives nothing to others (mode & 077 is 0), and, for a file, it is a regular file with one link. Threads: the engine
/// owner's.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Makes one directory, mode 0700; its parent must exist.
  [[nodiscard]] virtual Result<Made> make_directory(const std::filesystem::path& path) = 0;
  /// Fails with EPERM where the directory is not private, or is a link to one.
  [[nodiscard]] virtual Result<void> check_private(const std::filesystem::path& path) = 0;
  [[nodiscard]] virtual Result<void> remove_directory(const std::filesystem::path& path) = 0;
  /// A symbolic link to a directory; one that is there and leads elsewhere is replaced. No call here follows it.
  [[nodiscard]] virtual Result<Made> link_directory(const std::filesystem::path& link, const std::filesystem::path& to) = 0;
  /// Makes names in the directory survive a power failure.
  [[nodiscard]] virtual Result<void> sync_directory(const std::filesystem::path& path) = 0;
  /// For reading and writing; what it creates has mode 0600. `Direct::yes` bypasses the page cache where the file system
  /// lets it; where it refuses, now or at the first read or write, the file is used through the cache. Fails with EPERM where
  /// what is there is no private file; never waits for another process, as the opening of a pipe may.
  [[nodiscard]] virtual Result<OpenedFile> open(const std::filesystem::path& path, Create create, Direct direct) = 0;
  /// A file that is not open yet: an operation of kind `open` opens it, or makes it, as the above. Until that has succeeded, no
  /// other operation may name it, and only close() may be called of it.
  [[nodiscard]] virtual FileId prepare(const std::filesystem::path& path, Direct direct) = 0;
  /// No operation may be under way on the file. Lets go of its lock.
  virtual void close(FileId file) = 0;
  [[nodiscard]] virtual Result<void> remove_file(const std::filesystem::path& path) = 0;
  /// Until close() or the end of the process. Fails: in_use, where another open file has the lock. Who opens the file
  /// otherwise may ask for the lock's state without taking it (StoreReader).
  [[nodiscard]] virtual Result<void> lock(FileId file) = 0;
  [[nodiscard]] virtual Result<Bytes> size(FileId file) = 0;
  /// What the file has of the device: less than its size where it has holes.
  [[nodiscard]] virtual Result<Bytes> allocated(FileId file) = 0;
  /// Cuts off, or grows with zeros whose room on the device is taken at once where the file system can do that. Fails with
  /// ENOSPC where there is no such room; the size is then anything between the two.
  [[nodiscard]] virtual Result<void> resize(FileId file, Bytes size) = 0;
  /// What this user may still write to the file system that holds `path`.
  [[nodiscard]] virtual Result<Bytes> free_space(const std::filesystem::path& path) = 0;
  /// Whether the file still bypasses the page cache.
  [[nodiscard]] virtual Direct direct(FileId file) const = 0;
  /// Whether a resize(), or an operation of kind `allocate`, could not take the room of this file, because the file system has
  /// no such thing: room is then taken by writing.
  [[nodiscard]] virtual bool sparse(FileId file) const = 0;
};

/// Direct I/O wants buffers, lengths and offsets aligned to the device's sectors, which a page always is. An engine takes
/// other buffers too, at the price of a copy.
inline constexpr std::size_t io_alignment = 4096;

/// One piece of I/O that may be under way beside others, in any order: who needs an order waits in between.
struct IoOperation {
  enum class Kind : unsigned char {
    read,
    write,
    sync,
    // Work on the file as a whole, which may take long; engines do it beside the others, one at a time.
    open,      ///< of a file that prepare() named; what it makes survives a power failure
    allocate,  ///< takes the room of a piece as resize() does, lengthening the file. ENOSPC: perhaps part of it
    /// Gives the room of a piece, which is whole pages, back to the device: it reads as zeros, and the size stays. EOPNOTSUPP:
    /// the file system cannot do that.
    deallocate,
    free_space,  ///< `bytes` of the completion: what this user may still write to the file system that holds the file
    check,       ///< whether its name still leads to the file (else ENOENT, ENOTDIR, ESTALE), of `length` bytes (else ENODATA)
  };

  Kind kind = Kind::read;
  std::uint64_t token = 0;  ///< comes back with the completion
  FileId file{};
  std::uint64_t offset = 0;
  /// Of a read, of a write. Valid and nobody else's (of a write: unchanged) until the completion has been polled.
  std::span<std::byte> into{};
  std::span<const std::byte> from{};
  /// Of a piece that is allocated or deallocated; of a check, what the file must have at least.
  std::uint64_t length = 0;
  /// Where given, payload_checksum(key, *seal, buffer) is made by whoever moves the bytes: of what is about to be written,
  /// of what has been read. Outlives the operation.
  const Fingerprint* seal = nullptr;
  BlockKey key{};
  /// Begun before all that waits for its turn: for what is small and rare, and holds others up.
  bool ahead = false;
};

/// Whether it moves a buffer's bytes, or says to the device that they should stay.
[[nodiscard]] constexpr bool is_transfer(IoOperation::Kind kind) noexcept { return kind <= IoOperation::Kind::sync; }

struct IoCompletion {
  std::uint64_t token = 0;
  int error = 0;               ///< an errno; 0 also where fewer bytes were moved than asked and nobody said why
  std::uint64_t bytes = 0;     ///< moved; partial progress has been retried already, so that fewer than asked is final
  std::uint64_t checksum = 0;  ///< of a sealed operation that moved all its bytes
};

/// The one way to the disk: an engine can be replaced by another, or by a simulation, without the store noticing. Threads:
/// all calls from the owner's; an engine may have threads of its own. One store an engine, which outlives it.
class IoEngine {
 public:
  virtual ~IoEngine() = default;

  [[nodiscard]] virtual FileSystem& files() = 0;
  /// Takes all of the batch, without blocking. Bound: the owner's; an engine holds whatever it is given.
  virtual void submit(std::span<const IoOperation> batch) = 0;
  /// Appends what has completed since the last call; returns how many.
  virtual std::size_t poll(std::vector<IoCompletion>& out) = 0;
  /// Blocks until poll() has something to give, or returns at once where nothing is under way. For starting and stopping.
  virtual void wait() = 0;
  /// Operations submitted whose completion has not been polled.
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  /// Woken when there is something to poll.
  [[nodiscard]] virtual Waker& waker() = 0;

  /// Memory that many operations will name, from now until forget_memory() of the same span: an engine may have the kernel map
  /// it once, instead of for every operation. What cannot be had so is served all the same; describe() says it. No operation
  /// names the memory when it is forgotten, which comes before it is unmapped and before the engine ends.
  /// Threads: any, beside the owner's calls; one call at a time. May take as long as it must.
  virtual void register_memory(std::span<std::byte>) {}
  virtual void forget_memory(std::span<std::byte>) {}
  /// What does the I/O, for people: "4 threads". Threads: the owner's.
  [[nodiscard]] virtual std::string describe() const = 0;
};

[[nodiscard]] inline ErrorCode errno_code(int error) noexcept { return {error, boost::system::generic_category()}; }

}  // namespace terrace
