#pragma once

#include "terrace/device.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace terrace {

/// A point on a stream. It happens once. Threads: any.
class StreamEvent {
 public:
  void happen() noexcept {
    happened_.test_and_set(std::memory_order_release);
    happened_.notify_all();
  }
  void wait() const noexcept { happened_.wait(false, std::memory_order_acquire); }

 private:
  std::atomic_flag happened_;
};

/// A stream of an engine without a GPU: a thread that does work in order. EmulatedDevice::signal() and await() take it, as a CUDA
/// device takes a CUstream. Several streams of one engine run at the same time.
///
///     EmulatedStream stream;
///     stream.run([&] { write_kv(block); });
///     const Result<Fence> written = device.signal(stream.ref());
///
/// Ownership: the stream knows no device. It must outlive the calls to which it is passed. The destructor does all work that the
/// stream was given, and so waits for the copies for which the stream waits.
///
/// Threads: run() and synchronize() from any. Bounds: the caller limits the work.
class EmulatedStream {
 public:
  /// Throws std::system_error if no thread can be started.
  EmulatedStream();
  ~EmulatedStream();
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;

  /// Puts work on the stream. It must not throw.
  void run(std::function<void()> work);
  /// Waits until everything is done that was put on the stream before.
  void synchronize();
  [[nodiscard]] StreamRef ref() { return {this}; }

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> items_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace terrace
