// The cache in loop mode: requests are coroutines on an executor of Asio. docs/embedding.md explains it.

#include <terrace/async_cache.hpp>
#include <terrace/keys.hpp>
#include <terrace/system.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <thread>
#include <vector>

namespace {

using namespace terrace;

constexpr std::uint32_t tokens_per_block = 16;
constexpr Bytes block_bytes = KiB * 64;
std::atomic<bool> every_hit_was_right{true};

/// The model of this example: each byte of a block's KV is its first token plus the number of the block.
void compute(BlockAccess& blocks, SlotId slot, std::byte value) {
  std::vector<std::byte> scratch(count(block_bytes));
  std::ranges::fill(blocks.write_target(slot, scratch), value);
  blocks.written(slot, scratch);
}
void attend(BlockAccess& blocks, SlotId slot, std::byte value) {
  std::vector<std::byte> scratch(count(block_bytes));
  if (!std::ranges::all_of(blocks.read(slot, scratch), [value](std::byte b) { return b == value; })) every_hit_was_right = false;
}

/// One request. With use_awaitable an error is an exception; asio::as_tuple gives the error code instead.
asio::awaitable<std::size_t> serve(AsyncCache& cache, Device& device, RequestId id, std::vector<TokenId> prompt) {
  KeyChain chain{root_key({}), tokens_per_block};
  chain.append(prompt);
  AcquireRequest wanted;
  wanted.id = id;
  wanted.keys = chain.keys();
  wanted.units = HashUnits{static_cast<std::uint32_t>(chain.keys().size())};

  // Waits in a queue until other requests release enough slots, and then until the blocks that were found have been loaded.
  Grant grant = co_await cache.acquire(wanted, asio::use_awaitable);
  const std::size_t hits = grant.hit_sources.size();
  const Fence done = device.launch([hits, table = grant.table, token = prompt.front()](BlockAccess& blocks) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      (i < hits ? attend : compute)(blocks, table[i], static_cast<std::byte>(token + i));
    }
  });
  // From here on the lease may end at any time, also by an exception.
  grant.lease.used_until(done);
  (void)co_await cache.commit(grant.lease, chain.keys(), done, asio::use_awaitable);
  co_return hits;
}

}  // namespace

int main() {
  try {
    CacheSystemOptions options;
    options.pools = {{.block_bytes = block_bytes, .device_blocks = 16, .host_blocks = 64}};
    options.loads = LoadPolicy::always;  // this model takes no time, so computing a block would be faster than to load it
    CacheSystem system{options};
    asio::thread_pool loop{1};  // Device::launch is called from one thread
    AsyncCache cache{loop.get_executor(), system.cache()};
    const auto begin = [&](std::uint64_t id, TokenId token) {
      const std::vector<TokenId> prompt(std::size_t{12} * tokens_per_block, token);
      return asio::co_spawn(loop, serve(cache, system.device(), RequestId{id}, prompt), asio::use_future);
    };

    // Both do not fit at the same time, so one waits for the other's slots.
    std::future<std::size_t> first = begin(1, 10);
    std::future<std::size_t> second = begin(2, 100);
    const std::size_t misses = first.get() + second.get();
    const std::size_t hits = begin(3, 10).get();
    std::printf("hits: %zu at first, %zu of 12 then\n", misses, hits);

    // The end: no new requests, then no work under way. Only then may `cache` be destroyed.
    cache.stop(asio::use_future).get();
    loop.join();
    const Fence last = system.device().launch([](BlockAccess&) {});
    while (system.device().reached() < last) std::this_thread::yield();
    return misses == 0 && hits == 12 && every_hit_was_right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
