#pragma once

#include "terrace/export.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace terrace {

/// How the pages of new host memory are touched first.
struct TouchOptions {
  /// The number of threads that touch pages in parallel. 0: one for each processor, up to 8. More threads do not help, because
  /// the kernel clears pages at the speed of memory.
  unsigned threads = 0;
  /// The NUMA node on which the pages should lie. Empty: the node next to the GPUs, or if there is none, the node of the thread
  /// that touches the pages.
  std::optional<unsigned> numa_node{};
  HugePages huge_pages = HugePages::yes;
  /// If another thread sets this, touching ends early: each thread stops after its current slice of 8 MiB. May be null.
  const std::atomic<bool>* cancel = nullptr;
  /// Whether to count the huge pages afterwards. This reads /proc/self/smaps, which takes long if much memory is mapped.
  bool count_huge = false;
};

/// How much memory the system allows this process. An empty member means that there is no limit or that it is unknown.
struct MemoryLimits {
  std::optional<Bytes> available{};  ///< available on the machine, including page cache that the kernel can drop
  /// the limit of the control group that leaves the least memory, among the group of the process and its ancestors
  std::optional<Bytes> cgroup_max{};
  Bytes cgroup_current{};          ///< the usage of that group, without page cache that the kernel can drop
  std::optional<Bytes> memlock{};  ///< how much memory the process may lock
  Bytes locked{};                  ///< how much it has locked
};

/// Reads the limits of this process from proc and sys/fs/cgroup (version 1, 2, or both) under `root`. Tests use a root other than
/// "/". A missing file sets no limit. It reads files, so do not call it on the step path.
[[nodiscard]] TERRACE_API MemoryLimits read_memory_limits(const std::filesystem::path& root = "/");

/// Describes host memory in rows of one block each, at equal distances; it does not own the memory. Rows whose address and stride
/// are multiples of 4 KiB are read and written directly. Other rows are allowed, but are copied once more.
struct HostRows {
  std::byte* address = nullptr;  ///< address of row 0
  std::uint32_t count = 0;
  Bytes row_bytes{};
  Bytes row_stride{};  ///< from the beginning of a row to the beginning of the next row; 0: row_bytes

  [[nodiscard]] Bytes stride() const { return row_stride == Bytes{} ? row_bytes : row_stride; }
  /// Returns the bytes from the beginning of row 0 to the end of the last row.
  [[nodiscard]] Bytes extent() const { return count == 0 ? Bytes{} : stride() * (count - 1) + row_bytes; }
  /// Returns the bytes of a row, which must be less than `count`.
  [[nodiscard]] std::span<std::byte> row(std::uint32_t n) const {
    return {address + n * static_cast<std::uint64_t>(stride()), static_cast<std::size_t>(row_bytes)};
  }
};

/// Checks a description of rows. Fails: invalid_argument (no address, no rows, empty rows, rows that overlap each other, or an
/// end beyond the address space).
[[nodiscard]] TERRACE_API Result<void> check_rows(const HostRows& rows);

/// Whether to check that new memory fits the limits of the machine and of the control groups, before it is taken.
enum class MemoryCheck : bool { no, yes };

/// Private memory of this process, in rows. The memory is zeroed, and all its pages are present, so that no later copy waits for
/// a page fault. Row addresses are multiples of 4 KiB. The destructor frees the memory. Threads: any; the object does not change.
class TERRACE_API PrivateRegion {
 public:
  /// Throws std::invalid_argument (0 rows, 0 bytes, or more than can be addressed), std::runtime_error with the size that fits
  /// (the limits do not allow it), std::system_error (no memory).
  PrivateRegion(std::uint32_t rows, Bytes row_bytes, MemoryCheck check = MemoryCheck::yes);
  ~PrivateRegion();
  PrivateRegion(const PrivateRegion&) = delete;
  PrivateRegion& operator=(const PrivateRegion&) = delete;

