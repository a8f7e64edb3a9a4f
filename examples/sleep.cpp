// An engine that sleeps: it gives up its GPU memory, and gets other memory when it wakes. Cached blocks come back from storage.
// docs/embedding.md explains it.

#include <terrace/keys.hpp>
#include <terrace/system.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace terrace;

constexpr std::uint32_t tokens_per_block = 16;
constexpr std::uint32_t slots = 16;
constexpr std::size_t block_bytes = 64 << 10;

/// The KV memory of the engine: ordinary memory, which an emulated GPU copies from and to.
using Memory = std::vector<std::byte>;
std::vector<DeviceRegion> regions(const Memory& kv) {
  return {{reinterpret_cast<std::uintptr_t>(kv.data()), block_bytes, block_bytes, 0}};
}

/// Serves a prompt. Returns the number of hits that came from storage and had the right bytes. This engine computes on the host,
/// so compute is done when the calls below are made, and no fence is needed.
std::size_t serve(Cache& cache, Memory& kv, RequestId id, const std::vector<TokenId>& prompt) {
  KeyChain chain{root_key({}), tokens_per_block};
  chain.append(prompt);
  AcquireRequest wanted;
  wanted.id = id;
  wanted.keys = chain.keys();
  wanted.units = HashUnits{static_cast<std::uint32_t>(chain.keys().size())};
  Lease lease = cache.acquire(wanted).value();
  cache.wait(lease).value();
  const std::span<const SlotId> table = cache.block_table(lease).value();
  const std::span<const Source> found = cache.hit_sources(lease).value();
  std::size_t right = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::span block = std::span{kv}.subspan(table[i].value() * block_bytes, block_bytes);
    const auto value = static_cast<std::byte>(prompt.front() + i);
    if (i >= found.size()) {
      std::ranges::fill(block, value);
    } else if (found[i] == Source::storage) {
      right += std::ranges::all_of(block, [value](std::byte b) { return b == value; }) ? 1 : 0;
    }
  }
  (void)cache.commit(lease, chain.keys(), no_longer_used).value();
  cache.release(std::move(lease), no_longer_used);
  return right;
}

void sleep_and_wake(CacheSystem& system, Memory& kv) {
  Cache& cache = system.cache();
  // All requests have been released. The blocks on device and host go to storage, so that they are not lost.
  (void)cache.checkpoint(std::chrono::seconds{30}).value();
  // The cache forgets the blocks on the device and the host, and serves nothing until resume(). The weights will be the same.
  cache.reset({.wait = true, .keep_storage = true, .keep_shared = true}).value();
  while (cache.status() != CacheStatus::cleared) {
    (void)cache.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  cache.drain();
  kv = Memory{};  // asleep: the memory is free for others
  kv = Memory(slots * block_bytes);
  const std::array awake{RankRegions{.rank = 0, .regions = {regions(kv)}}};
  system.relocate(awake).value();
  cache.resume().value();
}

}  // namespace

int main() {
  try {
    Memory kv(slots * block_bytes);
    CacheSystemOptions options;
    options.ranks = {RankOptions{.device = EmulatedGpu{}, .regions = {regions(kv)}}};
    options.pools = {{.block_bytes = Bytes{block_bytes}, .device_blocks = slots, .host_blocks = 64}};
    options.storage = MemoryStorage{MiB * 64};
    options.loads = LoadPolicy::always;  // this model takes no time, so computing a block would be faster than to load it
    CacheSystem system{options};
    const std::vector<TokenId> prompt(std::size_t{12} * tokens_per_block, 42);
    (void)serve(system.cache(), kv, RequestId{1}, prompt);
    sleep_and_wake(system, kv);
    const std::size_t right = serve(system.cache(), kv, RequestId{2}, prompt);
    std::printf("after waking, %zu of 12 blocks came from storage and were right\n", right);
    return right == 12 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
