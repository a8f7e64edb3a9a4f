#include "transfer/emulated/instant_device.hpp"

#include "base/check.hpp"
#include "terrace/clock.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <chrono>

namespace terrace {

InstantDevice::InstantDevice(std::span<const PoolMemory> pools) : memories_{pools}, info_{"instant", memories_.pools()} {}

void InstantDevice::submit(CopyCommand command) {
  const SlotMemory& memory = memories_.of(command);
  memory.check(command);
  TERRACE_CHECK(command.after.value() <= launched_);
  const TimePoint began = std::chrono::steady_clock::now();
  memory.copy(command);
  done_.push_back({command.token, {}, std::chrono::steady_clock::now() - began});
  waker_->wake();
}

std::size_t InstantDevice::poll(std::vector<CopyDone>& done) {
  const std::size_t polled = done_.size();
  done.insert(done.end(), done_.begin(), done_.end());
  done_.clear();
  return polled;
}

Fence InstantDevice::launch(ComputeWork work) {
  InPlaceAccess access{memories_};
  work(access);
  return Fence{++launched_};
}

Result<void> InstantDevice::await(StreamRef, std::span<const std::uint64_t> tokens) {
  for (const std::uint64_t token : tokens) {
    if (std::ranges::find(done_, token, &CopyDone::token) == done_.end()) return Errc::not_found;
  }
  return {};
}

Result<void> InstantDevice::await(StreamRef, Fence point) {
  if (!given_out(point)) return no_such_fence;
  return {};
}

Result<void> InstantDevice::relocate(std::span<const RelocatedPool> pools) {
  if (const Result<void> accepted = check_relocation(pools); !accepted) return accepted;
  memories_.relocate(pools);
  return {};
}

Result<void> InstantDevice::check_relocation(std::span<const RelocatedPool> pools) {
  if (!done_.empty()) return Errc::in_use;
  (void)memories_.check_relocation(pools);
  return {};
}

}  // namespace terrace
