// An engine that allocates the blocks of its GPU itself, over an OffloadCache: it stores four blocks from its own slots, uses the
// slots for something else, and loads the blocks again into other slots. docs/embedding.md explains it.

#include <terrace/keys.hpp>
#include <terrace/offload_cache.hpp>
#include <terrace/system.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string_view>
#include <vector>

namespace {

using namespace terrace;

constexpr Bytes block_bytes = KiB * 64;
constexpr std::uint32_t slots = 8;

/// The KV memory of the engine. An emulated GPU has ordinary memory; a real engine gives addresses of its GPU.
std::vector<std::byte> kv(count(block_bytes) * slots);
std::span<std::byte> block(SlotId slot) { return std::span{kv}.subspan(count(block_bytes) * slot.value(), count(block_bytes)); }

CacheSystemOptions options() {
  CacheSystemOptions options;
  // One part per block: block b begins at base + b * stride.
  const DeviceRegion region{reinterpret_cast<std::uintptr_t>(kv.data()), count(block_bytes), count(block_bytes), 0};
  options.ranks = {RankOptions{.device = EmulatedGpu{}, .regions = {{region}}}};
  options.pools = {{.block_bytes = block_bytes, .device_blocks = slots, .host_blocks = 64}};
  options.engine_owns_slots = true;
  // Every block stands alone. KeyOrder::prefix is for keys that are chained hashes.
  options.key_order = KeyOrder::flat;
  return options;
}

/// Waits for the end of a job, as an event loop does. Returns the number of blocks that were moved.
std::uint32_t wait(OffloadCache& offload, OffloadJobId job) {
  while (true) {
    for (const OffloadEvent& event : offload.poll()) {
      // Each block has its own error. A block that was not loaded is a miss, and the others are used.
      if (event.kind == OffloadEvent::Kind::block && event.error) {
        std::printf("block %u: %s\n", event.block, event.error.message().c_str());
      }
      if (event.kind == OffloadEvent::Kind::ended && event.job == job) return event.moved;
    }
    pollfd descriptor{offload.wake_fd(), POLLIN, 0};
    ::poll(&descriptor, 1, 100);
  }
}

bool serve(OffloadCache& offload) {
  OpaqueKeys key_of{std::as_bytes(std::span{std::string_view{"my model, rank 0 of 1"}})};
  std::vector<BlockKey> keys;
  for (const std::string_view name : {"chunk 0", "chunk 1", "chunk 2", "chunk 3"})
    keys.push_back(key_of(std::as_bytes(std::span{name})));
  const std::array from{SlotId{0}, SlotId{1}, SlotId{2}, SlotId{3}};
  for (const SlotId slot : from) std::ranges::fill(block(slot), static_cast<std::byte>(slot.value() + 10));

  OffloadOrder order;
  order.id = OffloadJobId{1};
  order.keys = keys;
  order.slots = from;  // a slot that a stream still writes needs `order.after`, from Cache::signal
  // The slots belong to the job until the result of their block has come.
  if (!offload.store(order) || wait(offload, order.id) != keys.size()) return false;
  for (const SlotId slot : from) std::ranges::fill(block(slot), std::byte{0});

  // How much of the prefix is there? The question has no side effect; a pin keeps the answer true until the job has ended.
  const std::array into{SlotId{7}, SlotId{6}, SlotId{5}, SlotId{4}};
  order.id = OffloadJobId{2};
  order.slots = into;
  if (offload.leading(keys) != keys.size() || !offload.pin(order.id, keys)) return false;
  if (!offload.load(order) || wait(offload, order.id) != keys.size()) return false;
  bool right = true;
  for (std::size_t i = 0; i < into.size(); ++i) {
    right = right && std::ranges::all_of(block(into[i]), [i](std::byte b) { return b == static_cast<std::byte>(i + 10); });
  }
  std::printf("%zu blocks came back, and they were %s\n", into.size(), right ? "right" : "wrong");
  return right;
}

}  // namespace

int main() {
  try {
    CacheSystem system{options()};
    OffloadCache offload{system.cache()};
    const bool right = serve(offload);
    offload.drain();
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
