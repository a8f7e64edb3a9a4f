#pragma once

#include "base/completion_queue.hpp"
#include "base/fifo.hpp"
#include "base/waker.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/checksum.hpp"
#include "storage/io/io_engine.hpp"
#include "storage/io/posix_files.hpp"
#include "storage/io/uring_calls.hpp"
#include "storage/io/uring_memory.hpp"

#include <liburing.h>  // after the queues: it defines BLOCK_SIZE

#include <atomic>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace terrace {

/// One io_uring, and the thread that alone touches it: it submits what has arrived (one system call for all of it), takes in what
/// has completed, and makes the checksums: of what has been read, and, while the device writes it, of what is being written. It
/// does so a piece at a time and looks after the ring in between, so that the device waits for a checksum at most that long.
///
/// Life of an operation:
///
///     queued ──► waiting ──► under way ──► ended ──► sealed ──► pushed as a completion
///               (for a slot)     ▲  │        (a read's checksum; a write's may be there before the write ends)
///                                └──┘ short, interrupted, or refused for O_DIRECT: the rest again
///
/// Threads: push() and start() from the engine owner's; forget_file(), register_memory() and forget_memory() from any;
/// the rest is the ring's own.
class UringRing {
 public:
  struct Config {
    unsigned depth = 256;  ///< under way at once; the rest waits, first come first served
    std::size_t in_flight_max = 4096;
    unsigned memory_places = 4096;  ///< of registered memory
    unsigned file_places = 64;      ///< of registered files; others are named by their descriptor
  };
  struct Work {
    IoOperation operation;
    PosixFiles::File* file = nullptr;
  };

  /// Throws std::system_error where the kernel gives no ring.
  UringRing(const Config& config, UringCalls& calls, CompletionQueue<IoCompletion>& completions);
  /// Finishes what is under way.
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  /// Takes the work; start() has the ring look at all that was pushed before.
  void push(const Work& work) { arriving_.push(work); }
  void start() noexcept { ring_bell(); }

  // Each returns when the ring has done it; an errno, or 0.
  int register_memory(std::span<std::byte> memory) { return carry_out({Order::Kind::register_memory, memory, {}}); }
  void forget_memory(std::span<std::byte> memory) { (void)carry_out({Order::Kind::forget_memory, memory, {}}); }
  void forget_file(FileId file) { (void)carry_out({Order::Kind::forget_file, {}, file}); }
  /// The file is named by its descriptor from now on. The kernel takes a killed process's table down in its own time, and what is
  /// in it stays open until then: a lock would outlive its owner.
  void keep_out(FileId file) { (void)carry_out({Order::Kind::keep_out, {}, file}); }

  /// Whether the kernel keeps a table of memory at all: an errno, or 0.
  [[nodiscard]] int memory_error() const { return memory_error_; }

  /// Why there can be no ring here: an errno; 0: there can be one.
  [[nodiscard]] static int probe(UringCalls& calls);

 private:
  struct Order {
    enum class Kind : unsigned char { register_memory, forget_memory, forget_file, keep_out, end };
    Kind kind;
    std::span<std::byte> memory;
    FileId file;
    std::promise<int>* done = nullptr;
  };
  /// An operation that has a slot.
  struct Moving {
    Work work;
    std::byte* buffer = nullptr;  ///< the caller's, or the copy's
    std::uint64_t length = 0;
    std::uint64_t moved = 0;
    std::uint64_t asked = 0;  ///< of the request under way
    std::uint64_t checksum = 0;
    AlignedBuffer copy;  ///< where direct I/O cannot have the caller's buffer
    int error = 0;
    bool direct = false;     ///< as the request under way was submitted
    bool may_block = false;  ///< the kernel is to take a thread of its own for it
    bool io_ended = false;
    bool to_seal = false;  ///< in to_seal_
  };
  /// Where the ring has nothing to do, it looks out for more for so long before it sleeps.
  static constexpr std::chrono::nanoseconds look_out{std::chrono::microseconds{50}};
  static constexpr std::uint64_t seal_piece_bytes = std::uint64_t{256} * 1024;
  /// The owner is woken when there is nothing more to seal, or at the latest when so much has been sealed: some 40 microseconds.
  static constexpr std::uint64_t tell_bytes = std::uint64_t{512} * 1024;
  static constexpr std::uint64_t request_bytes_max = std::uint64_t{1} << 30;
  static constexpr std::uint64_t bell_data = ~std::uint64_t{0};

  int carry_out(Order order);
  void ring_bell() noexcept;

  void run();
  [[nodiscard]] bool take_arrivals();  ///< whether there were any
  int perform(const Order& order);
  void begin_waiting();
  void begin(std::uint32_t slot, const Work& work);
  void request(std::uint32_t slot);
  [[nodiscard]] io_uring_sqe* next_sqe();
  void submit();
  [[nodiscard]] bool reap();  ///< whether anything had completed
  void request_ended(std::uint32_t slot, int result);
  void io_ended(std::uint32_t slot);
  [[nodiscard]] bool seal_a_piece();  ///< whether there was anything to seal
  void complete(std::uint32_t slot);
  void tell();
  [[nodiscard]] bool look_out_in_vain();
  void sleep();
  [[nodiscard]] bool idle() const { return waiting_.empty() && ahead_.empty() && free_.size() == moving_.size(); }
  /// The file's place in the table, or nothing.
  [[nodiscard]] std::optional<int> place_of(FileId id, int fd);

  const Config config_;
  UringCalls& calls_;
  io_uring ring_{};
  bool starts_disabled_ = false;
  int memory_error_ = 0;
  int bell_ = -1;  ///< an eventfd

  // Between the threads.
  NullWaker nobody_;
  CompletionQueue<Work> arriving_queue_;
  CompletionQueue<Work>::Producer arriving_;
  std::atomic<std::uint64_t> arrivals_{0};  ///< of work or orders, counted after they are there
  std::atomic<bool> asleep_{false};
  std::mutex ordering_;
  std::vector<Order> orders_;  ///< ordering_'s

  // The ring's thread's.
  CompletionQueue<IoCompletion>::Producer completions_;
  std::uint64_t arrivals_seen_ = 0;
  std::uint64_t bell_value_ = 0;
  bool bell_armed_ = false;
  bool ending_ = false;
  std::vector<Order> taken_orders_;  ///< scratch, as is the next
  std::vector<Work> arrived_;
  Fifo<Work> waiting_;
  Fifo<Work> ahead_;  ///< of what waits, what is begun first
  std::vector<Moving> moving_;
  std::vector<std::uint32_t> free_;
  Fifo<std::uint32_t> to_seal_;
  PayloadChecksum sum_;  ///< of the first of to_seal_
  std::uint64_t summed_ = 0;
  bool untold_ = false;              ///< there are completions for which the owner has not been woken
  std::uint64_t summed_untold_ = 0;  ///< since it was woken last
  UringMemory memory_;
  static constexpr int not_registered = -1;
  static constexpr int kept_out = -2;
  std::vector<int> file_places_;  ///< by FileId; not_registered, kept_out
  std::vector<int> free_file_places_;

  std::jthread thread_;
};

}  // namespace terrace
