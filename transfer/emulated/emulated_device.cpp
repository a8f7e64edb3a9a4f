#include "transfer/emulated/emulated_device.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <utility>

namespace terrace {
namespace {

/// More commands than a transfer scheduler keeps under way. If there are more, the queue grows.
constexpr std::size_t dones_in_flight = 64;

std::size_t index(Direction direction) { return static_cast<std::size_t>(direction); }

bool is_nth(std::uint64_t number, std::uint64_t every) { return every > 0 && number % every == 0; }

}  // namespace

EmulatedDevice::EmulatedDevice(std::uint32_t slots, const HostArena& host, EmulatedOptions options)
    : EmulatedDevice{std::array{PoolMemory{slots, &host}}, std::move(options)} {}

EmulatedDevice::EmulatedDevice(std::span<const PoolMemory> pools, EmulatedOptions options)
    : memories_{pools},
      info_{std::move(options.name), memories_.pools()},
      faults_{options.faults},
      done_{dones_in_flight, direction_count, relay_},
      streams_{Stream{done_, options.link, Direction::swap_out}, Stream{done_, options.link, Direction::swap_in}} {
  try {
    compute_thread_ = std::thread{[this] { compute(); }};
    for (Stream& each : streams_) each.thread = std::thread{[this, &each] { stream(each); }};
  } catch (...) {
    stop();
    throw;
  }
}

EmulatedDevice::~EmulatedDevice() { stop(); }

void EmulatedDevice::stop() noexcept {
  timeline_.stop();
  compute_queue_.stop();
  for (Stream& each : streams_) each.queue.stop();
  if (compute_thread_.joinable()) compute_thread_.join();
  for (Stream& each : streams_) {
    if (each.thread.joinable()) each.thread.join();
  }
}

void EmulatedDevice::set_waker(Waker& waker) { relay_.set(waker); }

void EmulatedDevice::submit(CopyCommand command) {
  memories_.of(command).check(command);
  // The stream would wait for ever for a point that no launch() has returned.
  TERRACE_CHECK(command.after.value() <= launched_.load(std::memory_order_relaxed));
  Stream& stream = streams_[index(command.direction)];
  stream.queue.push({std::move(command), std::chrono::steady_clock::now()});
}

std::size_t EmulatedDevice::poll(std::vector<CopyDone>& done) { return done_.drain(done); }

Fence EmulatedDevice::launch(ComputeWork work) {
  const Fence point{launched_.fetch_add(1, std::memory_order_relaxed) + 1};
  compute_queue_.push({std::move(work), point});
  return point;
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
  while (std::optional<Launched> launched = compute_queue_.pop()) {
    if (faults_.ignore_fences && !timeline_.wait_until(std::chrono::steady_clock::now() + faults_.compute_lag)) return;
    launched->work(access);
    timeline_.reach(launched->point);
  }
}

void EmulatedDevice::stream(Stream& stream) {
  while (const std::optional<Submitted> submitted = stream.queue.pop()) {
    const std::optional<LinkTurn> turn = await_turn(stream, *submitted);
    if (!turn || !execute(stream, submitted->command, *turn)) return;
  }
}

std::optional<LinkTurn> EmulatedDevice::await_turn(Stream& stream, const Submitted& submitted) {
  const CopyCommand& command = submitted.command;
  TimePoint ready_at = submitted.at;
  if (timeline_.reached() < command.after) {
    if (faults_.ignore_fences) {
      unfenced_.fetch_add(1, std::memory_order_release);
    } else {
      if (!timeline_.wait_for(command.after)) return std::nullopt;
      ready_at = std::chrono::steady_clock::now();
    }
  }
  const Bytes each{memories_.of(command).range_of(command.layers).size};
  const LinkTurn turn = stream.link.next(each * block_count(command.runs));
  if (turn.stalled) stream.stalled.fetch_add(1, std::memory_order_release);
  if (turn.held == Duration{}) {
    stream.began = std::chrono::steady_clock::now();
    return turn;
  }
  // Count from when the link became free, not from now, so that a thread that wakes up late does not slow the link down.
  stream.began = std::max(stream.link_free_at, ready_at);
  stream.link_free_at = stream.began + turn.held;
  if (!timeline_.wait_until(stream.link_free_at)) return std::nullopt;
  return turn;
}

bool EmulatedDevice::execute(Stream& stream, const CopyCommand& command, const LinkTurn& turn) {
  const SlotMemory& memory = memories_.of(command);
  const auto ended = [&](ErrorCode error) {
    return CopyDone{command.token, error, std::chrono::steady_clock::now() - stream.began};
  };
  if (turn.fails) {
    const SlotRun& first = command.runs.front();
    const ByteRange range = memory.range_of(command.layers);
    memory.copy_part(command.direction, {first.source, first.destination}, range.begin, range.size / 2);
    stream.failed.fetch_add(1, std::memory_order_release);
    stream.done.push(ended(Errc::io_failed));
    return true;
  }
  if (command.direction == Direction::swap_in && is_nth(turn.number, faults_.late_every)) {
    late_.fetch_add(1, std::memory_order_release);
    stream.done.push(ended({}));
    if (!timeline_.wait_until(std::chrono::steady_clock::now() + faults_.late_by)) return false;
    memory.copy(command);
    late_landed_.fetch_add(1, std::memory_order_release);
    return true;
  }
  memory.copy(command);
  if (command.direction == Direction::swap_out && faults_.flip_every > 0) flip_bits(stream, command);
  stream.done.push(ended({}));
  return true;
}

void EmulatedDevice::flip_bits(Stream& stream, const CopyCommand& command) {
  const ByteRange range = memories_.of(command).range_of(command.layers);
  for (const SlotRun& run : command.runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const std::uint64_t number = ++stream.blocks;
      if (!is_nth(number, faults_.flip_every)) continue;
      // Choose another place in each block, so that a verification that looks at only one place does not pass.
      const std::span<std::byte> block = memories_.of(command).host_block(SlotId{run.destination.value() + i});
      block[range.begin + number * 7919 % range.size] ^= std::byte{1} << (number % 8);
      flipped_.fetch_add(1, std::memory_order_release);
    }
  }
}

}  // namespace terrace