  [[nodiscard]] const HostRows& rows() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The layout of a shared region. The creator and all joiners must give the same layout.
struct SharedLayout {
  std::uint32_t rows = 0;
  Bytes row_bytes{};
  Bytes row_stride{};  ///< 0: row_bytes, rounded up to 4 KiB
  /// Identifies the content of the rows: model, geometry, ranks. The region compares it and does not interpret it.
  std::array<std::byte, 32> digest{};
};

/// A random number that identifies one created region, so that a process never joins the region of an earlier run by mistake. The
/// creator passes it to the joiners together with the name or the descriptor.
using RegionNonce = std::array<std::byte, 16>;

/// Memory in rows that several processes of one user share. One process creates it; others join it, by its name or by a
/// descriptor, and must give the same nonce and layout. All see the same bytes. The region does not synchronize accesses: the
/// callers agree on which process uses which row at which time.
///
/// A region with a name is a file, by default in /dev/shm, with mode 0600. Its name appears when the region is complete, and is
/// removed by unlink() or by the destructor of the creator's object. A creator that was killed leaves the file; the next create()
/// of the same name, or remove_stale(), removes it. A region without a name exists only in memory, and its descriptor is passed
/// on (for example with SCM_RIGHTS); no process can make it shorter. A process that has joined may use the memory as long as its
/// object exists, even after the creator has ended.
///
/// After a fork() the child also has the memory; while such a child runs, the creator counts as alive. Threads: any; one call of
/// unlink() at a time.
///
///     SharedRegion region = SharedRegion::create("terrace-rank0", layout);             // the creator
///     SharedRegion same = SharedRegion::join("terrace-rank0", region.nonce(), layout);  // another process
class TERRACE_API SharedRegion {
 public:
  static constexpr const char* default_directory = "/dev/shm";

  /// Creates a region with a name: letters, digits, '-', '_' and '.'; not '.' first. Throws std::invalid_argument (layout or
  /// name), std::runtime_error with the size that fits (MemoryCheck), std::system_error: in_use (a live creator has the name),
  /// incompatible (a file has the name that is no region), or an errno, for example ENOSPC.
  [[nodiscard]] static SharedRegion create(const std::string& name, const SharedLayout& layout,
                                           MemoryCheck check = MemoryCheck::yes,
                                           const std::filesystem::path& directory = default_directory);
  /// Creates a region without a name. Throws the same, but no in_use.
  [[nodiscard]] static SharedRegion create(const SharedLayout& layout, MemoryCheck check = MemoryCheck::yes);

  /// Joins a region. Throws std::invalid_argument (layout or name) and std::system_error, with one sentence that says what
  /// differs: not_found (there is no such region, or its creator has ended), incompatible (it is no region, another version,
  /// nonce or layout, or the file is shorter than the region), EPERM (other users may open the file, or it belongs to another
  /// user), or another errno.
  [[nodiscard]] static SharedRegion join(const std::string& name, const RegionNonce& nonce, const SharedLayout& layout,
                                         const std::filesystem::path& directory = default_directory);
  /// The same for a descriptor. The caller keeps the ownership of the descriptor, and may close it afterwards.
  [[nodiscard]] static SharedRegion join(int descriptor, const RegionNonce& nonce, const SharedLayout& layout);

  /// Removes the name of a region whose creator has ended. Fails: in_use (its creator lives), not_found, incompatible (the file
  /// is no region), EPERM, or another errno.
  static Result<void> remove_stale(const std::string& name, const std::filesystem::path& directory = default_directory);

  ~SharedRegion();
  SharedRegion(SharedRegion&&) noexcept;
  SharedRegion& operator=(SharedRegion&&) noexcept;

  [[nodiscard]] const HostRows& rows() const;
  [[nodiscard]] const RegionNonce& nonce() const;
  /// Returns a descriptor by which other processes can join. This object owns it.
  [[nodiscard]] int descriptor() const;
  /// Returns whether the creator's object exists. Costs one system call.
  [[nodiscard]] bool creator_lives() const;
  /// Removes the name. The creator calls it when all processes have joined. Does nothing in a joiner, for a region without a
  /// name, or in a second call.
  void unlink();

