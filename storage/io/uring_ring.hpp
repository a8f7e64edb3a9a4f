#pragma once

#include "base/completion_queue.hpp"
#include "base/fifo.hpp"
#include "base/waker.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/checksum.hpp"
#include "storage/io/io_engine.hpp"
#include "storage/io/posix_files.hpp"
#include "storage/io/uring_calls.hpp"

#include <liburing.h>  // after the queues: it defines BLOCK_SIZE

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace terrace {

/// Records which piece of memory has which entry in a ring's table of buffers. Threads: one.
class UringMemory {
 public:
  explicit UringMemory(unsigned places);

  /// An entry that is free, or nothing if all are used. add() uses this entry.
  [[nodiscard]] std::optional<unsigned> free_place() const;
  /// Gives the memory the entry that free_place() returned. The memory must not overlap memory that was added before.
  void add(std::span<std::byte> memory);
  /// Removes the memory. Returns its entry, or nothing if it has none.
  std::optional<unsigned> remove(std::span<std::byte> memory);
  /// The entry of the piece of memory that contains all these bytes, or nothing.
  [[nodiscard]] std::optional<unsigned> find(const std::byte* begin, std::size_t bytes) const;

 private:
  struct Piece {
    std::size_t bytes;
    unsigned place;
  };
  std::map<const std::byte*, Piece> pieces_;  ///< by address
  std::vector<unsigned> free_;
};

/// One io_uring and the only thread that uses it. The thread submits all queued operations with one system call, collects
/// completions, and computes checksums: after a read, and during a write. It computes them in pieces and serves the ring between
/// two pieces, so that the device never waits longer than one piece takes.
///
/// The life of an operation:
///
///     queued ──► waiting ──► under way ──► ended ──► sealed ──► pushed as a completion
///               (for a slot)     ▲  │        (the checksum is ready; for a write it may be ready before the write ends)
///                                └──┘ short, interrupted, or refused because of O_DIRECT: requests the rest again
///
/// Threads: push() and start() from the engine owner's; never_register(), forget_file(), register_memory() and forget_memory()
/// from any; everything else from the ring's own thread.
class UringRing {
 public:
  struct Work {
    IoOperation operation;
    PosixFiles::File* file = nullptr;
  };

  /// `depth` limits the operations under way; further ones wait in order of submission. `in_flight_max` is the size of the queue.
  /// Throws std::system_error if the kernel cannot make a ring.
  UringRing(unsigned depth, std::size_t in_flight_max, UringCalls& calls, CompletionQueue<IoCompletion>& completions);
  /// Finishes the operations under way.
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  /// push() queues the work. start() then makes the ring process all work that was pushed before.
  void push(const Work& work) { arriving_.push(work); }
  void start() noexcept { ring_bell(); }

  // Each of these calls returns when the ring's thread has done it. The result is an errno, or 0.
  int register_memory(std::span<std::byte> memory);
  void forget_memory(std::span<std::byte> memory);
  void forget_file(FileId file) { leave_place(file, not_registered); }
  /// Never registers this file; the ring names it by its descriptor. This is for lock files: the kernel clears the ring's table
  /// only some time after a process was killed, and a file in the table stays open and locked until then.
  void never_register(FileId file) { leave_place(file, never_registered); }

  /// Why no ring can be made here: an errno. 0: a ring can be made.
  [[nodiscard]] static int probe(UringCalls& calls);

 private:
  /// An operation that has one of the `depth` slots.
  struct Moving {
    Work work;
    std::byte* buffer = nullptr;  ///< the caller's buffer, or the memory of `copy`
    std::uint64_t length = 0;
    std::uint64_t moved = 0;
    std::uint64_t asked = 0;  ///< bytes asked for by the request under way
    std::uint64_t checksum = 0;
    AlignedBuffer copy;  ///< used if direct I/O cannot use the caller's buffer
    int error = 0;
    bool direct = false;     ///< whether the request under way was submitted with direct I/O
    bool may_block = false;  ///< the kernel must use one of its threads for the request
    bool io_ended = false;
    bool to_seal = false;  ///< the operation is in to_checksum_
  };
  /// How long the ring polls for work before it sleeps.
  static constexpr std::chrono::nanoseconds spin_time{std::chrono::microseconds{50}};
  static constexpr std::uint64_t checksum_piece_bytes = std::uint64_t{256} * 1024;
  /// The owner is woken when nothing is left to seal, or when this many bytes have been sealed, which takes about 40
  /// microseconds.
  static constexpr std::uint64_t wake_after_bytes = std::uint64_t{512} * 1024;
  static constexpr std::uint64_t request_bytes_max = std::uint64_t{1} << 30;
  static constexpr std::uint64_t bell_data = ~std::uint64_t{0};
  static constexpr unsigned memory_places = 4096;  ///< entries for registered memory
  static constexpr unsigned file_places = 64;      ///< entries for registered files; other files are named by their descriptor
  static constexpr int not_registered = -1;
  static constexpr int never_registered = -2;

  /// Runs the order on the ring's thread, and returns its result.
  int carry_out(std::function<int()> order);
  /// Frees the file's entry in the table of registered files. `instead` is the new value in file_places_.
  void leave_place(FileId file, int instead);
  void ring_bell() noexcept;

  void run();
  [[nodiscard]] bool take_arrivals();  ///< returns whether there were any
  void begin_waiting();
  void begin(std::uint32_t slot, const Work& work);
  void request(std::uint32_t slot);
  [[nodiscard]] io_uring_sqe* next_sqe();
  void submit();
  [[nodiscard]] bool reap();  ///< returns whether anything had completed
  void request_ended(std::uint32_t slot, int result);
  void io_ended(std::uint32_t slot);
  [[nodiscard]] bool checksum_a_piece();  ///< returns whether there was anything to seal
  void complete(std::uint32_t slot);
  void wake_owner();
  [[nodiscard]] bool found_no_work();
  void sleep();
  [[nodiscard]] bool idle() const { return waiting_.empty() && ahead_.empty() && free_.size() == moving_.size(); }
  /// The file's entry in the table of registered files, or nothing if it has none.
  [[nodiscard]] std::optional<int> place_of(FileId id, int fd);

  UringCalls& calls_;
  io_uring ring_{};
  bool starts_disabled_ = false;
  int memory_error_ = 0;  ///< why the kernel keeps no table of registered memory: an errno; 0: it keeps one
  int bell_ = -1;         ///< an eventfd

  // Used by several threads.
  NullWaker null_waker_;
  CompletionQueue<Work> arriving_queue_;
  CompletionQueue<Work>::Producer arriving_;
  std::atomic<std::uint64_t> arrivals_{0};  ///< counts work and orders, after they are in their queues
  std::atomic<bool> asleep_{false};
  std::mutex ordering_;
  std::vector<std::packaged_task<int()>> orders_;  ///< guarded by ordering_

  // Used by the ring's thread only.
  CompletionQueue<IoCompletion>::Producer completions_;
  std::uint64_t arrivals_seen_ = 0;
  std::uint64_t bell_value_ = 0;
  bool bell_armed_ = false;
  bool ending_ = false;
  std::vector<std::packaged_task<int()>> taken_orders_;  ///< scratch, as is the next member
  std::vector<Work> arrived_;
  Fifo<Work> waiting_;
  Fifo<Work> ahead_;  ///< waiting operations that begin first
  std::vector<Moving> moving_;
  std::vector<std::uint32_t> free_;
  Fifo<std::uint32_t> to_checksum_;
  PayloadChecksum sum_;  ///< the checksum of the first operation in to_checksum_
  std::uint64_t summed_ = 0;
  bool wake_pending_ = false;                 ///< there are completions for which the owner has not been woken
  std::uint64_t checksummed_since_wake_ = 0;  ///< bytes sealed since the owner was last woken
  UringMemory memory_;
  std::vector<int> file_places_;  ///< by FileId: a place in the table, not_registered or never_registered
  std::vector<int> free_file_places_;

  std::jthread thread_;
};

}  // namespace terrace
