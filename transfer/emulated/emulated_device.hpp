#pragma once

#include "base/completion_queue.hpp"
#include "base/waker.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/types.hpp"
#include "transfer/device/compute_points.hpp"
#include "transfer/device/open_copies.hpp"
#include "transfer/device/slot_memory.hpp"
#include "transfer/emulated/link_model.hpp"
#include "transfer/emulated/stream_event.hpp"
#include "transfer/host/work_queue.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace terrace {

/// The number of faults that the device has caused.
struct PlantedFaults {
  std::uint64_t flipped = 0;      ///< blocks with a flipped bit
  std::uint64_t late = 0;         ///< commands reported done before their bytes moved
  std::uint64_t late_landed = 0;  ///< the part of `late` whose bytes have moved since
  std::uint64_t unfenced = 0;     ///< commands that started before compute had reached their fence

  friend bool operator==(const PlantedFaults&, const PlantedFaults&) = default;
};

/// Counts the commands that one direction of the link has stalled or failed.
struct LinkCounts {
  std::uint64_t stalled = 0;  ///< commands that the link has stalled
  /// Commands that the link has failed.
  std::uint64_t failed = 0;

  friend bool operator==(const LinkCounts&, const LinkCounts&) = default;
};

struct EmulatedOptions {
  std::string name = "emulated";
  /// Determines how long a command uses its stream. The bytes move at the end of that time, so that tests notice slots that are
  /// reused too early.
  LinkModel link{};
  EmulatedFaults faults{};
  /// The device has no thread: submit() returns when the copy has ended, and launch() when the work is done, so link and faults
  /// have no effect. Every stream stands for the calling thread, and only one thread may use the device. It is for runs in which
  /// no time shall pass between a decision and its execution.
  bool instant = false;
};

/// A device in ordinary memory, for machines without a GPU. It has one thread for compute, one for swap-outs and one for
/// swap-ins. The blocks are in memory that it allocates, or in regions of the caller (PoolMemory::regions). An engine may compute
/// on its own streams (EmulatedStream), which signal() and await() take.
///
/// Ownership: arenas and regions must outlive the device. The destructor drops queued work and waits for the copy and the
/// computation under way, and for work of streams that signal() has marked; bytes that are still late are never moved. Streams
/// that wait for copies continue. After it, the device does not access arenas and regions. A caller that needs its CopyDones must
/// collect them before.
///
/// Threads: as for Device; planted() and link_counts() from any. There is no bound: the callers limit the number of commands and
/// computations.
class EmulatedDevice final : public Device {
 public:
  /// The arenas must outlive the device. Throws std::invalid_argument as SlotMemories and LinkStream do, and std::system_error if
  /// there is not enough memory or no thread can be started.
  explicit EmulatedDevice(std::span<const PoolMemory> pools, EmulatedOptions options = {});
  EmulatedDevice(std::uint32_t slots, HostSlots& host, EmulatedOptions options = {});
  ~EmulatedDevice() override { stop(); }
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker& waker) override { relay_.set(&waker); }
  void submit(CopyCommand command) override;
  std::size_t poll(std::vector<CopyDone>& done) override;
  /// Unless the device is instant, `work` must not throw.
  Fence launch(ComputeWork work) override;
  [[nodiscard]] Fence reached() const override { return points_.reached(); }
  [[nodiscard]] Fence after_all_work() const override;
  [[nodiscard]] bool given_out(Fence point) const override { return points_.exists(point); }
  /// The stream is an EmulatedStream. A null stream stands for the calling thread: all its work is done when it calls signal(),
  /// and await() fails with not_ready until there is nothing to wait for.
  [[nodiscard]] Result<Fence> signal(StreamRef stream) override;
  [[nodiscard]] Result<void> await(StreamRef stream, std::span<const std::uint64_t> tokens) override;
  [[nodiscard]] Result<void> await(StreamRef stream, Fence point) override;
  [[nodiscard]] Result<void> relocate(std::span<const RelocatedPool> pools) override;
  [[nodiscard]] Result<void> check_relocation(std::span<const RelocatedPool> pools) override;

  [[nodiscard]] PlantedFaults planted() const;
  [[nodiscard]] LinkCounts link_counts(Direction direction) const;

 private:
  using Event = std::shared_ptr<StreamEvent>;

  struct Submitted {
    CopyCommand command;
    TimePoint at;
    Event ended;
  };
  /// The queue and the thread of one direction. All members except the queue, the point and the counts belong to the thread.
  struct Stream {
    Stream(CompletionQueue<CopyDone>& done_queue, const LinkModel& model, Direction direction)
        : done{done_queue}, link{model, direction} {}
    WorkQueue<Submitted> queue;
    Fence after;  ///< the latest point for which a command has waited; used by the thread of submit()
    CompletionQueue<CopyDone>::Producer done;
    LinkStream link;
    std::uint64_t blocks = 0;
    TimePoint link_free_at{};
    TimePoint began{};  ///< when the current command started, after its wait for compute
    std::atomic<std::uint64_t> stalled{0};
    std::atomic<std::uint64_t> failed{0};
    std::thread thread;
  };
  void compute();
  void stream(Stream& stream);
  /// Waits for the command's fence and for the link. Returns nothing if the device was stopped before the copy could begin.
  [[nodiscard]] std::optional<LinkTurn> await_turn(Stream& stream, const Submitted& submitted);
  /// Returns false if the device was stopped before all bytes had moved.
  [[nodiscard]] bool execute(Stream& stream, const Submitted& submitted, const LinkTurn& turn);
  void flip_bits(Stream& stream, const CopyCommand& command);
  /// Makes the stream wait for the events.
  [[nodiscard]] static Result<void> wait_on(StreamRef stream, std::span<const Event> events);
  void stop() noexcept;

  SlotMemories memories_;  ///< constant while a command or launched work is under way
  const Event instant_;    ///< the end of every copy of an instant device: it has happened. Null: copies take time
  const bool sees_all_work_;
  const DeviceInfo info_;
  const EmulatedFaults faults_;

  ComputePoints<Event> points_;
  OpenCopies<Event> copies_;
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
