#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/completion_queue.hpp"
#include "base/waker.hpp"
#include "transfer/device/device.hpp"
#include "transfer/device/slot_memory.hpp"
#include "transfer/device/timeline.hpp"
#include "transfer/device/waker_relay.hpp"
#include "transfer/emulated/link_model.hpp"
#include "transfer/host/work_queue.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace terrace {

/// Faults that a verification must catch; 0 is off. Commands and blocks are counted per direction, so that a run repeats.
struct EmulatedFaults {
  /// Flips one bit of every n-th block swapped out, in the host slot. (Of a command of layers, in those.)
  std::uint64_t flip_every = 0;
  /// Reports every n-th swap-in done first and moves its bytes `late_by` later: a late DMA.
  std::uint64_t late_every = 0;
  Duration late_by = std::chrono::milliseconds{5};
  /// Copies do not wait for compute, and compute begins each work `compute_lag` late, so that a missing fence shows.
  bool ignore_fences = false;
  Duration compute_lag = std::chrono::milliseconds{2};
};

/// How many faults have been planted.
struct PlantedFaults {
  std::uint64_t flipped = 0;      ///< blocks
  std::uint64_t late = 0;         ///< commands reported done before their bytes moved
  std::uint64_t late_landed = 0;  ///< of those, whose bytes have moved by now
  std::uint64_t unfenced = 0;     ///< commands that did not wait for a point compute had not reached

  friend bool operator==(const PlantedFaults&, const PlantedFaults&) = default;
};

/// What one direction of the link has done to commands so far.
struct LinkCounts {
  std::uint64_t stalled = 0;  ///< have begun to stand still
  std::uint64_t failed = 0;

  friend bool operator==(const LinkCounts&, const LinkCounts&) = default;
};

struct EmulatedOptions {
  std::string name = "emulated";
  /// A command keeps its stream for as long as the link says; its bytes move at the end of that time, so that a slot given away
  /// too early shows.
  LinkModel link;
  EmulatedFaults faults;
};

/// A device in ordinary memory, for where there is no GPU: one thread computes, one swaps out, one swaps in.
///
/// Stops when destroyed: what is queued is dropped, a copy or a computation under way ends, late bytes still to come never do;
/// afterwards nothing touches the arena. Whoever wants his CopyDones collects them before. Bounds: commands and computations in
/// flight are their submitters' credits.
///
/// Threads: as Device; planted() and link_counts() from any.
class EmulatedDevice final : public Device {
 public:
  /// The arenas outlive the device. Throws std::invalid_argument where `slots` is 0, or as LinkStream; std::system_error where
  /// there is no memory or no thread to be had.
  explicit EmulatedDevice(std::span<const PoolMemory> pools, EmulatedOptions options = {});
  EmulatedDevice(std::uint32_t slots, const HostArena& host, EmulatedOptions options = {});
  ~EmulatedDevice() override;
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker& waker) override;
  void submit(CopyCommand command) override;
  std::size_t poll(std::vector<CopyDone>& done) override;
  /// `work` must not throw.
  Fence launch(ComputeWork work) override;
  [[nodiscard]] Fence reached() const override { return timeline_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return Fence{launched_.load(std::memory_order_relaxed)}; }

  [[nodiscard]] PlantedFaults planted() const;
  [[nodiscard]] LinkCounts link_counts(Direction direction) const;

 private:
  struct Submitted {
    CopyCommand command;
    TimePoint at;
  };
  struct Launched {
    ComputeWork work;
    Fence point;
  };
  /// One direction's queue and thread; but for the queue and the counts, the thread's own.
  struct Stream {
    Stream(CompletionQueue<CopyDone>& done_queue, const LinkModel& model, Direction direction)
        : done{done_queue}, link{model, direction} {}
    WorkQueue<Submitted> queue;
    CompletionQueue<CopyDone>::Producer done;
    LinkStream link;
    std::uint64_t blocks = 0;
    TimePoint link_free_at{};
    TimePoint began{};  ///< the command under way, once it need not wait any more
    std::atomic<std::uint64_t> stalled{0};
    std::atomic<std::uint64_t> failed{0};
    std::thread thread;
  };
  void compute();
  void stream(Stream& stream);
  /// Nothing: stopped before the copy could begin.
  [[nodiscard]] std::optional<LinkTurn> await_turn(Stream& stream, const Submitted& submitted);
  /// False: stopped before all bytes had moved.
  [[nodiscard]] bool execute(Stream& stream, const CopyCommand& command, const LinkTurn& turn);
  void flip_bits(Stream& stream, const CopyCommand& command);
  void stop() noexcept;

  const SlotMemories memories_;
  const DeviceInfo info_;
  const EmulatedFaults faults_;

  Timeline timeline_;
  std::atomic<std::uint64_t> launched_{0};
  WorkQueue<Launched> compute_queue_;
  WakerRelay relay_;
  CompletionQueue<CopyDone> done_;
  std::array<Stream, direction_count> streams_;
  std::thread compute_thread_;

  std::atomic<std::uint64_t> flipped_{0};
  std::atomic<std::uint64_t> late_{0};
  std::atomic<std::uint64_t> late_landed_{0};
  std::atomic<std::uint64_t> unfenced_{0};
};

}  // namespace terrace
