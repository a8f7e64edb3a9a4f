#pragma once

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
#include <utility>
#include <vector>

namespace terrace {

/// What shall go wrong with one operation. Several may be set.
struct IoFault {
  int error = 0;  ///< fails with this errno, having done nothing
  /// Moves no more than this, and reports no error. Of an `allocate`: takes no more than this, and fails with ENOSPC.
  std::optional<std::uint64_t> bytes_max{};
  bool flip = false;   ///< one bit is another: in what was read, or in what the file got
  bool stall = false;  ///< stays under way until released
};

/// A disk in memory, for SimulatedIo: a tree of names and byte strings. What was written is visible at once, and remembered
/// beside it until a sync, so that a power failure can take it away: a file's bytes and size until a sync of the file that
/// was submitted after they were there, the names in a directory until a sync of the directory, its own among its parent's.
/// Copies share their files. Threads: one.
class SimulatedFiles final : public FileSystem {
 public:
  struct File {
    /// A write, or else a change of the size.
    struct Change {
      std::uint64_t number = 0;
      std::uint64_t offset = 0;      ///< of a write; else the size
      std::vector<std::byte> bytes;  ///< of a write
      bool resizes = false;
    };

    std::vector<std::byte> bytes;    ///< as reads see it
    std::vector<std::byte> durable;  ///< what a power failure leaves at least
    std::vector<Change> unsynced;    ///< in the order of their completion
    std::uint64_t changes = 0;
    std::set<std::uint64_t> holes;  ///< whole pages that take no room of the disk
    bool locked = false;
    bool is_link = false;  ///< its content is where it leads
  };

  [[nodiscard]] Result<Made> make_directory(const std::filesystem::path& path) override;
  [[nodiscard]] Result<void> check_private(const std::filesystem::path& path) override;
  [[nodiscard]] Result<void> remove_directory(const std::filesystem::path& path) override;
  /// The link is a file that holds where it leads. open() follows it in the directory's place.
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
  [[nodiscard]] Direct direct(FileId) const override { return Direct::yes; }
  [[nodiscard]] bool sparse(FileId) const override { return !preallocates_; }

  /// Every call above but close() and direct(), and every operation submitted to the engine, has a number, counted from 0 in
  /// the order of the calls. The fault happens to the operation of this number.
  void inject(std::uint64_t number, IoFault fault) { faults_[number] = fault; }
  [[nodiscard]] std::uint64_t next_number() const { return next_number_; }
  /// Takes the next number, and the fault that belongs to it.
  [[nodiscard]] IoFault number_next();

  /// From now on every call and operation on what lies in this directory, or on itself, fails with EIO: its device is gone.
  void break_directory(const std::filesystem::path& directory) { broken_.insert(directory); }
  void mend_directory(const std::filesystem::path& directory) { broken_.erase(directory); }

  /// While set, every read fails with EIO: a disk that only takes.
  void fail_reads(bool fail) { reads_fail_ = fail; }

  /// Room for all files together.
  void set_disk_bytes(Bytes bytes) { disk_bytes_ = count(bytes); }
  /// Of that, what the files take: their sizes but for the holes.
  [[nodiscard]] Bytes used_bytes() const { return Bytes{used()}; }
  /// False: as a file system that cannot take room ahead. What files grow by is holes, until it is written.
  void set_preallocates(bool preallocates) { preallocates_ = preallocates; }
  /// The file's content, to look at or to damage; empty where there is no such file.
  [[nodiscard]] std::span<std::byte> content(const std::filesystem::path& path);
  [[nodiscard]] bool exists(const std::filesystem::path& path) const;
  [[nodiscard]] std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory) const;
  /// The disk that a power failure at this moment would leave. Of what was not synced, `survives` is asked for each piece by
  /// itself, so that any of it may be there in any order: sectors of 512 bytes, names, sizes. `whole` says that a piece is the
  /// first of its write, or is a size or a name: who wants writes that are there as a whole or not at all says the same again
  /// until then. Sizes of a file come in their order, and what was written beyond a size that is lost is lost.
  [[nodiscard]] SimulatedFiles after_power_failure(const std::function<bool(bool whole)>& survives) const;
  /// That failure, here, with nothing of it surviving. Who has a file open must not use it any more.
  void lose_unsynced();
  enum class End : unsigned char { killed, power_failure };
  /// What the owner would leave if it ended so now: the same files, nobody's, without planned faults.
  [[nodiscard]] SimulatedFiles left_by(End end) const;
  /// Called after each operation and call that may have changed something; must not change anything itself.
  void on_change(std::function<void()> tell) { tell_ = std::move(tell); }

  /// Up to which change of a file a sync that is submitted now makes things durable.
  [[nodiscard]] std::uint64_t changes(FileId id) { return file(id).changes; }
  /// What becomes of an operation, given its fault. The read or write itself, at once. `changes`: of a sync.
  [[nodiscard]] IoCompletion perform(const IoOperation& operation, const IoFault& fault, std::uint64_t changes);

 private:
  struct Handle {
    std::shared_ptr<File> file;  ///< null once closed
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
  /// The error of a call about this path: its planned one, or that of a broken directory.
  [[nodiscard]] int error_at(const std::filesystem::path& path);
  [[nodiscard]] bool broken(const std::filesystem::path& path) const {
    return broken_.contains(path) || broken_.contains(path.parent_path());
  }
  [[nodiscard]] static std::uint64_t room_of(const File& f) { return f.bytes.size() - f.holes.size() * page_bytes; }
  /// Fills the holes among these bytes, making the file longer where it ends before them, and leaving a hole where they begin
  /// behind its end. False: the disk is full.
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
  Names durable_;  ///< what a power failure leaves at least
  std::vector<Handle> handles_;
  std::map<std::uint64_t, IoFault> faults_;
  std::set<std::filesystem::path> broken_;
  std::uint64_t next_number_ = 0;
  bool preallocates_ = true;
  bool reads_fail_ = false;
  std::function<void()> tell_;
  std::uint64_t disk_bytes_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace terrace
