#pragma once

#include "storage/io/posix_calls.hpp"
#include "storage/io/posix_files.hpp"
#include "storage/io/queued_engine.hpp"

#include <blockingconcurrentqueue.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace terrace {

/// Does I/O with blocking calls on its own threads. It works on every system, even in containers that forbid io_uring. Each
/// thread does one operation at a time. The other operations wait in order of submission. So a stalled operation blocks only one
/// thread.
///
/// The queues in both directions are lock-free: the owner's calls never wait for a thread that moves bytes.
class ThreadedIo final : public QueuedEngine {
 public:
  struct Config {
    unsigned threads = 16;
    /// The limit for reads and writes together, in bytes per second; 0 is no limit. It emulates a slower disk in experiments.
    BytesPerSecond bandwidth{};
  };

  /// `waker` and `calls` must outlive the engine. Throws std::system_error if a thread or a descriptor cannot be created.
  ThreadedIo(Config config, Waker& waker, PosixCalls& calls = PosixCalls::system());
  /// Finishes the operations under way, then ends the threads.
  ~ThreadedIo() override { stop(); }
  ThreadedIo(const ThreadedIo&) = delete;
  ThreadedIo& operator=(const ThreadedIo&) = delete;

  [[nodiscard]] FileSystem& files() override { return files_; }
  void submit(std::span<const IoOperation> batch) override;
  [[nodiscard]] std::string describe() const override;

 private:
  struct Work {
    enum class Kind : unsigned char { operation, look_ahead, end };
    Kind kind = Kind::end;
    IoOperation operation;
    PosixFiles::File* file = nullptr;
  };
  /// An idle thread spins only briefly before it sleeps, because there are more I/O threads than processors.
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
  WorkQueue work_;
  moodycamel::ProducerToken work_token_;
  /// Operations with IoOperation::ahead. A thread that takes an entry from `work_` first empties this queue. For each entry of
  /// this queue there is a `look_ahead` in `work_`, so that a thread wakes up for it.
  moodycamel::ConcurrentQueue<Work> ahead_;
  moodycamel::ProducerToken ahead_token_;
  std::vector<Work> submitting_;  ///< scratch
  const BytesPerSecond bandwidth_;
  std::mutex pacing_;
  std::chrono::steady_clock::time_point disk_free_at_;  ///< guarded by pacing_
  std::vector<std::jthread> threads_;
};

}  // namespace terrace
