#pragma once

#include "base/waker.hpp"
#include "terrace/device.hpp"
#include "transfer/device/slot_memory.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace terrace {

/// A device without threads. Things happen only in step(), and the simulation chooses by its seed what happens next: compute, or
/// one of the two directions. A copy of a block takes several steps, so that other steps in between see half copied blocks.
///
/// When it is destroyed, everything that has not happened is dropped. Threads: one.
class SimulatedDevice final : public Device {
 public:
  /// The time that a step of a copy reports.
  static constexpr Duration step_takes = std::chrono::microseconds{1};

  /// The parts that can make progress.
  enum class Part : unsigned char { compute, swap_out, swap_in };

  /// `steps_per_block`: number of steps in which a command copies a block, or its part of the block; at least 1. The arenas
  /// outlive the device. Throws as SlotMemory does, and std::invalid_argument if steps_per_block is 0.
  explicit SimulatedDevice(std::span<const PoolMemory> pools, std::uint32_t steps_per_block = 2);
  SimulatedDevice(std::uint32_t slots, HostSlots& host, std::uint32_t steps_per_block = 2);

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker& waker) override { waker_ = &waker; }
  void submit(CopyCommand command) override;
  std::size_t poll(std::vector<CopyDone>& done) override;
  Fence launch(ComputeWork work) override;
  [[nodiscard]] Fence reached() const override { return Fence{reached_}; }
  [[nodiscard]] Fence after_all_work() const override { return Fence{given_out_ + (sees_all_ ? 0U : 1U)}; }
  /// The device has one stream: its compute timeline, which is the null handle.
  [[nodiscard]] Result<Fence> signal(StreamRef stream) override;
  [[nodiscard]] Result<void> await(StreamRef stream, std::span<const std::uint64_t> tokens) override;
  [[nodiscard]] Result<void> await(StreamRef stream, Fence point) override;
  [[nodiscard]] Result<void> relocate(std::span<const RelocatedPool> pools) override;
  [[nodiscard]] Result<void> check_relocation(std::span<const RelocatedPool> pools) override;
  /// Launches work as on a stream of the caller that no fence marks yet. It runs after all work that was launched before it.
  void launch_unseen(ComputeWork work);

  /// The parts that step() can advance now: compute if work is launched; a direction if it has a command whose fence compute has
  /// reached, and if it is not stuck.
  [[nodiscard]] std::vector<Part> step_options() const;
  /// Does one thing: runs the next work of compute, or moves one part of one block of the oldest command of a direction. The last
  /// part completes the command. `part` must be one of step_options().
  void step(Part part);
  /// Steps until nothing can make progress.
  void run();

  /// Makes one more command of this direction fail: the next one that moves, at its next step. Half of that step is written.
  void fail_next(Direction direction) { ++stream(direction).failures_due; }
  /// If `dead`, all commands of this direction fail, like those of fail_next().
  void dead(Direction direction, bool dead) { stream(direction).dead = dead; }
  /// If `frozen`, the commands of this direction stop where they are, possibly half done.
  void stuck(Direction direction, bool frozen) { stream(direction).stuck = frozen; }
  /// If `delayed`, completed commands of this direction are not reported, although their bytes have moved. Later all are
  /// reported.
  void delay_completion(Direction direction, bool delayed);

  /// The present content of the slot, even in the middle of a copy. For tests. Compute sees it in launched work.
  [[nodiscard]] std::span<const std::byte> peek(PoolId pool, SlotId slot) const { return memories_.of(pool).device_block(slot); }
  /// Number of commands of this direction that are submitted and not done.
  [[nodiscard]] std::size_t commands(Direction direction) const { return stream(direction).commands.size(); }

 private:
  struct Stream {
    Duration took{};
    std::deque<CopyCommand> commands;
    /// Position in the oldest command: run, block of the run, part of the block.
    std::size_t run = 0;
    std::uint32_t block = 0;
    std::uint32_t part = 0;
    std::uint32_t failures_due = 0;
    bool dead = false;
    bool stuck = false;
    bool delayed = false;
    std::vector<CopyDone> held_back;
  };

  [[nodiscard]] Stream& stream(Direction direction) { return streams_[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] const Stream& stream(Direction direction) const { return streams_[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] bool can_step(const Stream& stream) const;
  /// Returns true if the command is submitted and its copy has not ended.
  [[nodiscard]] bool is_open(std::uint64_t token) const;
  void compute();
  void copy(Stream& stream);
  void end_command(Stream& stream, ErrorCode error);

  SlotMemories memories_;
  DeviceInfo info_;
  std::uint32_t steps_per_block_;
  NullWaker nobody_;
  Waker* waker_ = &nobody_;
  struct Launched {
    ComputeWork work;
    bool is_point = true;
    std::vector<std::uint64_t> waits = {};  ///< compute stops here until these copies have ended
  };
  std::deque<Launched> launched_;
  std::uint64_t given_out_ = 0;
  std::uint64_t reached_ = 0;
  bool sees_all_ = true;
  std::array<Stream, direction_count> streams_;
  std::vector<CopyDone> done_;
};

}  // namespace terrace
