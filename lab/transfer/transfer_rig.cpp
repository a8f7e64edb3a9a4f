#include "lab/transfer/transfer_rig.hpp"

#include "base/check.hpp"
#include "lab/rounds.hpp"
#include "transfer/device/transfer.hpp"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

namespace terrace::tools {
namespace {

constexpr int patience_ms = 60'000;

/// Writes a stamp at both ends of a block, so that a block of which only half was copied is detected.
void write_stamp(std::span<std::byte> block, SlotId slot) {
  const std::uint64_t stamp = 0x7E44'ACE0'0000'0000U + slot.value();
  std::memcpy(block.data(), &stamp, sizeof stamp);
  std::memcpy(block.last(sizeof stamp).data(), &stamp, sizeof stamp);
}

bool has_stamp(std::span<const std::byte> block, SlotId slot) {
  const std::uint64_t stamp = 0x7E44'ACE0'0000'0000U + slot.value();
  return std::memcmp(block.data(), &stamp, sizeof stamp) == 0 &&
         std::memcmp(block.last(sizeof stamp).data(), &stamp, sizeof stamp) == 0;
}

}  // namespace

TransferRig::TransferRig(const TransferBenchOptions& options, Bytes block_bytes, std::uint32_t blocks)
    : blocks_{blocks},
      pieces_{options.pieces},
      host_{2 * blocks + 1, block_bytes},
      device_{make_transfer_device(options, 2 * blocks + 1, host_)},
      transfers_{{.pieces = options.pieces}, *device_.device, clock_, waker_} {}

TransferId TransferRig::submit(Direction direction, Urgency urgency, std::span<const SlotPair> pairs, ByLayer by_layer) {
  Transfer transfer;
  transfer.by_layer = by_layer == ByLayer::yes;
  transfer.id = TransferId{++last_id_};
  transfer.direction = direction;
  transfer.urgency = urgency;
  transfer.runs = spare_runs_.take();
  for (const SlotPair& pair : pairs) append(transfer.runs, {pair.source, pair.destination, 1});
  const TransferId id = transfer.id;
  transfers_.submit(std::move(transfer));
  transfers_.wake_transfers();
  return id;
}

std::span<const TransferEvent> TransferRig::await_events() {
  const auto give_up_at = clock_.now() + std::chrono::milliseconds{patience_ms};
  for (;;) {
    if (clock_.now() >= give_up_at) throw std::runtime_error{"transfer: the device has not answered for a minute"};
    waker_.acknowledge();
    if (!events().empty()) return events_;
    waker_.wait(patience_ms);
  }
}

std::span<const TransferEvent> TransferRig::events() {
  events_.clear();
  const double begin = thread_cpu_seconds();
  transfers_.poll(events_);
  for (TransferEvent& event : events_) {
    TERRACE_CHECK(!event.error || event.error == Errc::cancelled);
    spare_runs_.give(std::move(event.runs));
  }
  collecting_seconds_ += thread_cpu_seconds() - begin;
  return events_;
}

void TransferRig::stamp(Direction direction) {
  const std::uint32_t first = first_slot(direction).value();
  if (direction == Direction::swap_in) {
    for (std::uint32_t i = 0; i < blocks_; ++i) write_stamp(host_.block(SlotId{first + i}), SlotId{first + i});
    return;
  }
  await_compute(device_.device->launch([this, first](BlockAccess& access) {
    std::vector<std::byte> scratch(count(block_bytes()));
    for (std::uint32_t i = 0; i < blocks_; ++i) {
      const SlotId slot{first + i};
      write_stamp(access.write_target(slot, scratch), slot);
      access.written(slot, scratch);
    }
  }));
}

void TransferRig::check_stamps(Direction direction, std::span<const SlotPair> pairs) {
  if (direction == Direction::swap_out) {
    for (const SlotPair& pair : pairs) TERRACE_CHECK(has_stamp(host_.block(pair.destination), pair.source));
    return;
  }
  await_compute(device_.device->launch([this, pairs](BlockAccess& access) {
    std::vector<std::byte> scratch(count(block_bytes()));
    for (const SlotPair& pair : pairs) TERRACE_CHECK(has_stamp(access.read(pair.destination, scratch), pair.source));
  }));
}

void TransferRig::await_compute(Fence point) {
  while (device_.device->reached() < point) std::this_thread::yield();
}

}  // namespace terrace::tools
