#pragma once

#include "base/waker.hpp"
#include "storage/io/io_engine.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// Faults of one operation. Several can be set.
struct IoFault {
  int error = 0;  ///< fails with this errno and does nothing
  /// Moves at most this many bytes, and reports no error. An `allocate` takes at most this many, and fails with ENOSPC.
  std::optional<std::uint64_t> bytes_max{};
  bool flip = false;   ///< flips one bit in what was read, or in what the file received
  bool stall = false;  ///< stays under way until it is released
};

/// A disk in memory, for SimulatedIo: a tree of names and byte strings. A write is visible at once. Until a sync it is also
/// recorded, so that a power failure can take it away. The bytes and the size of a file become durable by a sync of the file that
/// is submitted after they were written. The names in a directory become durable by a sync of the directory; its own name, by a
/// sync of its parent. Copies of this object share their files. Threads: one.
class SimulatedFiles final : public FileSystem {
 public:
  struct File {
    /// A write, or a change of the size.
    struct Change {
      std::uint64_t number = 0;
      std::uint64_t offset = 0;      ///< of a write; otherwise the new size
      std::vector<std::byte> bytes;  ///< of a write
      bool resizes = false;
    };

    std::vector<std::byte> bytes;    ///< as reads see the file
    std::vector<std::byte> durable;  ///< the least that a power failure leaves
    std::vector<Change> unsynced;    ///< in the order in which they completed
    std::uint64_t changes = 0;
    std::set<std::uint64_t> holes;  ///< whole pages that take no disk space
    bool locked = false;
    bool is_link = false;  ///< `bytes` is the target of the link
  };

  [[nodiscard]] Result<Made> make_directory(const std::filesystem::path& path) override;
  [[nodiscard]] Result<void> check_private(const std::filesystem::path& path) override;
  [[nodiscard]] Result<void> remove_directory(const std::filesystem::path& path) override;
  /// A link is a file whose content is its target. open() follows a link in place of a directory.
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
  [[nodiscard]] Bytes file_bytes_max() const override { return Bytes{file_bytes_max_}; }
  [[nodiscard]] Direct direct(FileId) const override { return Direct::yes; }
  [[nodiscard]] bool sparse(FileId) const override { return !preallocates_; }

  /// Every call above except close() and direct(), and every operation submitted to the engine, has a number. Numbers start at 0
  /// and follow the order of the calls. The fault applies to the operation with this number.
  void inject(std::uint64_t number, IoFault fault) { faults_[number] = fault; }
  [[nodiscard]] std::uint64_t next_number() const { return next_number_; }
  /// Takes the next number and the fault for it.
  [[nodiscard]] IoFault number_next();

  /// From now on, every call and operation on this directory and on everything in it fails with EIO, as if its device were gone.
  void break_directory(const std::filesystem::path& directory) { broken_.insert(directory); }
  void mend_directory(const std::filesystem::path& directory) { broken_.erase(directory); }

  /// While set, every read fails with EIO.
  void fail_reads(bool fail) { reads_fail_ = fail; }

