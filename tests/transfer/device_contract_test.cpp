// The Device contract, for devices without hardware.
#include "tests/transfer/device_contract.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "transfer/emulated/emulated_device.hpp"

#include <array>

namespace terrace::contract {
namespace {

template <HostLayout layout>
class Emulated : public Threaded {
 public:
  static constexpr HostLayout host = layout;

  Emulated(HostArena& arena, Failing failing) {
    EmulatedOptions options;
    if (failing == Failing::second_command) {
      for (LinkDirection& each : options.link.directions) each.fail_every = 2;
    }
    const PoolMemory pool{.slots = slots, .host = &arena, .share = layout.share(), .layers = layers};
    open(std::make_unique<EmulatedDevice>(std::array{pool}, options));
  }
};

/// Drives the device without threads.
class Simulated {
 public:
  static std::optional<std::string> unavailable() { return std::nullopt; }
  static constexpr HostLayout host = whole_slots;

  Simulated(HostArena& arena, Failing failing)
      : device_{std::array{PoolMemory{.slots = slots, .host = &arena, .layers = layers}}}, failing_{failing} {
    device_.set_waker(waker_);
  }

  Device& device() { return device_; }
  void submit(CopyCommand command) {
    const Direction direction = command.direction;
    device_.submit(std::move(command));
    if (failing_ == Failing::none) return;
    device_.run();
    if (++submitted_ == 1) device_.fail_next(direction);
  }
  std::vector<CopyDone> await_done(std::size_t) {
    device_.run();
    std::vector<CopyDone> done;
    device_.poll(done);
    return done;
  }
  void let_copies_happen() { device_.run(); }
  void await_compute(Fence) { device_.run(); }
  Fence launch_held(ComputeWork work) { return device_.launch(std::move(work)); }
  void release_compute() {}
  std::size_t done_while_compute_stands_still(Direction direction) {
    const auto part = direction == swap_out ? SimulatedDevice::Part::swap_out : SimulatedDevice::Part::swap_in;
    std::size_t steps = 0;
    for (const SimulatedDevice::Part possible : device_.step_options()) steps += possible == part;
    return steps;
  }

 private:
  EventFdWaker waker_;
  SimulatedDevice device_;
  Failing failing_;
  int submitted_ = 0;
};

using Drivers = testing::Types<Emulated<whole_slots>, Emulated<shares_of_slots>, Simulated>;
INSTANTIATE_TYPED_TEST_SUITE_P(WithoutHardware, DeviceContract, Drivers);
INSTANTIATE_TYPED_TEST_SUITE_P(WithoutHardware, DeviceContractDeathTest, Drivers);

}  // namespace
}  // namespace terrace::contract
