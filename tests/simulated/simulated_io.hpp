#pragma once

#include "base/waker.hpp"
#include "storage/io/io_engine.hpp"
#include "tests/simulated/simulated_files.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// An engine without threads or a disk. Operations wait in a queue until step() carries one out. The caller (usually a seed)
/// chooses the order, and each operation has the fault that was planned for it (SimulatedFiles::inject()). The files outlive the
/// stores on them, so that a store can be closed and opened again. Threads: one.
class SimulatedIo final : public IoEngine {
 public:
  SimulatedIo() = default;
  /// Starts with the disk that another engine has left.
  explicit SimulatedIo(SimulatedFiles files) : files_{std::move(files)} {}

  [[nodiscard]] SimulatedFiles& files() override { return files_; }
  void submit(std::span<const IoOperation> batch) override;
  std::size_t poll(std::vector<IoCompletion>& out) override;
  /// If nothing has completed, carries out the oldest operation, or releases and carries out the oldest stalled one.
  void wait() override;
  [[nodiscard]] std::size_t in_flight() const override { return queue_.size() + stalled_.size() + completed_.size(); }
  [[nodiscard]] Waker& waker() override { return waker_; }
  [[nodiscard]] std::string describe() const override { return "step by step"; }

  /// Number of operations that step() can choose from: those in the queue, in the order of submission.
  [[nodiscard]] std::size_t queued() const { return queue_.size(); }
  /// Carries out the i-th operation in the queue. If it is planned to stall, it is set aside instead.
  void step(std::size_t i);
  /// Number of stalled operations.
  [[nodiscard]] std::size_t stalled() const { return stalled_.size(); }
  /// Puts the stalled operations back into the queue. They do not stall again.
  void release_stalled();

 private:
  struct Queued {
    IoOperation operation;
    IoFault fault;
    std::uint64_t changes = 0;  ///< of the file, before a sync
  };

  SimulatedFiles files_;
  NullWaker waker_;
  std::vector<Queued> queue_;
  std::vector<Queued> stalled_;
  std::vector<IoCompletion> completed_;
};

}  // namespace terrace
