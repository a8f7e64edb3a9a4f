#pragma once

#include "base/completion_queue.hpp"
#include "base/waker.hpp"
#include "transfer/cuda/copy/copy_kernels.hpp"
#include "transfer/cuda/copy/piece_copier.hpp"
#include "transfer/cuda/cuda_device.hpp"
#include "transfer/cuda/device_access.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/cuda/host_pins.hpp"
#include "transfer/cuda/pinned_pools.hpp"
#include "transfer/device/compute_points.hpp"
#include "transfer/device/open_copies.hpp"
#include "transfer/host/work_queue.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace terrace {

/// A CudaDevice that calls the driver through a table of functions.
///
///     submit ──queue──► issuing thread ──────► stream ──event──► ending thread ──► CompletionQueue
///                       waits for work,        waits for         sleeps until
///                       plans the pieces       computations      the event
///
/// Each direction has two threads, because the next command must be put on the stream while the previous one is still copying.
/// Calls that may wait inside the driver are made on these threads, and never on the thread of submit().
class DriverDevice final : public CudaDevice {
 public:
  /// The driver must outlive the device. Throws as CudaDevice::open() does.
  DriverDevice(const CudaDriver& driver, std::span<const PoolMemory> pools, CudaOptions options);
  ~DriverDevice() override;
  DriverDevice(const DriverDevice&) = delete;
  DriverDevice& operator=(const DriverDevice&) = delete;

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker& waker) override { relay_.set(&waker); }
  void submit(CopyCommand command) override;
  std::size_t poll(std::vector<CopyDone>& done) override;
  /// `work` must not throw.
  Fence launch(ComputeWork work) override { return points_.add_work(std::move(work)); }
  [[nodiscard]] Fence reached() const override { return points_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return points_.next(); }
  [[nodiscard]] bool given_out(Fence point) const override { return points_.exists(point); }

  [[nodiscard]] Result<Fence> signal(StreamRef stream) override;
  [[nodiscard]] Result<void> await(StreamRef stream, std::span<const std::uint64_t> tokens) override;
  [[nodiscard]] Result<void> await(StreamRef stream, Fence point) override;
  [[nodiscard]] Result<void> relocate(std::span<const RelocatedPool> pools) override;
  [[nodiscard]] Result<void> check_relocation(std::span<const RelocatedPool> pools) override;
  [[nodiscard]] CudaFacts facts() const override;

 private:
  /// A command that is on a stream. It is done when its event has happened.
  struct Issued {
    std::uint64_t token = 0;
    EventPool::Event begin;  ///< recorded before its first copy; null: its time is not measured
    EventPool::Event event;  ///< recorded after its last copy; null: no copy of the command is on the stream any more
    ErrorCode error;
  };
  struct Stream {
    Stream(DriverDevice& device, CompletionQueue<CopyDone>& done_queue);
    StreamHandle handle;
    WorkQueue<CopyCommand> commands;
    WorkQueue<Issued> ends;
    std::thread issuing;
    std::thread ending;
    // Used by the issuing thread.
    PieceCopier copier;
    std::vector<CopyPiece> pieces;
    std::vector<EventPool::Event> open;
    // Used by the ending thread.
    CompletionQueue<CopyDone>::Producer done;
  };

  void check_only_method() const;
  /// Makes the context current on one of the device's threads.
  void join_context();
  void compute();
  void issue(Stream& stream);
  void end(Stream& stream);
  /// Puts the waits of the command, its copies, and an event after them on the stream. The launched work for which the command
  /// waits must be done.
  [[nodiscard]] Issued issue(Stream& stream, const CopyCommand& command);
  [[nodiscard]] CudaOutcome enqueue(Stream& stream, const CopyCommand& command, Issued& issued);
  /// Records an event with timing on the stream. Returns null if that fails; the failure is noted.
  [[nodiscard]] EventPool::Event record_time(Stream& stream);
  /// Returns the time from the start of the command's first copy to the end of its last copy; 0 if the driver does not report it.
  [[nodiscard]] Duration time_of(const Issued& issued);
  /// Notes the call if it failed. Returns true if it failed.
  bool note(CUresult result, std::string_view call) { return failures_.note({result, call}); }
  /// Checks that the stream of the engine is not being captured. The context is current.
  [[nodiscard]] Result<void> check_not_captured(CUstream stream);
  [[nodiscard]] Result<void> wait_for(CUstream stream, std::span<const EventPool::Event> events);
  void stop() noexcept;

  const CudaDriver& driver_;
  const CudaOptions options_;
  const CUdevice device_;
  PrimaryContext context_;  ///< current while the members below are made and destroyed
  FailureLog failures_;
  const StreamHandle compute_stream_;
  const std::shared_ptr<HostPins> pins_;
  PinnedPools pools_;  ///< constant while a command or launched work is under way
  const DeviceInfo info_;
  std::string no_kernels_;
  const std::optional<CopyKernels> kernels_;
  DeviceAccess access_;  ///< used by the compute thread
  EventPool events_;
  EventPool timed_events_;
  ComputePoints<EventPool::Event> points_;
  OpenCopies<EventPool::Event> copies_;
  WakerRelay relay_;
  CompletionQueue<CopyDone> done_;
  std::array<Stream, direction_count> streams_;
  CudaFacts facts_;  ///< constant once the device is open, except the failures
  std::thread compute_thread_;
};

}  // namespace terrace
