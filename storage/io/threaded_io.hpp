#pragma once

#include "base/completion_queue.hpp"
#include "base/waker.hpp"
#include "storage/io/engine_waker.hpp"
#include "storage/io/io_engine.hpp"
#include "storage/io/posix_calls.hpp"
#include "storage/io/posix_files.hpp"

#include <blockingconcurrentqueue.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace terrace {

/// Does I/O with plain reads and writes on threads of its own: works wherever there are files, containers that forbid
/// io_uring included. As many operations are at the device at once as there are threads; the rest wait their turn, first
/// come first served, so that one stalled operation costs one thread and not its neighbours' time.
///
/// The queues in both directions are lock-free: the owner's calls never wait for a thread that moves bytes.
class ThreadedIo final : public IoEngine {
 public:
  struct Config {
    unsigned threads = 16;
    /// Sizes the queues; more than this many operations under way cost an allocation, nothing else.
    std::size_t in_flight_max = 4096;
    /// Of reads and writes together, per second; 0: as fast as the disk goes. A slower disk than the one at hand, for trials.
    Bytes bandwidth{};
  };

  /// `waker` and `calls` outlive the engine. Throws std::system_error where a thread or a descriptor is not to be had.
  ThreadedIo(Config config, Waker& waker, PosixCalls& calls = PosixCalls::system());
  /// Finishes what is under way, then ends its threads.
  ~ThreadedIo() override;
  ThreadedIo(const ThreadedIo&) = delete;
  ThreadedIo& operator=(const ThreadedIo&) = delete;

  [[nodiscard]] FileSystem& files() override { return files_; }
  void submit(std::span<const IoOperation> batch) override;
  std::size_t poll(std::vector<IoCompletion>& out) override;
  void wait() override;
  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }
  [[nodiscard]] Waker& waker() override { return waker_.owner; }
  [[nodiscard]] std::string describe() const override;

 private:
  struct Work {
    enum class Kind : unsigned char { operation, look_ahead, end };
    Kind kind = Kind::end;
    IoOperation operation;
    PosixFiles::File* file = nullptr;
  };
  /// A thread without work sleeps rather soon: there are more threads than processors, and other work for them.
  struct QueueTraits : moodycamel::ConcurrentQueueDefaultTraits {
    static const int MAX_SEMA_SPINS = 100;
  };
  using WorkQueue = moodycamel::BlockingConcurrentQueue<Work, QueueTraits>;
  using Producer = CompletionQueue<IoCompletion>::Producer;

  void run();
  void perform(const Work& work, AlignedBuffer& scratch, Producer& producer);
  void pace(Bytes bytes);
  void stop() noexcept;

  PosixFiles files_;
  EngineWaker waker_;
  WorkQueue work_;
  moodycamel::ProducerToken work_token_;
  /// What goes ahead: whoever takes anything from the other queue empties this one first. Each has a look_ahead in the other, so
  /// that somebody comes.
  moodycamel::ConcurrentQueue<Work> ahead_;
  moodycamel::ProducerToken ahead_token_;
  std::vector<Work> submitting_;  ///< scratch
  CompletionQueue<IoCompletion> completions_;
  std::vector<IoCompletion> collected_;  ///< by wait(), for the next poll()
  std::size_t in_flight_ = 0;
  const Bytes bandwidth_;
  std::mutex pacing_;
  std::chrono::steady_clock::time_point disk_free_at_;  ///< pacing_'s
  std::vector<std::jthread> threads_;
};

}  // namespace terrace
