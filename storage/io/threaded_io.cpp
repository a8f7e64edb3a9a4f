#include "storage/io/threaded_io.hpp"

#include "base/check.hpp"
#include "base/thread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace terrace {
ThreadedIo::ThreadedIo(Config config, Waker& waker, PosixCalls& calls)
    : QueuedEngine{config.threads, waker},
      files_{calls},
      work_{in_flight_max, 1, 0},
      work_token_{work_},
      ahead_{64, 1, 0},
      ahead_token_{ahead_},
      bandwidth_{config.bandwidth} {
  if (config.threads == 0) throw std::invalid_argument{"the I/O needs at least one worker thread"};
  try {
    for (unsigned n = 0; n < config.threads; ++n) {
      threads_.push_back(start_thread<std::jthread>("terrace-io", [this] { run(); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

void ThreadedIo::stop() noexcept {
  for (std::size_t n = 0; n < threads_.size(); ++n) TERRACE_CHECK(work_.enqueue(work_token_, Work{}));
  threads_.clear();
}

void ThreadedIo::submit(std::span<const IoOperation> batch) {
  if (batch.empty()) return;
  submitting_.clear();
  for (const IoOperation& operation : batch) {
    Work work{Work::Kind::operation, operation, &files_.file(operation.file)};
    if (operation.ahead) TERRACE_CHECK(ahead_.enqueue(ahead_token_, std::exchange(work, {Work::Kind::look_ahead, {}, nullptr})));
    submitting_.push_back(work);
  }
  TERRACE_CHECK(work_.enqueue_bulk(work_token_, submitting_.begin(), submitting_.size()));
  begun(batch.size());
}

std::string ThreadedIo::describe() const {
  const std::string pace =
      bandwidth_ == BytesPerSecond{} ? "" : fmt::format(", at {} a second", to_string(Bytes{count(bandwidth_)}));
  return fmt::format("{} threads{}", threads_.size(), pace);
}

/// Sleeps until a disk of this bandwidth would have moved these bytes and all earlier ones.
void ThreadedIo::pace(Bytes bytes) {
  const std::chrono::duration<double> takes{static_cast<double>(count(bytes)) / static_cast<double>(count(bandwidth_))};
  std::unique_lock lock{pacing_};
  disk_free_at_ = std::max(disk_free_at_, std::chrono::steady_clock::now()) +
                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(takes);
  const auto until = disk_free_at_;
  lock.unlock();
  std::this_thread::sleep_until(until);
}

void ThreadedIo::run() {
  Producer producer{completions()};
  AlignedBuffer scratch;
  Work work;
  Work first;
  for (;;) {
    work_.wait_dequeue(work);
    while (ahead_.try_dequeue(first)) perform(first, scratch, producer);
    if (work.kind == Work::Kind::end) return;
    if (work.kind == Work::Kind::operation) perform(work, scratch, producer);
  }
}

void ThreadedIo::perform(const Work& work, AlignedBuffer& scratch, Producer& producer) {
  const IoCompletion done = files_.perform(work.operation, *work.file, scratch);
  if (bandwidth_ != BytesPerSecond{} && is_transfer(work.operation.kind)) pace(Bytes{done.bytes});
  producer.push(done);
}

}  // namespace terrace
