#pragma once

#include "storage/io/engine_waker.hpp"
#include "storage/io/io_engine.hpp"
#include "storage/io/posix_files.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

class UringCalls;

/// Does I/O with io_uring: the kernel takes operations in batches and keeps as many at the device as it will take, for a thread
/// or a few of ours. Files are registered, and memory where the kernel lets us (register_memory). A stalled operation costs a
/// slot of its ring and nobody's time.
///
/// One thread a ring submits, takes in completions and makes checksums, at memory speed: about 10 GB/s a ring. The owner's
/// calls never wait for it: operations go there and back through lock-free queues. In a build without liburing there is none,
/// and unavailable() says so.
class UringIo final : public IoEngine {
 public:
  struct Config {
    /// Each with a thread. 0: one for every four processors, at most four.
    unsigned rings = 0;
    /// Operations under way in each at once; the rest waits its turn.
    unsigned depth = 256;
    /// Sizes the queues; more than this many operations under way cost an allocation, nothing else.
    std::size_t in_flight_max = 4096;
  };

  /// `waker` and `calls` outlive the engine. Throws std::runtime_error, with a sentence, where there can be no
  /// ring, std::system_error where a descriptor or a thread is not to be had.
  UringIo(Config config, Waker& waker);
  UringIo(Config config, Waker& waker, UringCalls& calls, PosixCalls& posix_calls = PosixCalls::system());
  /// Finishes what is under way, then ends its threads.
  ~UringIo() override;
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;

  /// Why there is no io_uring here, in a sentence; nothing: there is.
  [[nodiscard]] static std::optional<std::string> unavailable();
  [[nodiscard]] static std::optional<std::string> unavailable(UringCalls& calls);

  [[nodiscard]] FileSystem& files() override;
  void submit(std::span<const IoOperation> batch) override;
  std::size_t poll(std::vector<IoCompletion>& out) override;
  void wait() override;
  [[nodiscard]] std::size_t in_flight() const override;
  [[nodiscard]] Waker& waker() override;
  /// Waits for the ring, and that for the kernel, which looks up every page: some 10 ms a GiB of small pages. Of at most 1 GiB.
  void register_memory(std::span<std::byte> memory) override;
  void forget_memory(std::span<std::byte> memory) override;
  [[nodiscard]] std::string describe() const override;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace terrace
