// A prompt in all tiers, and after a restart.
#include <terrace/keys.hpp>
#include <terrace/system.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

using namespace terrace;
constexpr std::uint32_t tokens_per_block = 16;
constexpr Bytes block_bytes = KiB * 64;

/// Serves a prompt of 12 blocks of one token. Prints how many of them were found, and where.
void serve(CacheSystem& system, std::uint64_t id, TokenId token) {
  KeyChain chain{root_key({}), tokens_per_block};  // a real root key names model, adapter and tenant
  chain.append(std::vector<TokenId>(std::size_t{12} * tokens_per_block, token));
  Cache& cache = system.cache();
  Lease lease = cache.acquire({.id = RequestId{id}, .keys = chain.keys()}).value();
  cache.wait(lease).value();  // until the blocks that were found are on the device
  const std::span<const Source> found = cache.hit_sources(lease).value();
  const auto from = [&](Source source) { return static_cast<int>(std::ranges::count(found, source)); };
  std::printf("token %u: found on the device %d, in host memory %d, on disk %d\n", token, from(Source::device),
              from(Source::host), from(Source::storage));

  // The engine's step: it reads the blocks that were found, and computes the others.
  const std::span<const SlotId> others = cache.block_table(lease).value().subspan(found.size());
  const Fence done = system.device().launch([slots = std::vector(others.begin(), others.end())](BlockAccess& kv) {
    std::vector<std::byte> scratch(count(block_bytes));
    for (const SlotId slot : slots) {
      std::ranges::fill(kv.write_target(slot, scratch), std::byte{42});
      kv.written(slot, scratch);
    }
  });
  lease.used_until(done);                                 // its slots are used again only after that
  (void)cache.commit(lease, chain.keys(), done).value();  // from now on others find its blocks
}

int main() {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = block_bytes, .device_blocks = 16, .host_blocks = 64}};
  const auto disk = std::filesystem::temp_directory_path() / "terrace-first";
  std::filesystem::remove_all(disk);
  options.storage = FileStorage{.directories = {disk}, .capacity = MiB * 16};
  options.write_policy = WritePolicy::write_through;  // what is computed is also written to the disk
  options.loads = LoadPolicy::always;                 // this model computes nothing, so loading would never be faster
  for (const char* const start : {"first start", "after a restart"}) {
    std::printf("%s\n", start);
    CacheSystem system{options};
    for (std::uint64_t id = 1; const TokenId token : {7U, 7U, 8U, 7U}) serve(system, id++, token);
    (void)system.cache().checkpoint(std::chrono::seconds{30}).value();  // the disk has all of it
  }
}
