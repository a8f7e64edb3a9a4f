#pragma once

#include "base/waker.hpp"
#include "terrace/device.hpp"
#include "transfer/device/slot_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// A device in ordinary memory that does all work at once on the caller's thread: a copy in submit(), a computation in launch().
/// It is for runs in which no time shall pass between a decision and its execution.
///
/// Both calls therefore return when their work is done. Threads: one, for all members.
class InstantDevice final : public Device {
 public:
  /// The arenas and the regions must outlive the device. Throws as SlotMemory does.
  explicit InstantDevice(std::span<const PoolMemory> pools);

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker& waker) override { waker_ = &waker; }
  void submit(CopyCommand command) override;
  std::size_t poll(std::vector<CopyDone>& done) override;
  Fence launch(ComputeWork work) override;
  [[nodiscard]] Fence reached() const override { return Fence{launched_}; }
  [[nodiscard]] Fence after_all_work() const override { return Fence{launched_}; }
  /// Any stream is accepted, because there is nothing to wait for.
  [[nodiscard]] Result<Fence> signal(StreamRef) override { return Fence{++launched_}; }
  [[nodiscard]] Result<void> await(StreamRef stream, std::span<const std::uint64_t> tokens) override;
  [[nodiscard]] Result<void> await(StreamRef stream, Fence point) override;
  [[nodiscard]] Result<void> relocate(std::span<const RelocatedPool> pools) override;
  [[nodiscard]] Result<void> check_relocation(std::span<const RelocatedPool> pools) override;

 private:
  SlotMemories memories_;
  const DeviceInfo info_;
  NullWaker null_waker_;
  Waker* waker_ = &null_waker_;
  std::uint64_t launched_ = 0;
  std::vector<CopyDone> done_;
};

}  // namespace terrace
