#include "terrace/host_memory.hpp"
#include "terrace/tier_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace terrace {
namespace {

RegionNonce nonce_of(const std::string& hex) {
  RegionNonce nonce{};
  for (std::size_t i = 0; i < nonce.size(); ++i) nonce[i] = std::byte(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return nonce;
}

/// Joins by name, adds 1 to each byte of row 1, and ends.
int join(const std::string& directory, const std::string& name, const std::string& nonce) {
  const SharedRegion region = SharedRegion::join(name, nonce_of(nonce), {.rows = 4, .row_bytes = Bytes{5000}}, directory);
  for (std::byte& byte : region.rows().row(1)) byte = std::byte(static_cast<unsigned>(byte) + 1);
  return region.creator_lives() ? 0 : 3;
}

/// Creates a region, says so, and waits to be killed.
int create(const std::string& directory, const std::string& name) {
  const SharedRegion region = SharedRegion::create(name, {.rows = 4, .row_bytes = Bytes{5000}}, MemoryCheck::yes, directory);
  std::puts("ready");
  std::fflush(stdout);
  while (true) ::pause();
}

/// Stores blocks 0, 1, ... and prints the number of those that are durable after each flush, until it is killed.
int store(const std::string& directory) {
  TierStoreOptions options;
  options.directories = {directory};
  options.capacity = MiB * 8;
  options.block_bytes = Bytes{8192};
  options.key_namespace = "crash";
  options.flush_interval = {};
  TierStore store{options};
  const PrivateRegion memory{1, Bytes{8192}, MemoryCheck::no};
  const HostRegionId region = store.register_region(memory.rows()).value();
  std::vector<BatchResult> results;
  const auto wait = [&] {
    results.clear();
    while (store.poll(results) == 0) ::usleep(50);
    return results.front().errors.front();
  };
  for (std::uint32_t n = 0;; ++n) {
    const std::array keys{store.key(std::as_bytes(std::span{&n, 1}))};
    const std::array<std::uint32_t, 1> rows{0};
    std::ranges::fill(memory.rows().row(0), std::byte(n * 7 + 1));
    if (!store.submit_put({.id = BatchId{1}, .keys = keys, .region = region, .rows = rows}) || wait()) return 4;
    if (!store.submit_flush(BatchId{1}) || wait()) return 5;
    std::printf("%u\n", n + 1);
    std::fflush(stdout);
  }
}

/// Puts blocks `first`, first + 1, and so on, and clears or removes them, some while their puts are under way, until it is
/// killed. It prints "kept N M" when the blocks from N to M - 1 are durable, and "gone N M" when they were erased.
int erase(const std::string& directory, std::uint32_t first, IoChoice io) {
  constexpr std::uint32_t blocks = 48;
  TierStoreOptions options;
  options.directories = {directory};
  options.capacity = MiB * 2;
  options.block_bytes = Bytes{8192};
  options.key_namespace = "erase";
  options.flush_interval = {};
  options.io = io;
  TierStore store{options};
  const PrivateRegion memory{blocks, Bytes{8192}, MemoryCheck::no};
  const HostRegionId region = store.register_region(memory.rows()).value();
  std::array<std::uint32_t, blocks> rows{};
  std::iota(rows.begin(), rows.end(), 0);
  std::mt19937 random{first};
  std::vector<BatchResult> results;
  const auto wait = [&] {
    results.clear();
    while (store.poll(results) == 0) ::usleep(20);
    return results.front();
  };
  for (std::uint32_t n = first;; n += blocks) {
    std::vector<BlockKey> keys;
    for (std::uint32_t i = n; i < n + blocks; ++i) keys.push_back(store.key(std::as_bytes(std::span{&i, 1})));
    if (!store.submit_put({.id = BatchId{1}, .keys = keys, .region = region, .rows = rows})) return 4;
    const bool overtakes = random() % 2 == 0;
    if (!overtakes) {
      if (wait().succeeded != blocks) return 5;
      if (!store.submit_flush(BatchId{2}) || wait().errors.front()) return 6;
      std::printf("kept %u %u\n", n, n + blocks);
      std::fflush(stdout);
    }
    const std::uint32_t removed = random() % 2 == 0 ? blocks : 1 + random() % (blocks - 1);
    const Result<void> erased = removed == blocks ? store.clear() : store.remove(std::span{keys}.first(removed));
    if (!erased) return 7;
    std::printf("gone %u %u\n", removed == blocks ? 0 : n, n + removed);
    std::fflush(stdout);
    if (!overtakes) continue;
    const std::vector<ErrorCode> errors = wait().errors;
    for (std::uint32_t i = 0; i < blocks; ++i) {
      if (i < removed ? errors[i] != Errc::cancelled : static_cast<bool>(errors[i])) return 8;
    }
  }
}

}  // namespace
}  // namespace terrace

int main(int argc, char** argv) {
  const std::vector<std::string> words{argv + 1, argv + argc};
  try {
    if (words.size() == 4 && words[0] == "join") return terrace::join(words[1], words[2], words[3]);
    if (words.size() == 3 && words[0] == "create") return terrace::create(words[1], words[2]);
    if (words.size() == 2 && words[0] == "store") return terrace::store(words[1]);
    if (words.size() == 4 && words[0] == "erase") {
      return terrace::erase(words[1], static_cast<std::uint32_t>(std::stoul(words[2])),
                            words[3] == "uring" ? terrace::IoChoice::uring : terrace::IoChoice::threads);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 1;
}
