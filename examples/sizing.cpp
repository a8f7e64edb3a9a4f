// The options of a cache: block sizes and counts from the shape of a model, everything else from text. The model has two KV cache
// groups. docs/embedding.md explains it.

#include <terrace/config.hpp>
#include <terrace/keys.hpp>
#include <terrace/model_plan.hpp>
#include <terrace/system.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

namespace {

using namespace terrace;

CacheSystemOptions options() {
  Config config;
  // A program calls read_file("/etc/engine.toml"), and then read_environment(environ).
  config.read_text("policy = \"lru\"\nloads = \"always\"\n[storage]\nwhere = \"none\"\n", "engine.toml");
  CacheSystemOptions options = config.options();

  ModelShape model;
  model.layers = {
      {.kind = GroupKind::full, .layers = 2, .block_tokens = 16, .kv_heads = 8, .head_size = 128},
      {.kind = GroupKind::sliding_window, .layers = 2, .block_tokens = 16, .span_tokens = 256, .kv_heads = 8, .head_size = 128}};
  const TypicalSequence typical{.tokens = 1024, .chunk_tokens = 256};
  const GroupPlan plan = plan_groups(model, typical, {.device = MiB * 64, .host = MiB * 128});
  std::printf("%u typical sequences fit the device\n", plan.sequences);
  plan.apply_to(options);  // groups, pools, number of ranks
  return options;
}

/// Serves a prompt in both groups. Returns the number of blocks of hits that had the right bytes.
std::size_t serve(CacheSystem& system, const std::vector<GroupConfig>& groups, RequestId id, const std::vector<TokenId>& prompt) {
  // With several groups, keys and blocks of a request are counted in hash units.
  KeyChain chain{root_key({}), hash_unit(groups)};
  chain.append(prompt);
  AcquireRequest wanted;
  wanted.id = id;
  wanted.keys = chain.keys();
  wanted.units = HashUnits{static_cast<std::uint32_t>(chain.keys().size())};
  Cache& cache = system.cache();
  Lease lease = cache.acquire(wanted).value();
  cache.wait(lease).value();
  const std::size_t hits = cache.hit_sources(lease)->size();

  std::size_t right = 0;
  Fence done;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    // Each group has a block table of its own. Here a block of either group is one hash unit.
    const std::span<const SlotId> slots = cache.block_table(lease, GroupId{static_cast<std::uint16_t>(g)}).value();
    const PoolId pool = groups[g].pool;
    const std::size_t bytes = count(system.device().info().pool(pool).block_bytes);
    done =
        system.device().launch([&right, hits, pool, bytes, g, table = std::vector(slots.begin(), slots.end())](BlockAccess& kv) {
          std::vector<std::byte> scratch(bytes);
          for (std::size_t i = 0; i < table.size(); ++i) {
            const auto value = static_cast<std::byte>(100 * g + i);
            if (i < hits) {
              right += std::ranges::all_of(kv.read(pool, table[i], scratch), [value](std::byte b) { return b == value; }) ? 1 : 0;
            } else {
              std::ranges::fill(kv.write_target(pool, table[i], scratch), value);
              kv.written(pool, table[i], scratch);
            }
          }
        });
  }
  (void)cache.commit(lease, chain.keys(), done).value();
  cache.release(std::move(lease), done);
  while (system.device().reached() < done) (void)cache.poll();  // only because `right` is returned now
  return right;
}

}  // namespace

int main() {
  try {
    const CacheSystemOptions wanted = options();
    CacheSystem system{wanted};
    const std::vector<TokenId> prompt(std::size_t{8} * 16, 42);
    const std::size_t first = serve(system, wanted.groups, RequestId{1}, prompt);
    const std::size_t second = serve(system, wanted.groups, RequestId{2}, prompt);
    std::printf("blocks that were hit: %zu, then %zu\n", first, second);
    return first == 0 && second == 16 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
