// The cache in confined mode: without an event loop, and without a thread of the caller. Every hit is compared.

#include <terrace/keys.hpp>
#include <terrace/system.hpp>

#include <boost/system/system_error.hpp>

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

namespace {

using namespace terrace;

constexpr std::uint32_t tokens_per_block = 16;
constexpr Bytes block_bytes = KiB * 64;

/// The model of this example: the KV of a block is its number in every byte.
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

/// A turn of a conversation. The conversation keeps its chain of keys, so that a turn pays for its new tokens only.
std::size_t serve(CacheSystem& system, RequestId id, KeyChain& conversation, std::span<const TokenId> new_tokens) {
  // Each full block of tokens gets a key.
  conversation.append(new_tokens);
  AcquireRequest wanted;
  wanted.id = id;
  wanted.keys = conversation.keys();
  // The last block may be filled in part. It has no key, but it needs a slot.
  const std::size_t partial = conversation.tokens_waiting() > 0 ? 1 : 0;
  wanted.units = HashUnits{static_cast<std::uint32_t>(wanted.keys.size() + partial)};

  // The request gets all that it needs, or an error that says why not. While it waits, blocks are copied up from the tiers below.
  Cache& cache = system.cache();
  Lease lease = cache.acquire(wanted).value();
  while (cache.state(lease) == RequestState::waiting) stop_on_error(cache.poll());
  const std::span<const SlotId> table = cache.block_table(lease).value();
  const std::size_t hits = cache.hit_sources(lease)->size();

  // The step reads the blocks that were found, and computes the others.
  const Fence done = system.device().launch([hits, slots = std::vector(table.begin(), table.end())](BlockAccess& blocks) {
    for (std::size_t i = 0; i < hits; ++i) attend(blocks, slots[i], i);
    for (std::size_t i = hits; i < slots.size(); ++i) compute(blocks, slots[i], i);
  });
  // The lease may end at any time from now on. Whatever is copied into its slots then waits for `done`.
  lease.used_until(done);
  // The computed blocks are shared from now on. Copies of them wait for `done`.
  (void)cache.commit(lease, conversation.keys(), done).value();
  return hits;
}

}  // namespace

int main() {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = block_bytes, .device_blocks = 16, .host_blocks = 64}};
  // FileStorage{.directories = {"/var/cache/kv"}, .capacity = GiB * 100} would outlive the process.
  options.storage = MemoryStorage{MiB * 64};
  options.write_policy = WritePolicy::write_through;
  CacheSystem system{options};

  // A real root key names model, adapter and tenant.
  KeyChain conversation{root_key({}), tokens_per_block};
  KeyChain other{root_key({}), tokens_per_block};
  const std::size_t first = serve(system, RequestId{1}, conversation, std::vector<TokenId>(200, 42));
  const std::size_t second = serve(system, RequestId{2}, conversation, std::vector<TokenId>(40, 43));
  // The other conversation needs every slot of the device, so the blocks of the first one are swapped out to the host.
  (void)serve(system, RequestId{3}, other, std::vector<TokenId>(250, 44));
  const std::size_t third = serve(system, RequestId{4}, conversation, std::vector<TokenId>(16, 45));
  std::printf("hits of the three turns: %zu, %zu and %zu blocks of %u tokens\n", first, second, third, tokens_per_block);

  const Fence last = system.device().launch([](BlockAccess&) {});
  while (system.device().reached() < last) stop_on_error(system.cache().poll());
  system.cache().drain();
  return first == 0 && second == 12 && third == 15 && every_hit_was_right ? 0 : 1;
}
