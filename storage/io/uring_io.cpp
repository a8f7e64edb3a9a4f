#include "storage/io/uring_io.hpp"

#include "base/check.hpp"
#include "base/thread.hpp"
#include "storage/io/uring_ring.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

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
    const SignalsBlocked blocked;
    thread_ = std::jthread{[this] { run(); }};
  }
  ~FileWorker() {
    push({});
    thread_.join();
  }
  FileWorker(const FileWorker&) = delete;
  FileWorker& operator=(const FileWorker&) = delete;

  /// An entry without a file ends the thread.
  void push(const UringRing::Work& work) {
    {
      const std::lock_guard lock{mutex_};
      waiting_.push_back(work);
    }
    arrived_.notify_one();
  }

 private:
  void run() {
    ::pthread_setname_np(::pthread_self(), "terrace-files");
    AlignedBuffer none;
    for (;;) {
      std::unique_lock lock{mutex_};
      arrived_.wait(lock, [this] { return !waiting_.empty(); });
      const UringRing::Work work = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      if (work.file == nullptr) return;
      completions_.push(files_.perform(work.operation, *work.file, none));
    }
  }

  PosixFiles& files_;
  CompletionQueue<IoCompletion>::Producer completions_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<UringRing::Work> waiting_;
  std::jthread thread_;
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

}  // namespace

struct UringIo::Parts {
  Parts(const Config& config, Waker& owners, UringCalls& calls, PosixCalls& posix_calls)
      : files{posix_calls, rings}, waker{owners}, completions{config.in_flight_max, rings_of(config.rings) + 1, waker} {
    const UringRing::Config of_ring{.depth = config.depth, .in_flight_max = config.in_flight_max};
    for (unsigned n = 0; n < rings_of(config.rings); ++n) {
      rings.push_back(std::make_unique<UringRing>(of_ring, calls, completions));
    }
    file_worker.emplace(files, completions);
  }

  UringFiles files;
  EngineWaker waker;
  CompletionQueue<IoCompletion> completions;
  std::vector<IoCompletion> collected;  ///< completions that wait() has collected for the next poll()
  std::size_t in_flight = 0;
  std::size_t next_ring = 0;
  mutable std::mutex registering;
  // Guarded by `registering`.
  std::size_t pieces = 0;
  int registering_error = 0;  ///< the last error
  std::vector<std::byte*> not_registered;

  Rings rings;  ///< destroyed after `file_worker`, and before the members above
  std::optional<FileWorker> file_worker;
};

std::optional<std::string> UringIo::unavailable() { return unavailable(UringCalls::system()); }

std::optional<std::string> UringIo::unavailable(UringCalls& calls) {
  const int error = UringRing::probe(calls);
  if (error == 0) return std::nullopt;
  return reason(error);
}

UringIo::UringIo(Config config, Waker& waker) : UringIo{config, waker, UringCalls::system()} {}

UringIo::UringIo(Config config, Waker& waker, UringCalls& calls, PosixCalls& posix_calls) {
  if (const int error = UringRing::probe(calls)) throw std::runtime_error{reason(error)};
  parts_ = std::make_unique<Parts>(config, waker, calls, posix_calls);
}

UringIo::~UringIo() = default;

FileSystem& UringIo::files() { return parts_->files; }
std::size_t UringIo::in_flight() const { return parts_->in_flight; }
Waker& UringIo::waker() { return parts_->waker.owner; }

void UringIo::submit(std::span<const IoOperation> batch) {
  if (batch.empty()) return;
  Rings& rings = parts_->rings;
  const std::size_t first = parts_->next_ring;
  for (const IoOperation& operation : batch) {
    if (!is_transfer(operation.kind)) {
      parts_->file_worker->push({operation, &parts_->files.file(operation.file)});
      continue;
    }
    rings[parts_->next_ring]->push({operation, &parts_->files.file(operation.file)});
    parts_->next_ring = (parts_->next_ring + 1) % rings.size();
  }
  for (std::size_t n = 0; n < std::min(batch.size(), rings.size()); ++n) rings[(first + n) % rings.size()]->start();
  parts_->in_flight += batch.size();
}

std::size_t UringIo::poll(std::vector<IoCompletion>& out) {
  parts_->completions.drain(parts_->collected);
  const std::size_t count = parts_->collected.size();
  out.insert(out.end(), parts_->collected.begin(), parts_->collected.end());
  parts_->collected.clear();
  parts_->in_flight -= count;
  return count;
}

void UringIo::wait() {
  while (parts_->collected.empty() && parts_->in_flight > 0) {
    parts_->waker.own.acknowledge();
    if (parts_->completions.drain(parts_->collected) == 0) parts_->waker.own.wait(-1);
  }
}

void UringIo::register_memory(std::span<std::byte> memory) {
  int error = 0;
  for (const auto& ring : parts_->rings) {
    const int failed = ring->register_memory(memory);
    if (failed != 0) error = failed;
  }
  const std::lock_guard lock{parts_->registering};
  ++parts_->pieces;
  if (error == 0) return;
  parts_->not_registered.push_back(memory.data());
  parts_->registering_error = error;
}

void UringIo::forget_memory(std::span<std::byte> memory) {
  for (const auto& ring : parts_->rings) ring->forget_memory(memory);
  const std::lock_guard lock{parts_->registering};
  --parts_->pieces;
  std::erase(parts_->not_registered, memory.data());
}

std::string UringIo::describe() const {
  const std::size_t rings = parts_->rings.size();
  std::string text = fmt::format("io_uring, {} ring{}", rings, rings == 1 ? "" : "s");
  const std::lock_guard lock{parts_->registering};
  const std::size_t without = parts_->not_registered.size();
  if (parts_->pieces == 0) return text;
  text += fmt::format(", {} of {} pieces of memory registered", parts_->pieces - without, parts_->pieces);
  if (without > 0) text += fmt::format(" ({})", std::generic_category().message(parts_->registering_error));
  return text;
}

}  // namespace terrace
