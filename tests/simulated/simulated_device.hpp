#pragma once

#include "base/waker.hpp"
#include "transfer/device/device.hpp"
#include "transfer/device/slot_memory.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace terrace {

/// A device without threads: nothing happens but in step(), and the simulation chooses by its seed what happens next. Compute
/// and the two directions are three choices; a copy takes several steps a block, so that what runs between them meets half
/// copied blocks.
///
/// Stops when destroyed: what has not happened never does. Threads: one.
class SimulatedDevice final : public Device {
 public:
  /// What a step of a copy claims to have taken.
  static constexpr Duration step_takes = std::chrono::microseconds{1};

  /// What can make progress.
  enum class Part : unsigned char { compute, swap_out, swap_in };

  /// `steps_per_block`: into how many steps the copy of what a command names of a block falls, at least 1. The arenas outlive the
  /// device. Throws as
  /// SlotMemory, and std::invalid_argument where steps_per_block is 0.
  explicit SimulatedDevice(std::span<const PoolMemory> pools, std::uint32_t steps_per_block = 2);
  SimulatedDevice(std::uint32_t slots, const HostArena& host, std::uint32_t steps_per_block = 2);

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker& waker) override { waker_ = &waker; }
  void submit(CopyCommand command) override;
  std::size_t poll(std::vector<CopyDone>& done) override;
  Fence launch(ComputeWork work) override;
  [[nodiscard]] Fence reached() const override { return Fence{reached_}; }
  [[nodiscard]] Fence after_all_work() const override { return Fence{given_out_ + (sees_all_ ? 0U : 1U)}; }
  /// As work on a stream of the caller's that nobody has marked yet: runs after all launched before it, and gives out no point.
  void launch_unseen(ComputeWork work);

  /// What step() may be asked for now: compute with work launched; a direction with a command whose point compute has
  /// reached, unless it is stuck.
  [[nodiscard]] std::vector<Part> step_options() const;
  /// One thing happens: the next computation runs; or a part of one block of the direction's oldest command moves, and with
  /// the last part the command is done. `part` must be among step_options().
  void step(Part part);
  /// Steps whatever can be stepped until nothing can.
  void run();

  /// One more command of this direction fails: the one that moves next, at its next step, half of which is written.
  void fail_next(Direction direction) { ++stream(direction).failures_due; }
  /// A frozen stream: its commands stay where they are, half done if they are.
  void stuck(Direction direction, bool frozen) { stream(direction).stuck = frozen; }
  /// While set, what this direction has done is not reported, though its bytes have moved; unset, all of it is.
  void delay_completion(Direction direction, bool delayed);

  /// What the slot holds this moment, half a copy or not. For tests: compute sees it in launched work.
  [[nodiscard]] std::span<const std::byte> peek(PoolId pool, SlotId slot) const { return memories_.of(pool).device_block(slot); }
  /// Commands submitted and not yet done, by direction.
  [[nodiscard]] std::size_t commands(Direction direction) const { return stream(direction).commands.size(); }

 private:
  struct Stream {
    Duration took{};
    std::deque<CopyCommand> commands;
    /// Where the oldest command is: run, block of the run, part of the block.
    std::size_t run = 0;
    std::uint32_t block = 0;
    std::uint32_t part = 0;
    std::uint32_t failures_due = 0;
    bool stuck = false;
    bool delayed = false;
    std::vector<CopyDone> held_back;
  };

  [[nodiscard]] Stream& stream(Direction direction) { return streams_[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] const Stream& stream(Direction direction) const { return streams_[static_cast<std::size_t>(direction)]; }
  [[nodiscard]] bool can_step(const Stream& stream) const;
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
  };
  std::deque<Launched> launched_;
  std::uint64_t given_out_ = 0;
  std::uint64_t reached_ = 0;
  bool sees_all_ = true;
  std::array<Stream, direction_count> streams_;
  std::vector<CopyDone> done_;
};

}  // namespace terrace
