// An example of a Device of your own, driven by a transfer engine. docs/how-to/add-a-device.md shows parts of this file.

#include "base/check.hpp"
#include "transfer/device/slot_memory.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"
#include <terrace/clock.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

namespace {

using namespace terrace;

/// A device in ordinary memory that does everything at once: it computes in launch(), and copies in submit(). A device for
/// production has streams instead, because submit() must not block. Threads: one.
class InlineDevice final : public Device {
 public:
  explicit InlineDevice(std::span<const PoolMemory> pools) : memories_{pools}, info_{"inline", memories_.pools()} {}

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  void set_waker(Waker& waker) override { waker_ = &waker; }

  void submit(CopyCommand command) override {
    memories_.of(command).check(command);
    // Compute is done when launch() returns. So no command has to wait for its fence.
    TERRACE_CHECK(command.after <= reached_);
    memories_.of(command).copy(command);
    done_.push_back({.token = command.token, .error = {}});
    waker_->wake();
  }
  std::size_t poll(std::vector<CopyDone>& done) override {
    const std::size_t ended = done_.size();
    done.insert(done.end(), done_.begin(), done_.end());
    done_.clear();
    return ended;
  }

  Fence launch(ComputeWork work) override {
    InPlaceAccess access{memories_};
    work(access);
    reached_ = Fence{reached_.value() + 1};
    return reached_;
  }
  [[nodiscard]] Fence reached() const override { return reached_; }
  [[nodiscard]] Fence after_all_work() const override { return reached_; }

 private:
  SlotMemories memories_;
  DeviceInfo info_;
  NullWaker nobody_;
  Waker* waker_ = &nobody_;
  Fence reached_{};
  std::vector<CopyDone> done_;
};

constexpr Bytes block_bytes = KiB * 4;
constexpr std::uint32_t slots = 8;

void fill(BlockAccess& access, SlotId slot, std::byte value) {
  std::vector<std::byte> scratch(count(block_bytes));
  std::ranges::fill(access.write_target(slot, scratch), value);
  access.written(slot, scratch);
}

bool all_are(std::span<const std::byte> bytes, std::byte value) {
  return std::ranges::all_of(bytes, [&](std::byte b) { return b == value; });
}

/// Moves blocks in one transfer, and waits for its end.
bool move(DirectTransfers& transfers, Transfer transfer) {
  transfers.submit(std::move(transfer));
  std::vector<TransferEvent> events;
  while (!transfers.idle()) transfers.poll(events);
  return events.size() == 1 && std::ranges::all_of(events[0].outcomes, [](BlockOutcome o) { return o == BlockOutcome::done; });
}

}  // namespace

int main() {
  HostArena arena{slots, block_bytes};
  InlineDevice device{std::array{PoolMemory{.slots = slots, .host = &arena}}};
  const SteadyClock clock;
  NullWaker nobody;
  DirectTransfers transfers{TransferSchedulerConfig{}, device, clock, nobody};

  // Compute writes the device's slots 0 and 1. They are swapped out to the host's slots 4 and 5, and back into 6 and 7.
  const Fence written = device.launch([](BlockAccess& access) {
    fill(access, SlotId{0}, std::byte{11});
    fill(access, SlotId{1}, std::byte{12});
  });
  Transfer down;
  down.id = TransferId{1};
  down.direction = Direction::swap_out;
  down.after = written;
  down.runs = {{SlotId{0}, SlotId{4}, 2}};
  Transfer up;
  up.id = TransferId{2};
  up.direction = Direction::swap_in;
  up.runs = {{SlotId{4}, SlotId{6}, 2}};
  bool right = move(transfers, std::move(down)) && all_are(arena.block(SlotId{4}), std::byte{11}) &&
               all_are(arena.block(SlotId{5}), std::byte{12}) && move(transfers, std::move(up));
  (void)device.launch([&](BlockAccess& access) {
    std::vector<std::byte> scratch(count(block_bytes));
    right = right && all_are(access.read(SlotId{6}, scratch), std::byte{11});
    right = right && all_are(access.read(SlotId{7}, scratch), std::byte{12});
  });
  std::printf("the blocks %s\n", right ? "came back" : "did not come back");
  return right ? 0 : 1;
}
