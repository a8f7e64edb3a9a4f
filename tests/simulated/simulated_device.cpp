#include "tests/simulated/simulated_device.hpp"

#include "base/check.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace terrace {

SimulatedDevice::SimulatedDevice(std::uint32_t slots, HostSlots& host, std::uint32_t steps_per_block)
    : SimulatedDevice{std::array{PoolMemory{slots, &host}}, steps_per_block} {}

SimulatedDevice::SimulatedDevice(std::span<const PoolMemory> pools, std::uint32_t steps_per_block)
    : memories_{pools}, info_{"simulated", memories_.pools()}, steps_per_block_{steps_per_block} {
  if (steps_per_block == 0) throw std::invalid_argument{"simulated device: a block takes at least one step"};
}

void SimulatedDevice::submit(CopyCommand command) {
  memories_.of(command).check(command);
  // A fence that no launch has returned would block the stream for ever.
  TERRACE_CHECK(command.after.value() <= given_out_);
  Stream& target = stream(command.direction);
  target.commands.push_back(std::move(command));
}

std::size_t SimulatedDevice::poll(std::vector<CopyDone>& done) {
  const std::size_t polled = done_.size();
  std::ranges::move(done_, std::back_inserter(done));
  done_.clear();
  return polled;
}

Fence SimulatedDevice::launch(ComputeWork work) {
  launched_.push_back({std::move(work)});
  return Fence{++given_out_};
}

void SimulatedDevice::launch_unseen(ComputeWork work) {
  sees_all_ = false;
  launched_.push_back({std::move(work), false});
}

Result<Fence> SimulatedDevice::signal(StreamRef stream) {
  if (stream.handle != nullptr) return Errc::invalid_argument;
  return launch(nullptr);
}

Result<void> SimulatedDevice::await(StreamRef to, std::span<const std::uint64_t> tokens) {
  if (to.handle != nullptr) return Errc::invalid_argument;
  for (const std::uint64_t token : tokens) {
    bool found = std::ranges::find(done_, token, &CopyDone::token) != done_.end();
    for (const Stream& each : streams_) {
      found = found || std::ranges::find(each.held_back, token, &CopyDone::token) != each.held_back.end();
      // Like on a GPU, a command is on its stream when the launched work for which it and those before it wait is done.
      bool on_stream = true;
      for (const CopyCommand& command : each.commands) {
        on_stream = on_stream && command.after <= reached();
        if (command.token != token) continue;
        if (!on_stream) return Errc::not_ready;
        found = true;
      }
    }
    if (!found) return Errc::not_found;
  }
  launched_.push_back({.work = nullptr, .is_point = false, .waits = {tokens.begin(), tokens.end()}});
  return {};
}

Result<void> SimulatedDevice::await(StreamRef stream, Fence point) {
  // The stream is the compute timeline, so every point comes before what is put on it next.
  if (stream.handle != nullptr || point.value() > given_out_) return Errc::invalid_argument;
  return {};
}

Result<void> SimulatedDevice::relocate(std::span<const RelocatedPool> pools) {
  if (const Result<void> accepted = check_relocation(pools); !accepted) return accepted;
  memories_.relocate(pools);
  return {};
}

Result<void> SimulatedDevice::check_relocation(std::span<const RelocatedPool> pools) {
  bool in_use = !launched_.empty() || !done_.empty();
  for (const Stream& each : streams_) in_use = in_use || !each.commands.empty() || !each.held_back.empty();
  if (in_use) return Errc::in_use;
  (void)memories_.check_relocation(pools);
  return {};
}

bool SimulatedDevice::is_open(std::uint64_t token) const {
  return std::ranges::any_of(streams_, [=](const Stream& each) {
    return std::ranges::find(each.commands, token, &CopyCommand::token) != each.commands.end();
  });
}

std::vector<SimulatedDevice::Part> SimulatedDevice::step_options() const {
  std::vector<Part> options;
  const bool computes =
      !launched_.empty() && std::ranges::none_of(launched_.front().waits, [this](std::uint64_t token) { return is_open(token); });
  if (computes) options.push_back(Part::compute);
  if (can_step(stream(Direction::swap_out))) options.push_back(Part::swap_out);
  if (can_step(stream(Direction::swap_in))) options.push_back(Part::swap_in);
  return options;
}

void SimulatedDevice::step(Part part) {
  switch (part) {
    case Part::compute: return compute();
    case Part::swap_out: return copy(stream(Direction::swap_out));
    case Part::swap_in: return copy(stream(Direction::swap_in));
  }
}

void SimulatedDevice::run() {
  for (auto options = step_options(); !options.empty(); options = step_options()) {
    for (const Part part : options) step(part);
  }
}

void SimulatedDevice::delay_completion(Direction direction, bool delayed) {
  Stream& changed = stream(direction);
  changed.delayed = delayed;
  if (delayed || changed.held_back.empty()) return;
  std::ranges::move(changed.held_back, std::back_inserter(done_));
  changed.held_back.clear();
  waker_->wake();
}

bool SimulatedDevice::can_step(const Stream& stream) const {
  return !stream.stuck && !stream.commands.empty() && stream.commands.front().after <= reached();
}

void SimulatedDevice::compute() {
  TERRACE_CHECK(!launched_.empty());
  const Launched next = std::move(launched_.front());
  InPlaceAccess access{memories_};
  if (next.work) next.work(access);
  // Pop it only now, so that everything that the work launches comes after it.
  launched_.pop_front();
  if (next.is_point) ++reached_;
}

void SimulatedDevice::copy(Stream& stream) {
  TERRACE_CHECK(can_step(stream));
  const CopyCommand& command = stream.commands.front();
  const SlotRun& run = command.runs[stream.run];
  stream.took += step_takes;
  const SlotPair block{SlotId{run.source.value() + stream.block}, SlotId{run.destination.value() + stream.block}};
  // If the bytes do not divide evenly, parts differ by at most one byte.
  const SlotMemory& memory = memories_.of(command);
  const std::size_t bytes = memory.bytes_of_each(command);
  const std::size_t begin = bytes * stream.part / steps_per_block_;
  const std::size_t size = bytes * (stream.part + 1) / steps_per_block_ - begin;
  if (stream.dead || stream.failures_due > 0) {
    stream.failures_due -= std::min(stream.failures_due, 1U);
    memory.copy_part(command.direction, block, command.layers, begin, size / 2);
    return end_command(stream, Errc::io_failed);
  }
  memory.copy_part(command.direction, block, command.layers, begin, size);
  if (++stream.part < steps_per_block_) return;
  stream.part = 0;
  if (++stream.block < run.count) return;
  stream.block = 0;
  if (++stream.run < command.runs.size()) return;
  end_command(stream, {});
}

void SimulatedDevice::end_command(Stream& stream, ErrorCode error) {
  const CopyDone done{stream.commands.front().token, error, std::exchange(stream.took, {})};
  stream.commands.pop_front();
  stream.run = 0;
  stream.block = 0;
  stream.part = 0;
  if (stream.delayed) {
    stream.held_back.push_back(done);
    return;
  }
  done_.push_back(done);
  waker_->wake();
}

}  // namespace terrace
