#include "storage/io/uring_io.hpp"

#include "base/thread.hpp"
#include "storage/io/posix_files.hpp"
#include "storage/io/queued_engine.hpp"
#include "storage/io/uring_ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <span>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace terrace {
namespace {

using Rings = std::vector<std::unique_ptr<UringRing>>;

/// Files that are removed from the tables of all rings when they are closed. Otherwise a ring's table would keep them open.
class UringFiles final : public PosixFiles {
 public:
  UringFiles(PosixCalls& calls, const Rings& rings) : PosixFiles{calls}, rings_{rings} {}
  Result<void> lock(FileId file) override {
    for (const auto& ring : rings_) ring->never_register(file);
    return PosixFiles::lock(file);
  }
  void close(FileId file) override {
    for (const auto& ring : rings_) ring->forget_file(file);
    PosixFiles::close(file);
  }

 private:
  const Rings& rings_;
};

/// Does operations on whole files on a separate thread, because they would block a ring.
class FileWorker {
 public:
  FileWorker(PosixFiles& files, CompletionQueue<IoCompletion>& completions) : files_{files}, completions_{completions} {
    thread_ = start_thread<std::jthread>("terrace-files", [this] { run(); });
  }
  ~FileWorker() { push({}); }
  FileWorker(const FileWorker&) = delete;
  FileWorker& operator=(const FileWorker&) = delete;

  /// An entry without a file ends the thread.
  void push(const UringRing::Work& work) { producer_.push(work); }

 private:
  void run() {
    AlignedBuffer none;
    std::vector<UringRing::Work> works;
    for (;; works.clear()) {
      arrived_.wait(-1);
      arrived_.acknowledge();
      waiting_.drain(works);
      for (const UringRing::Work& work : works) {
        if (work.file == nullptr) return;
        completions_.push(files_.perform(work.operation, *work.file, none));
      }
    }
  }

  PosixFiles& files_;
  CompletionQueue<IoCompletion>::Producer completions_;
  EventFdWaker arrived_;
  CompletionQueue<UringRing::Work> waiting_{64, 1, arrived_};
  CompletionQueue<UringRing::Work>::Producer producer_{waiting_};
  std::jthread thread_;  ///< joined before the queue is destroyed
};

std::string reason(int error) {
  switch (error) {
    case ENOSYS: return "io_uring: this kernel has none, or one that is too old (Linux 5.6 is needed)";
    case EPERM:
    case EACCES: return "io_uring: forbidden here, by a seccomp filter (containers) or the sysctl kernel.io_uring_disabled";
    case ENOMEM: return "io_uring: no memory for a ring; see ulimit -l";
    default: return fmt::format("io_uring: {}", std::generic_category().message(error));
  }
}

unsigned rings_of(unsigned configured) {
  if (configured > 0) return configured;
  return std::clamp(std::thread::hardware_concurrency() / 4, 1U, 4U);
}

class UringEngine final : public QueuedEngine {
 public:
  UringEngine(const UringIo::Config& config, Waker& owner, UringCalls& calls, PosixCalls& posix_calls)
      : QueuedEngine{rings_of(config.rings) + 1, owner}, files_{posix_calls, rings_} {
    for (unsigned n = 0; n < rings_of(config.rings); ++n) {
      rings_.push_back(std::make_unique<UringRing>(config.depth, in_flight_max, calls, completions()));
    }
    file_worker_.emplace(files_, completions());
  }

  [[nodiscard]] FileSystem& files() override { return files_; }

  void submit(std::span<const IoOperation> batch) override {
    if (batch.empty()) return;
    const std::size_t first = next_ring_;
    for (const IoOperation& operation : batch) {
      const UringRing::Work work{operation, &files_.file(operation.file)};
      if (!is_transfer(operation.kind)) {
        file_worker_->push(work);
        continue;
      }
      rings_[next_ring_]->push(work);
      next_ring_ = (next_ring_ + 1) % rings_.size();
    }
    for (std::size_t n = 0; n < std::min(batch.size(), rings_.size()); ++n) rings_[(first + n) % rings_.size()]->start();
    begun(batch.size());
  }

  void register_memory(std::span<std::byte> memory) override {
    int error = 0;
    for (const auto& ring : rings_) {
      const int failed = ring->register_memory(memory);
      if (failed != 0) error = failed;
    }
    const std::lock_guard lock{registering_};
    ++pieces_;
    if (error == 0) return;
    not_registered_.push_back(memory.data());
    registering_error_ = error;
  }

  void forget_memory(std::span<std::byte> memory) override {
    for (const auto& ring : rings_) ring->forget_memory(memory);
    const std::lock_guard lock{registering_};
    --pieces_;
    std::erase(not_registered_, memory.data());
  }

  [[nodiscard]] std::string describe() const override {
    std::string text = fmt::format("io_uring, {} ring{}", rings_.size(), rings_.size() == 1 ? "" : "s");
    const std::lock_guard lock{registering_};
    const std::size_t without = not_registered_.size();
    if (pieces_ == 0) return text;
    text += fmt::format(", {} of {} pieces of memory registered", pieces_ - without, pieces_);
    if (without > 0) text += fmt::format(" ({})", std::generic_category().message(registering_error_));
    return text;
  }

 private:
  UringFiles files_;
  std::size_t next_ring_ = 0;
  mutable std::mutex registering_;
  // Guarded by `registering_`.
  std::size_t pieces_ = 0;
  int registering_error_ = 0;  ///< the last error
  std::vector<std::byte*> not_registered_;

  Rings rings_;  ///< destroyed after `file_worker_`, and before the members above
  std::optional<FileWorker> file_worker_;
};

}  // namespace

std::optional<std::string> UringIo::unavailable(UringCalls& calls) {
  const int error = UringRing::probe(calls);
  if (error == 0) return std::nullopt;
  return reason(error);
}

std::unique_ptr<IoEngine> UringIo::make(const Config& config, Waker& waker, UringCalls& calls, PosixCalls& posix_calls) {
  if (const auto why = unavailable(calls)) throw std::runtime_error{*why};
  return std::make_unique<UringEngine>(config, waker, calls, posix_calls);
}

}  // namespace terrace