 private:
  struct State;
  explicit SharedRegion(std::unique_ptr<State> state);
  [[nodiscard]] static SharedRegion join_opened(int opened, const std::string& who, const RegionNonce& nonce,
                                                const SharedLayout& layout);
  std::unique_ptr<State> state_;
};

/// Slots [first, first + count).
struct SlotSpan {
  SlotId first{};
  std::uint32_t count = 0;

  [[nodiscard]] std::uint32_t end() const { return first.value() + count; }
  friend bool operator==(const SlotSpan&, const SlotSpan&) = default;
};

/// A chunk of the memory of host slots. Each chunk is mapped separately.
struct HostChunk {
  SlotSpan slots{};
  std::span<std::byte> bytes{};
};

/// An observer of the chunks of host slots: for example a device, which registers each chunk for its copies, or an I/O engine,
/// which keeps a table of buffers. HostSlots::observe() adds an observer. It must stay alive until HostSlots::unobserve().
///
/// Threads: a thread of the host memory, or the thread that calls observe() or unobserve(); one call at a time. A call may take
/// long, because no step of the cache waits for it. No member may call the HostSlots.
class TERRACE_API HostChunkObserver {
 public:
  virtual ~HostChunkObserver() = default;
  /// Is called when every page of the chunk is present, and before the slots of a new chunk are handed out. If it fails, the host
  /// memory does not use the chunk and reports why.
  [[nodiscard]] virtual Result<void> chunk_added(const HostChunk& chunk) = 0;
  /// Returns the reason for the last failure of chunk_added() as text. It is called directly after the failure, on the same
  /// thread. Empty: the error code says everything.
  [[nodiscard]] virtual std::string refusal() const { return {}; }
  /// Is called before a chunk that was added is unmapped. By then, no transfer uses its slots.
  virtual void chunk_removing(const HostChunk& chunk) = 0;
};

/// The slots of host memory, of one block each, as a device sees them. Their memory consists of chunks, which are added and
/// removed while slots of other chunks are in use. A chunk never moves, and no slot lies in two chunks. Slot numbers may have
/// gaps. Experimental.
///
/// Ownership: CacheSystem owns them, and they outlive its devices. Observers must outlive their registration. Threads:
/// block_bytes() from any; block(), contiguous_from() and holds() from any, for slots that a copy command names; slots(),
/// observe() and unobserve() from the thread that makes or destroys the device.
class TERRACE_API HostSlots {
 public:
  virtual ~HostSlots() = default;
  /// Returns the size of a slot. Devices of several ranks may share a slot (HostShare).
  [[nodiscard]] virtual Bytes block_bytes() const = 0;
  /// Returns the number of slots that can be used now. It changes when chunks are added or removed.
  [[nodiscard]] virtual std::uint32_t slots() const = 0;
  /// Returns the bytes of a slot, which must exist.
  [[nodiscard]] virtual std::span<std::byte> block(SlotId slot) const = 0;
  /// Returns how many slots, from this one on and including it, lie in one contiguous range of memory.
  [[nodiscard]] virtual std::uint32_t contiguous_from(SlotId slot) const = 0;
  /// Returns true if all these slots exist.
  [[nodiscard]] virtual bool holds(SlotSpan slots) const = 0;
  /// Adds an observer and reports all chunks that can be used now to it; later changes are reported as well. If the observer
  /// refuses a chunk, observe() fails with that error and does not add the observer. observe() and unobserve() wait while a chunk
  /// is being reported to observers.
  [[nodiscard]] virtual Result<void> observe(HostChunkObserver& observer) = 0;
  /// Removes an observer. The removal of all chunks is reported to it, and nothing after that. Does nothing if it is not an
  /// observer.
  virtual void unobserve(HostChunkObserver& observer) = 0;
};

}  // namespace terrace
