#include "transfer/emulated/emulated_device.hpp"

#include "base/check.hpp"
#include "base/thread.hpp"
#include "terrace/emulated_stream.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace terrace {
namespace {

/// Larger than the number of commands that a transfer scheduler keeps under way. The queue grows if there are more.
constexpr std::size_t dones_in_flight = 64;

std::size_t index(Direction direction) { return static_cast<std::size_t>(direction); }

std::shared_ptr<StreamEvent> happened_event() {
  auto event = std::make_shared<StreamEvent>();
  event->happen();
  return event;
}

}  // namespace

EmulatedDevice::EmulatedDevice(std::uint32_t slots, HostSlots& host, EmulatedOptions options)
    : EmulatedDevice{std::array{PoolMemory{slots, &host}}, std::move(options)} {}

EmulatedDevice::EmulatedDevice(std::span<const PoolMemory> pools, EmulatedOptions options)
    : memories_{pools},
      instant_{options.instant ? happened_event() : nullptr},
      sees_all_work_{instant_ != nullptr || memories_.owned()},  // no stream of an engine can access a block
      info_{std::move(options.name), memories_.pools()},
      faults_{options.faults},
      done_{dones_in_flight, direction_count, relay_},
      streams_{Stream{done_, options.link, Direction::swap_out}, Stream{done_, options.link, Direction::swap_in}} {
  if (instant_) return;
  try {
    compute_thread_ = start_thread("terrace-compute", [this] { compute(); });
    for (Stream& each : streams_) each.thread = start_thread("terrace-copy", [this, &each] { stream(each); });
  } catch (...) {
    stop();
    throw;
  }
}

void EmulatedDevice::stop() noexcept {
  points_.stop();
  for (Stream& each : streams_) each.queue.stop();
  for (Stream& each : streams_) {
    if (each.thread.joinable()) each.thread.join();
  }
  // Streams may wait for copies that are never made now, and compute may wait for these streams.
  for (const auto& each : copies_.all()) each.ended->happen();
  if (compute_thread_.joinable()) compute_thread_.join();
}

void EmulatedDevice::submit(CopyCommand command) {
  memories_.of(command).check(command);
  // The stream would wait forever for a point that no launch() has returned.
  TERRACE_CHECK(points_.exists(command.after));
  if (instant_) {
    // All copies end in one stream, so that they are reported in the order of submission.
    Stream& stream = streams_.front();
    copies_.add({.token = command.token, .ended = instant_, .error = {}, .after = {}});
    stream.began = std::chrono::steady_clock::now();
    memories_.of(command).copy(command);
    stream.done.push({command.token, {}, std::chrono::steady_clock::now() - stream.began});
    return;
  }
  Stream& stream = streams_[index(command.direction)];
  // A command also waits for the previous commands, and so for their points.
  stream.after = std::max(stream.after, command.after);
  const auto ended = std::make_shared<StreamEvent>();
  copies_.add({.token = command.token, .ended = ended, .error = {}, .after = stream.after});
  stream.queue.push({std::move(command), std::chrono::steady_clock::now(), ended});
}

std::size_t EmulatedDevice::poll(std::vector<CopyDone>& done) {
  const std::size_t ended = done_.drain(done);
  copies_.remove(std::span{done}.last(ended));
  return ended;
}

Fence EmulatedDevice::launch(ComputeWork work) {
  if (!instant_) return points_.add_work(std::move(work));
  InPlaceAccess access{memories_};
  work(access);
  return points_.add_reached();
}

Fence EmulatedDevice::after_all_work() const {
  const Fence next = points_.next();
  return sees_all_work_ ? Fence{next.value() - 1} : next;
}

Result<Fence> EmulatedDevice::signal(StreamRef stream) {
  if (instant_) return points_.add_reached();
  const auto here = std::make_shared<StreamEvent>();
  if (stream.handle == nullptr) here->happen();
  else static_cast<EmulatedStream*>(stream.handle)->run([here] { here->happen(); });
  return points_.add_event(here);
}

Result<void> EmulatedDevice::wait_on(StreamRef stream, std::span<const Event> events) {
  if (std::ranges::all_of(events, [](const Event& event) { return event->happened(); })) return {};
  if (stream.handle == nullptr) return Errc::not_ready;
  for (const Event& event : events) static_cast<EmulatedStream*>(stream.handle)->run([event] { event->wait(); });
  return {};
}

Result<void> EmulatedDevice::await(StreamRef stream, std::span<const std::uint64_t> tokens) {
  std::vector<OpenCopies<Event>::Copy> copies;
  if (const Result<void> found = copies_.find(tokens, copies); !found) return found.error();
  std::vector<Event> unused;
  for (const auto& copy : copies) {
    // As on a GPU, the command is not on its stream until the launched work is done.
    if (!points_.try_wait_for(copy.after, unused)) return Errc::not_ready;
  }
  std::vector<Event> ends;
  ends.reserve(copies.size());
  for (const auto& copy : copies) ends.push_back(copy.ended);
  return wait_on(stream, ends);
}

