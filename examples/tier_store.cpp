// An example of a TierStore: an engine that owns its memory stores two blocks under names of its own, and finds them again after
// a restart. docs/design/tier-store.md explains it.

#include <terrace/tier_store.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace terrace;

constexpr Bytes block_bytes = KiB * 64;

/// The memory of the engine. Here the store has no part in making it.
alignas(4096) std::array<std::byte, std::size_t{4} * 65536> engine_memory{};

BlockKey key_of(const TierStore& store, std::string_view name) { return store.key(std::as_bytes(std::span{name})); }

/// Waits for the next result, as an event loop does. The number of batches under way is one here.
BatchResult wait(TierStore& store) {
  std::vector<BatchResult> results;
  while (store.poll(results) == 0) {
    pollfd descriptor{store.wake_fd(), POLLIN, 0};
    ::poll(&descriptor, 1, 100);
  }
  return results.front();
}

bool serve(const TierStoreOptions& options, bool is_first) {
  TierStore store{options};
  const HostRows rows{engine_memory.data(), 4, block_bytes};
  const Result<HostRegionId> region = store.register_region(rows);
  if (!region) return false;
  const std::array keys{key_of(store, "request 7, chunk 0"), key_of(store, "request 7, chunk 1")};

  if (is_first) {
    // Rows 0 and 1 have the blocks.
    std::ranges::fill(rows.row(0), std::byte{10});
    std::ranges::fill(rows.row(1), std::byte{11});
    const std::array<std::uint32_t, 2> from{0, 1};
    if (!store.submit_put({.id = BatchId{1}, .keys = keys, .region = *region, .rows = from})) return false;
    if (wait(store).succeeded != 2) return false;
    // Returns in time even if the disk does not answer. Nothing is left to do for the disk here.
    return store.close(SteadyClock{}.now() + std::chrono::seconds{30}).closed;
  }

  if (store.leading(keys) != 2) return false;
  const std::array<std::uint32_t, 2> into{2, 3};
  if (!store.submit_get({.id = BatchId{1}, .keys = keys, .region = *region, .rows = into})) return false;
  const BatchResult result = wait(store);
  std::printf("%u blocks, %s\n", result.succeeded, to_string(result.bytes).c_str());
  // Each block has its own error code: a damaged one is a miss, and the others are used.
  for (const ErrorCode& error : result.errors) {
    if (error) std::printf("a miss: %s\n", error.message().c_str());
  }
  return result.succeeded == 2 && rows.row(3)[100] == std::byte{11};
}

}  // namespace

int main() {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("terrace-example-" + std::to_string(::getpid()));
  TierStoreOptions options;
  options.directories = {directory};
  options.capacity = MiB * 16;
  options.block_bytes = block_bytes;
  options.key_namespace = "my model, rank 0 of 1";
  bool good = false;
  try {
    good = serve(options, true) && serve(options, false);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::filesystem::remove_all(directory);
  return good ? 0 : 1;
}