  /// Sets the disk space for all files together.
  void set_disk_bytes(Bytes bytes) { disk_bytes_ = count(bytes); }
  /// Sets the largest size of a file to which the process may write.
  void set_file_bytes_max(Bytes bytes) { file_bytes_max_ = count(bytes); }
  /// Disk space that the files take: their sizes without the holes.
  [[nodiscard]] Bytes used_bytes() const { return Bytes{used()}; }
  /// If false, it acts as a file system that cannot allocate space in advance: files grow by holes until they are written.
  void set_preallocates(bool preallocates) { preallocates_ = preallocates; }
  /// The content of the file, to look at or to damage. Empty if there is no such file.
  [[nodiscard]] std::span<std::byte> content(const std::filesystem::path& path);
  [[nodiscard]] bool exists(const std::filesystem::path& path) const;
  [[nodiscard]] std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory) const;
  /// The disk that a power failure at this moment would leave. `survives` is called for each piece that was not synced, so that
  /// any of them may survive, in any order: sectors of 512 bytes, names, sizes. `whole` is true if the piece is the first one of
  /// its write, or a size or a name. To keep writes as a whole or not at all, give the same answer until `whole` is true again.
  /// Sizes of a file survive in order, and writes beyond a lost size are lost.
  [[nodiscard]] SimulatedFiles after_power_failure(const std::function<bool(bool whole)>& survives) const;
  /// Applies such a power failure to this disk, with nothing surviving. Files that are open must not be used any more.
  void lose_unsynced();
  enum class End : unsigned char { killed, power_failure };
  /// The disk that the owner would leave if it ended now in this way: the same files, unlocked and without planned faults.
  [[nodiscard]] SimulatedFiles left_by(End end) const;
  /// `tell` is called after each operation and call that may have changed something. It must not change anything itself.
  void on_change(std::function<void()> tell) { tell_ = std::move(tell); }

  /// The last change of a file that a sync submitted now makes durable.
  [[nodiscard]] std::uint64_t changes(FileId id) { return file(id).changes; }
  /// Carries out an operation at once, with its fault, and returns its result. `changes`: only for a sync.
  [[nodiscard]] IoCompletion perform(const IoOperation& operation, const IoFault& fault, std::uint64_t changes);

 private:
  struct Handle {
    std::shared_ptr<File> file;  ///< null after close()
    bool has_lock = false;
    std::filesystem::path path{};
  };

  static constexpr std::uint64_t page_bytes = 4096;
  struct Names {
    std::map<std::filesystem::path, std::shared_ptr<File>> files;
    std::set<std::filesystem::path> directories;
  };

  [[nodiscard]] File& file(FileId id);
  [[nodiscard]] std::filesystem::path resolved(const std::filesystem::path& path) const;
  /// The error of a call for this path: a planned one, or that of a broken directory.
  [[nodiscard]] int error_at(const std::filesystem::path& path);
  [[nodiscard]] bool broken(const std::filesystem::path& path) const {
    return broken_.contains(path) || broken_.contains(path.parent_path());
  }
  [[nodiscard]] static std::uint64_t room_of(const File& f) { return f.bytes.size() - f.holes.size() * page_bytes; }
  /// Fills the holes in this range. If the file ends before the range ends, it becomes longer; if it ends before the range
  /// begins, the gap becomes a hole. Returns false if the disk is full.
  [[nodiscard]] bool take_room(File& f, std::uint64_t offset, std::uint64_t length);
  void make_longer(File& f, std::uint64_t size);  ///< with holes
  void punch(File& f, std::uint64_t offset, std::uint64_t length);
  void deallocate(File& f, std::uint64_t offset, std::uint64_t length);
  [[nodiscard]] int allocate(File& f, std::uint64_t offset, std::uint64_t length);
  [[nodiscard]] std::uint64_t used() const;
  void write(File& file, std::uint64_t offset, std::vector<std::byte> bytes);
  void resize(File& file, std::uint64_t size);
  void changed();

  Names names_;    ///< as everybody sees them
  Names durable_;  ///< the least that a power failure leaves
  std::vector<Handle> handles_;
  std::map<std::uint64_t, IoFault> faults_;
  std::set<std::filesystem::path> broken_;
  std::uint64_t next_number_ = 0;
  bool preallocates_ = true;
  bool reads_fail_ = false;
  std::function<void()> tell_;
  std::uint64_t file_bytes_max_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t disk_bytes_ = std::numeric_limits<std::uint64_t>::max();
};

/// An engine without threads or a disk. Operations wait in a queue until step() carries one out. The caller (usually a seed)
/// chooses the order, and each operation has the fault that was planned for it (SimulatedFiles::inject()). The files outlive the
/// stores on them, so that a store can be closed and opened again. Threads: one.
class SimulatedIo final : public IoEngine {
 public:
  SimulatedIo() = default;
  /// Starts with the disk that another engine has left.
  explicit SimulatedIo(SimulatedFiles files) : files_{std::move(files)} {}

  [[nodiscard]] SimulatedFiles& files() override { return files_; }
  void submit(std::span<const IoOperation> batch) override;
  std::size_t poll(std::vector<IoCompletion>& out) override;
  /// If nothing has completed, carries out the oldest operation, or releases and carries out the oldest stalled one.
  void wait() override;
  [[nodiscard]] std::size_t in_flight() const override { return queue_.size() + stalled_.size() + completed_.size(); }
  [[nodiscard]] Waker& waker() override { return waker_; }
  [[nodiscard]] std::string describe() const override { return "step by step"; }

  /// Number of operations that step() can choose from: those in the queue, in the order of submission.
  [[nodiscard]] std::size_t queued() const { return queue_.size(); }
  /// Carries out the i-th operation in the queue. If it is planned to stall, it is set aside instead.
  void step(std::size_t i);
  /// Number of stalled operations.
  [[nodiscard]] std::size_t stalled() const { return stalled_.size(); }
  /// Puts the stalled operations back into the queue. They do not stall again.
  void release_stalled();

 private:
  struct Queued {
    IoOperation operation;
    IoFault fault;
    std::uint64_t changes = 0;  ///< of the file, before a sync
  };

  SimulatedFiles files_;
  NullWaker waker_;
  std::vector<Queued> queue_;
  std::vector<Queued> stalled_;
  std::vector<IoCompletion> completed_;
};

}  // namespace terrace
