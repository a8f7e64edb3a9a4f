// An engine without a GPU that has KV memory and a stream of its own. The stream and the copies of the cache wait for each other,
// and the engine's thread for neither. docs/embedding.md names it.

#include <terrace/emulated_stream.hpp>
#include <terrace/keys.hpp>
#include <terrace/system.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

namespace {

using namespace terrace;

constexpr std::uint32_t blocks = 16, tokens_per_block = 16;
constexpr std::size_t block_bytes = 64 << 10;

/// The memory and the stream. What the stream has seen may be read when it has been synchronized.
struct Engine {
  std::vector<std::byte> kv = std::vector<std::byte>(blocks * block_bytes);
  std::size_t hits = 0;
  std::size_t wrong = 0;
  EmulatedStream stream;  // destroyed first, because its work uses the others

  std::span<std::byte> block(SlotId slot) { return std::span{kv}.subspan(slot.value() * block_bytes, block_bytes); }
  // These stand for kernels: work that is put on the stream, and runs later.
  void compute(SlotId slot, std::byte value) {
    stream.run([this, slot, value] { std::ranges::fill(block(slot), value); });
  }
  void attend(SlotId slot, std::byte value) {
    stream.run([this, slot, value] {
      ++hits;
      wrong += std::ranges::all_of(block(slot), [&](std::byte b) { return b == value; }) ? 0 : 1;
    });
  }
};

void serve(Cache& cache, Engine& engine, RequestId id, const std::vector<TokenId>& prompt) {
  KeyChain chain{root_key({}), tokens_per_block};
  chain.append(prompt);
  AcquireRequest wanted;
  wanted.id = id;
  wanted.keys = chain.keys();
  Lease lease = cache.acquire(wanted).value();

  // Work that is put on the stream after this starts when the hits have arrived. not_ready: their copies have not begun yet.
  Result<void> ordered = cache.await(lease, Cache::all_layers, engine.stream.ref());
  while (!ordered && ordered.error() == Errc::not_ready) {
    pollfd descriptor{cache.wake_fd(), POLLIN, 0};
    ::poll(&descriptor, 1, 1);  // an engine serves other requests here
    (void)cache.poll();
    ordered = cache.await(lease, Cache::all_layers, engine.stream.ref());
  }
  ordered.value();

  const std::span<const SlotId> table = cache.block_table(lease).value();
  const std::size_t hits = cache.hit_sources(lease)->size();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto value = static_cast<std::byte>(prompt[0] + i);
    i < hits ? engine.attend(table[i], value) : engine.compute(table[i], value);
  }
  // Everything that this step does is on the stream now. Copies of its blocks wait for this point.
  const Fence done = cache.signal(engine.stream.ref()).value();
  lease.used_until(done);
  cache.wait(lease).value();  // a load that failed on its way shows here, before anything is shared
  (void)cache.commit(lease, chain.keys(), done).value();
}

}  // namespace

int main() {
  Engine engine;
  const DeviceRegion region{reinterpret_cast<std::uintptr_t>(engine.kv.data()), block_bytes, block_bytes, 0};
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].latency = std::chrono::milliseconds{2};  // a stream that did not wait would read old bytes
  CacheSystemOptions options;
  options.ranks = {RankOptions{.device = gpu, .regions = {{region}}}};
  options.pools = {{.block_bytes = Bytes{block_bytes}, .device_blocks = blocks, .host_blocks = 64}};
  options.loads = LoadPolicy::always;  // a fill takes no time, so it would be faster than to load a block
  CacheSystem system{options};

  const std::vector<TokenId> prompt(std::size_t{12} * tokens_per_block, 10), other(std::size_t{15} * tokens_per_block, 100);
  serve(system.cache(), engine, RequestId{1}, prompt);
  serve(system.cache(), engine, RequestId{2}, other);  // needs nearly every slot: the first blocks go to the host
  serve(system.cache(), engine, RequestId{3}, prompt);
  engine.stream.synchronize();  // only to look at what the stream has seen
  std::printf("of 12 blocks %zu were hits, %zu of them wrong\n", engine.hits, engine.wrong);
  return engine.hits == 12 && engine.wrong == 0 ? 0 : 1;
}