Result<void> EmulatedDevice::await(StreamRef stream, Fence point) {
  if (!points_.exists(point)) return no_such_fence;
  std::vector<Event> open;
  if (!points_.try_wait_for(point, open)) return Errc::not_ready;
  return wait_on(stream, open);
}

Result<void> EmulatedDevice::relocate(std::span<const RelocatedPool> pools) {
  // The device's threads read a pool only for a command or for launched work. There is none now, so they will see only the new
  // regions.
  if (const Result<void> accepted = check_relocation(pools); !accepted) return accepted;
  memories_.relocate(pools);
  return {};
}

Result<void> EmulatedDevice::check_relocation(std::span<const RelocatedPool> pools) {
  if (!copies_.empty() || !points_.work_done()) return Errc::in_use;
  (void)memories_.check_relocation(pools);
  return {};
}

PlantedFaults EmulatedDevice::planted() const {
  return {.flipped = flipped_.load(std::memory_order_acquire),
          .late = late_.load(std::memory_order_acquire),
          .late_landed = late_landed_.load(std::memory_order_acquire),
          .unfenced = unfenced_.load(std::memory_order_acquire)};
}

LinkCounts EmulatedDevice::link_counts(Direction direction) const {
  const Stream& stream = streams_[index(direction)];
  return {.stalled = stream.stalled.load(std::memory_order_acquire), .failed = stream.failed.load(std::memory_order_acquire)};
}

void EmulatedDevice::compute() {
  InPlaceAccess access{memories_};
  points_.run(
      [&](ComputeWork& work) {
        if (faults_.ignore_fences && !points_.wait_until(std::chrono::steady_clock::now() + faults_.compute_lag)) return false;
        work(access);
        return true;
      },
      [](const Event& event) { event->wait(); });
}

void EmulatedDevice::stream(Stream& stream) {
  while (const std::optional<Submitted> submitted = stream.queue.pop()) {
    const std::optional<LinkTurn> turn = await_turn(stream, *submitted);
    if (!turn || !execute(stream, *submitted, *turn)) return;
  }
}

std::optional<LinkTurn> EmulatedDevice::await_turn(Stream& stream, const Submitted& submitted) {
  const CopyCommand& command = submitted.command;
  TimePoint ready_at = submitted.at;
  if (points_.reached() < command.after) {
    if (faults_.ignore_fences) {
      unfenced_.fetch_add(1, std::memory_order_release);
    } else {
      if (!points_.await_reached(command.after)) return std::nullopt;
      ready_at = std::chrono::steady_clock::now();
    }
  }
  const Bytes each{memories_.of(command).bytes_of_each(command)};
  const LinkTurn turn = stream.link.next(each * block_count(command.runs));
  if (turn.stalled) stream.stalled.fetch_add(1, std::memory_order_release);
  if (turn.held == Duration{}) {
    stream.began = std::chrono::steady_clock::now();
    return turn;
  }
  // Count from when the link became free, not from now, so that a thread that wakes up late does not slow the link down.
  stream.began = std::max(stream.link_free_at, ready_at);
  stream.link_free_at = stream.began + turn.held;
  if (!points_.wait_until(stream.link_free_at)) return std::nullopt;
  return turn;
}

bool EmulatedDevice::execute(Stream& stream, const Submitted& submitted, const LinkTurn& turn) {
  const CopyCommand& command = submitted.command;
  const SlotMemory& memory = memories_.of(command);
  const auto end = [&](ErrorCode error) {
    submitted.ended->happen();
    stream.done.push({command.token, error, std::chrono::steady_clock::now() - stream.began});
  };
  if (turn.fails) {
    const SlotRun& first = command.runs.front();
    memory.copy_part(command.direction, {first.source, first.destination}, command.layers, 0, memory.bytes_of_each(command) / 2);
    stream.failed.fetch_add(1, std::memory_order_release);
    end(Errc::io_failed);
    return true;
  }
  if (command.direction == Direction::swap_in && is_nth(turn.number, faults_.late_every)) {
    late_.fetch_add(1, std::memory_order_release);
    end({});
    if (!points_.wait_until(std::chrono::steady_clock::now() + faults_.late_by)) return false;
    memory.copy(command);
    late_landed_.fetch_add(1, std::memory_order_release);
    return true;
  }
  memory.copy(command);
  if (command.direction == Direction::swap_out && faults_.flip_every > 0) flip_bits(stream, command);
  end({});
  return true;
}

void EmulatedDevice::flip_bits(Stream& stream, const CopyCommand& command) {
  const SlotMemory& memory = memories_.of(command);
  const std::size_t size = memory.bytes_of_each(command);
  for (const SlotRun& run : command.runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const std::uint64_t number = ++stream.blocks;
      if (!is_nth(number, faults_.flip_every)) continue;
      // Choose a different position in each block, so that a verification that checks only one position does not pass.
      const std::span<std::byte> block = memory.host_block(SlotId{run.destination.value() + i});
      block[memory.host_place(command.layers, number * 7919 % size)] ^= std::byte{1} << (number % 8);
      flipped_.fetch_add(1, std::memory_order_release);
    }
  }
}

}  // namespace terrace
