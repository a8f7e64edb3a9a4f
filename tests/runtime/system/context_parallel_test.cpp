#include "terrace/keys.hpp"
#include "terrace/system.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace terrace {
namespace {

/// An engine whose ranks share each sequence: rank r computes and keeps the KV of every third pair of tokens. A block of the
/// cache has the tokens of all ranks, and each rank holds its part of the block in the same slot. A token's KV is one byte here.
class ContextParallelEngine {
 public:
  static constexpr std::uint32_t ranks = 3;
  static constexpr std::uint32_t interleave = 2;
  static constexpr std::uint32_t rank_tokens = 4096;  ///< tokens, and bytes, of a block on one rank
  static constexpr std::uint32_t block_tokens = ranks * rank_tokens;
  static constexpr std::uint32_t slots = 4;

  ContextParallelEngine() : system_{options()} {}

  /// Serves a prompt of full blocks, whose bytes are made from their position and `seed`. Returns where its hits came from, after
  /// comparing every byte of them on every rank.
  std::vector<Source> serve(std::uint64_t id, std::uint32_t blocks, std::uint32_t seed) {
    Cache& cache = system_.cache();
    std::vector<TokenId> tokens(std::size_t{blocks} * block_tokens);
    std::iota(tokens.begin(), tokens.end(), seed * 1'000'000);
    KeyChain chain{root_key({}), block_tokens};
    chain.append(tokens);
    Lease lease = cache.acquire({.id = RequestId{id}, .keys = chain.keys()}).value();
    cache.wait(lease).value();
    const std::span<const Source> found = cache.hit_sources(lease).value();
    std::vector<Source> sources{found.begin(), found.end()};
    const std::span<const SlotId> table = cache.block_table(lease).value();
    std::size_t wrong = 0;
    for (std::size_t token = 0; token < tokens.size(); ++token) {
      std::byte& byte = place_of(token, table);
      const auto right = static_cast<std::byte>(tokens[token] * 31 >> 3U);
      if (token / block_tokens >= sources.size()) byte = right;
      else wrong += byte == right ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U);
    static_cast<void>(cache.commit(lease, chain.keys(), Fence{}).value());
    lease.used_until(no_longer_used);
    return sources;
  }

 private:
  CacheSystemOptions options() {
    CacheSystemOptions options;
    options.pools[0].block_bytes = Bytes{block_tokens};
    options.pools[0].device_blocks = slots;
    options.pools[0].host_blocks = 16;
    options.device_reserve_max = 0;
    options.ranks.resize(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      memory_[rank].resize(std::size_t{slots} * rank_tokens);
      options.ranks[rank].regions = {{{reinterpret_cast<std::uintptr_t>(memory_[rank].data()), rank_tokens, rank_tokens, 0}}};
    }
    return options;
  }

  /// The engine's own arithmetic.
  std::byte& place_of(std::size_t token, std::span<const SlotId> table) {
    const std::size_t in_block = token % block_tokens;
    const std::size_t turn = in_block / (interleave * ranks);
    const std::size_t offset = turn * interleave + in_block % interleave;
    const std::size_t slot = table[token / block_tokens].value();
    return memory_[in_block / interleave % ranks][slot * rank_tokens + offset];
  }

  std::array<std::vector<std::byte>, ranks> memory_;
  CacheSystem system_;
};

TEST(ContextParallel, blocks_with_tokens_of_all_ranks_move_and_come_back_on_every_rank) {
  ContextParallelEngine engine;
  EXPECT_TRUE(engine.serve(1, 3, 1).empty());
  EXPECT_EQ(engine.serve(2, 3, 1), (std::vector<Source>(3, Source::device)));
  EXPECT_TRUE(engine.serve(3, 4, 2).empty());
  EXPECT_EQ(engine.serve(4, 3, 1), (std::vector<Source>(3, Source::host))) << "they went to the host, and came back";
  EXPECT_EQ(engine.serve(5, 4, 2).size(), 4U);
}

}  // namespace
}  // namespace terrace
