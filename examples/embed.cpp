// What it takes to embed the cache in its confined mode: no event loop, no thread of the caller's. README.md shows the part
// between the marks as it is here; tests/house/house_test.cpp sees to that.

#include "radix/keys/block_keys.hpp"
#include "runtime/system/cache_system.hpp"

#include <boost/system/system_error.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

using namespace terrace;

constexpr std::uint32_t tokens_per_block = 16;
constexpr Bytes block_bytes = KiB * 64;

/// The model: a block's KV is its number, over and over.
void compute(BlockAccess& blocks, SlotId slot, std::size_t number) {
  std::vector<std::byte> scratch(count(block_bytes));
  std::ranges::fill(blocks.write_target(slot, scratch), static_cast<std::byte>(number));
  blocks.written(slot, scratch);
}
bool every_hit_was_right = true;
void attend(BlockAccess& blocks, SlotId slot, std::size_t number) {
  std::vector<std::byte> scratch(count(block_bytes));
  const auto kv = blocks.read(slot, scratch);
  every_hit_was_right &= std::ranges::all_of(kv, [&](std::byte b) { return b == static_cast<std::byte>(number); });
}

void stop_on_error(std::span<const RequestEvent> events) {
  for (const RequestEvent& event : events) {
    if (event.error) throw boost::system::system_error{event.error};
  }
}

// README: from here
std::size_t serve(CacheSystem& stack, RequestId id, const std::vector<TokenId>& prompt) {
  KeyChain chain{root_key({}), tokens_per_block};  // in earnest, the root names model, adapter and tenant
  chain.append(prompt);
  AcquireRequest wanted;
  wanted.id = id;
  wanted.keys = chain.keys();  // of the full blocks; one that is filled in part needs its slot, too
  wanted.blocks = static_cast<std::uint32_t>((prompt.size() + tokens_per_block - 1) / tokens_per_block);

  Cache& cache = stack.cache();
  Lease lease = cache.acquire(wanted).value();                    // all of it, or an error that says why
  while (cache.state(lease) == RequestState::waiting) stop_on_error(cache.poll());  // what is cached below comes up meanwhile
  const std::span<const SlotId> table = cache.block_table(lease).value();
  const std::size_t hits = cache.hit_tiers(lease)->size();
  const Fence done = stack.device().launch([hits, slots = std::vector(table.begin(), table.end())](BlockAccess& blocks) {
    for (std::size_t i = 0; i < hits; ++i) attend(blocks, slots[i], i);
    for (std::size_t i = hits; i < slots.size(); ++i) compute(blocks, slots[i], i);
  });
  lease.used_until(done);                                         // it may end now, also by an exception
  (void)cache.commit(lease, chain.keys(), done).value();          // shared from now on; copies of them wait for `done`
  return hits;                                                    // its end frees the blocks, once compute is through with them
}
// README: to here

}  // namespace

int main() {
  CacheSystemOptions options;
  options.block_bytes = block_bytes;
  options.device_blocks = 16;
  options.host_blocks = 64;
  options.storage = MemoryStorage{MiB * 64};  // or FileStorage{"/var/cache/kv", GiB * 100}, which outlives the process
  options.write_policy = WritePolicy::write_through;
  CacheSystem stack{options};

  const std::vector<TokenId> prompt(200, 42);
  const std::vector<TokenId> other(250, 43);
  const std::size_t first = serve(stack, RequestId{1}, prompt);
  const std::size_t second = serve(stack, RequestId{2}, prompt);
  (void)serve(stack, RequestId{3}, other);  // wants every slot of the device: the prompt's blocks go down to the host
  const std::size_t third = serve(stack, RequestId{4}, prompt);
  std::printf("of %zu full blocks %zu, %zu and %zu were hits\n", prompt.size() / tokens_per_block, first, second, third);

  const Fence last = stack.device().launch([](BlockAccess&) {});
  while (stack.device().reached() < last) stop_on_error(stack.cache().poll());
  stack.cache().drain();
  return first == 0 && second == 12 && third == 12 && every_hit_was_right ? 0 : 1;
}
