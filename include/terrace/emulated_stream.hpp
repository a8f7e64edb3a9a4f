#pragma once

#include "terrace/device.hpp"
#include "terrace/export.hpp"

#include <functional>
#include <memory>

namespace terrace {

/// A stream of an engine without a GPU: a thread that does work in order. An emulated device (EmulatedGpu) takes it in signal()
/// and await(), as a CUDA device takes a CUstream. Several streams of one engine run at the same time.
///
///     EmulatedStream stream;
///     stream.run([&] { write_kv(block); });
///     const Result<Fence> written = cache.signal(stream.ref());
///
/// Ownership: the stream is independent of devices. It must outlive the calls to which it is passed. The destructor runs all work
/// that is on the stream, so it also waits for the copies for which the stream waits.
///
/// Threads: run() and synchronize() from any. The queue has no bound: the caller limits the work.
class TERRACE_API EmulatedStream {
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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace
