#include "lab/offload/offload_rig.hpp"

#include "lab/rounds.hpp"
#include "lab/storage/storage_ground.hpp"
#include "tools/numbered_key.hpp"

#include <fmt/format.h>

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace terrace::tools {
namespace {

CacheSystemOptions options_of(const OffloadShape& shape, const AlignedBuffer& device_memory) {
  CacheSystemOptions options;
  const std::uint64_t block = count(shape.block_bytes);
  const DeviceRegion region{reinterpret_cast<std::uintptr_t>(device_memory.data()), block, block, 0};
  RankOptions rank{.device = InstantGpu{}, .regions = {{region}}};
  if (shape.device == OffloadDevice::emulated) rank.device = EmulatedGpu{};
  options.ranks = {rank};
  std::uint32_t host_blocks = shape.blocks * 2;
  if (shape.home == OffloadHome::storage) {
    host_blocks = std::max(shape.blocks / 4, keys_a_question);
    options.storage = MemoryStorage{.capacity = shape.block_bytes * (std::uint64_t{shape.blocks} * 2)};
    options.write_policy = WritePolicy::write_through;
  }
  options.pools = {{.block_bytes = shape.block_bytes, .device_blocks = Blocks{shape.blocks}, .host_blocks = Blocks{host_blocks}}};
  options.engine_owns_slots = true;
  options.key_order = shape.key_order;
  options.loads = LoadPolicy::always;
  return options;
}

}  // namespace

OffloadRig::OffloadRig(const OffloadShape& shape)
    : shape_{shape},
      device_memory_{noise(count(shape.block_bytes) * shape.blocks)},
      plain_memory_{count(shape.block_bytes) * shape.blocks},
      in_flight_max_{shape.home == OffloadHome::storage ? keys_a_question : 1024} {
  for (const std::uint32_t n : scattered_order(shape.blocks)) slots_.emplace_back(n);
  marks_.resize(shape.blocks);
  for (std::uint32_t n = 0; n < shape.blocks; ++n) std::memcpy(&marks_[n], slot(n).data(), sizeof marks_[n]);
  system_ = std::make_unique<CacheSystem>(options_of(shape, device_memory_));
  offload_ = std::make_unique<OffloadCache>(system_->cache(), shape.limits);
  name_new_blocks();
}

std::span<std::byte> OffloadRig::slot(std::uint32_t n) const {
  const std::uint64_t block = count(shape_.block_bytes);
  return device_memory_.span(n * block, block);
}

OffloadOrder OffloadRig::order(std::uint32_t n) const {
  OffloadOrder order;
  order.id = OffloadJobId{n};
  const std::size_t first = std::size_t{n} * keys_a_question;
  order.keys = std::span{keys_}.subspan(first, keys_a_question);
  order.slots = std::span{slots_}.subspan(first, keys_a_question);
  return order;
}

void OffloadRig::name_new_blocks() {
  keys_.clear();
  for (std::uint32_t n = 0; n < shape_.blocks; ++n) keys_.push_back(numbered_key(++next_key_));
}

void OffloadRig::wait() const {
  constexpr int a_while_ms = 100;
  if (shape_.device == OffloadDevice::instant) return;  // it wakes nobody
  pollfd descriptor{offload_->wake_fd(), POLLIN, 0};
  ::poll(&descriptor, 1, a_while_ms);
}

std::uint32_t OffloadRig::collect() {
  std::uint32_t ended = 0;
  for (const OffloadEvent& event : offload_->poll()) {
    if (event.kind != OffloadEvent::Kind::ended) continue;
    if (event.error) {
      throw std::runtime_error{fmt::format("{} blocks of an order were not moved: {}", event.failed, event.error.message())};
    }
    ++ended;
  }
  return ended;
}

bool OffloadRig::has_room(OffloadWay way) const {
  // A host slot is not free again before storage has its block.
  if (way == OffloadWay::store && shape_.home == OffloadHome::storage && offload_->has_pending_work()) return false;
  return offload_->blocks_in_flight() + keys_a_question <= in_flight_max_;
}

double OffloadRig::move(OffloadWay way) {
  const std::uint32_t orders = shape_.blocks / keys_a_question;
  return seconds_of([&] {
    std::uint32_t begun = 0;
    std::uint32_t ended = 0;
    while (ended < orders) {
      while (begun < orders && has_room(way)) {
        const OffloadOrder next = order(begun++);
        const Result<void> accepted = way == OffloadWay::store ? offload_->store(next) : offload_->load(next);
        if (!accepted) throw std::runtime_error{"an order was refused: " + accepted.error().message()};
      }
      const std::uint32_t now = collect();
      ended += now;
      if (now == 0) wait();
    }
  });
}

double OffloadRig::copy(OffloadWay way) {
  return seconds_of([&] {
    const std::size_t block = count(shape_.block_bytes);
    for (std::uint32_t n = 0; n < shape_.blocks; ++n) {
      std::byte* const plain = plain_memory_.data() + n * block;
      std::byte* const device = slot(slots_[n].value()).data();
      if (way == OffloadWay::store) std::memcpy(plain, device, block);
      else std::memcpy(device, plain, block);
    }
  });
}

void OffloadRig::settle() {
  while (offload_->has_pending_work()) {
    if (collect() == 0) wait();
  }
}

void OffloadRig::overwrite() {
  for (std::uint32_t n = 0; n < shape_.blocks; ++n) std::memset(slot(n).data(), 0, sizeof(std::uint64_t));
}

void OffloadRig::check() const {
  for (std::uint32_t n = 0; n < shape_.blocks; ++n) {
    if (std::memcmp(slot(n).data(), &marks_[n], sizeof marks_[n]) != 0) throw std::runtime_error{"a load brought wrong bytes"};
  }
}

double OffloadRig::refuse(std::uint32_t orders) {
  const OffloadOrder same = order(0);
  std::uint32_t refused = 0;
  const double seconds = seconds_of([&] {
    for (std::uint32_t n = 0; n < orders; ++n) {
      const Result<void> accepted = offload_->load(same);
      if (!accepted && accepted.error() == Errc::refused) ++refused;
    }
  });
  if (refused != orders) throw std::runtime_error{"an order above the bound was not refused"};
  return seconds;
}

}  // namespace terrace::tools
