#include "radix/keys/key_lanes.hpp"

#include "base/random.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace terrace {
namespace {

std::vector<TokenId> draw_tokens(Random& random, std::size_t n) {
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(150'000));
  return tokens;
}

/// Chains of any number, length and block size, some with items, in several calls: each gets the keys that it would by itself.
TEST(KeyLanes, make_the_keys_that_each_chain_would_make_by_itself) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  const std::string digests = "abcdefghijklmnopqrstuvwxyz";
  KeyLanes lanes;
  for (int round = 0; round < 300; ++round) {
    std::vector<KeyChain> together;
    std::vector<KeyChain> alone;
    const std::uint64_t chains = random.below(7);
    for (std::uint64_t i = 0; i < chains; ++i) {
      BlockKey root;
      root.bytes[0] = static_cast<std::byte>(i);
      constexpr std::array<std::uint32_t, 6> sizes{1, 3, 16, 16, 64, 300};
      const std::uint32_t block_tokens = sizes[random.below(sizes.size())];
      together.emplace_back(root, block_tokens);
      alone.emplace_back(root, block_tokens);
      while (random.chance(0.5)) {
        const auto digest = std::as_bytes(std::span{digests}.subspan(random.below(26), 1));
        const PromptItem item{ItemKind::media, random.below(200), random.between(1, 200), digest};
        ASSERT_TRUE(together.back().add_items({&item, 1}));
        ASSERT_TRUE(alone.back().add_items({&item, 1}));
      }
    }
    for (int call = 0; call < 3; ++call) {
      std::vector<std::vector<TokenId>> tokens;
      std::vector<KeyLanes::Append> appends;
      for (std::size_t i = 0; i < together.size(); ++i) tokens.push_back(draw_tokens(random, random.below(400)));
      for (std::size_t i = 0; i < together.size(); ++i) appends.push_back({&together[i], tokens[i]});
      lanes.append_all(appends);
      for (std::size_t i = 0; i < together.size(); ++i) alone[i].append(tokens[i]);
    }
    for (std::size_t i = 0; i < together.size(); ++i) {
      ASSERT_TRUE(std::ranges::equal(together[i].keys(), alone[i].keys())) << "round " << round << ", chain " << i;
      ASSERT_EQ(together[i].tokens_waiting(), alone[i].tokens_waiting());
    }
  }
}

TEST(KeyLanes, match_a_golden_vector) {
  // The first block of docs/block-keys.md, in both lanes.
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span{text}); };
  const BlockKey root = root_key({bytes("model"), bytes("geometry"), "adapter", "salt", 7});
  std::array<KeyChain, 2> chains{KeyChain{root, 4}, KeyChain{root, 4}};
  const std::array<TokenId, 4> tokens{1, 2, 3, 4};
  KeyLanes{}.append_all(std::array<KeyLanes::Append, 2>{{{&chains[0], tokens}, {&chains[1], tokens}}});
  for (const KeyChain& chain : chains) {
    EXPECT_EQ(to_hex(chain.keys()[0]), "4929c89a466645e43e39779475b4e4ffa22a7e5971b4f03854169f64f289159b");
  }
}

TEST(KeyLanes, have_nothing_to_do_with_nothing) {
  KeyLanes lanes;
  lanes.append_all({});
  KeyChain chain{{}, 16};
  lanes.append_all(std::array<KeyLanes::Append, 1>{{{&chain, {}}}});
  EXPECT_TRUE(chain.keys().empty());
}

}  // namespace
}  // namespace terrace
