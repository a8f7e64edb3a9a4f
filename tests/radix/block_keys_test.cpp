#include "radix/block_keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace terrace {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span{text}); }

BlockKey example_root() {
  RootFields fields;
  fields.model_digest = bytes("model");
  fields.fingerprint = bytes("geometry");
  fields.adapter = "adapter";
  fields.tenant_salt = "salt";
  fields.weight_epoch = 7;
  return root_key(fields);
}

std::vector<TokenId> count_from(TokenId first, std::size_t n) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// The vectors of docs/block-keys.md, computed there by another program. They never change within a format version.
TEST(BlockKeys, match_the_golden_vectors) {
  EXPECT_EQ(to_hex(example_root()), "0ec6346ff43574d49d6b26b580577fd9d0b9752781b62aad2fe194e555f0e4d7");
  RootFields bare;
  EXPECT_EQ(to_hex(root_key(bare)), "7c562c6cba8c892252ace36f63fe7dfcf2d4105fb4f4c3f44e821a3a31c2c820");

  KeyChain chain{example_root(), 4};
  chain.append(count_from(1, 4));
  EXPECT_EQ(to_hex(chain.keys()[0]), "9df569f9b20ffa36c549000f18a9c357ed0c9e33adacc2d480880f8b7045c9b1");
  const std::array<ExtraKey, 2> extra{
      {{ExtraKind::media, bytes("image"), 2}, {ExtraKind::prompt_embedding, bytes("embedding"), 0}}};
  ASSERT_TRUE(chain.append_block(count_from(5, 4), extra).has_value());
  EXPECT_EQ(to_hex(chain.keys()[1]), "c8ddb09503a133752d6280f3de70ecd1ac1a5230cbf08d0b05b039dbc5f5b466");
  ASSERT_TRUE(chain.append_opaque(bytes("engine's own")).has_value());
  EXPECT_EQ(to_hex(chain.keys()[2]), "546644b8817d21d2a74df522c79ec03a969feba6176729629f7cca6e86676984");
}

TEST(BlockKeys, of_a_prompt_with_items_match_the_golden_vectors) {
  KeyChain chain{example_root(), 4};
  const std::array<PromptItem, 3> items{{{ItemKind::media, 2, 7, bytes("image")},
                                         {ItemKind::prompt_embedding, 5, 2, bytes("embeddings")},
                                         {ItemKind::media, 2, 2, bytes("a sound")}}};
  ASSERT_TRUE(chain.add_items(items).has_value());
  chain.append(count_from(1, 12));
  ASSERT_EQ(chain.keys().size(), 3U);
  EXPECT_EQ(to_hex(chain.keys()[0]), "95f3af64dd86eb15c7c0dcf114ba58f7e9cfea1785d715e75ed7cbeab3675b54");
  EXPECT_EQ(to_hex(chain.keys()[1]), "4652d0676b171254b67dae9e04f28c8ffb733ea2ef6c180d05eb4388b5bdbef2");
  EXPECT_EQ(to_hex(chain.keys()[2]), "e3aa3252adac68f684df4c10b1618647d0093860eebb76020fb252cf3b57251d");
}

TEST(BlockKeys, of_every_optional_field_match_the_golden_vectors) {
  RootFields fields;
  fields.model_digest = bytes("model");
  fields.fingerprint = bytes("geometry");
  fields.weight_epoch = 7;
  EXPECT_EQ(to_hex(root_key(fields)), "05173e65a6065e79d4bd279a6ac20c674c5b7e1e40626cccad9bce0a0e14b6b3");
  fields.tenant_salt = "adapter";
  EXPECT_EQ(to_hex(root_key(fields)), "b6313050da6d562d047725d7b1f113670bd721b0d4541b8d56566e7537a67e2a");
  fields.tenant_salt.reset();
  fields.adapter = "";
  EXPECT_EQ(to_hex(root_key(fields)), "cf01d0a5eeaf82aa715142d2a33920f653ec50c34b812e46a3b53004ee7a8ca2");

  KeyChain chain{example_root(), 4};
  const std::array<ExtraKey, 1> extra{{{ExtraKind::other, bytes("engine's word"), 0}}};
  ASSERT_TRUE(chain.append_block(count_from(1, 4), extra).has_value());
  EXPECT_EQ(to_hex(chain.keys()[0]), "3cf70d901da31107c39a21c85c1890e43f26063da5f1bc817bc8e240f0cbb75a");
}

TEST(BlockKeys, do_not_depend_on_how_tokens_arrive) {
  const std::vector<TokenId> tokens = count_from(100, 67);
  KeyChain at_once{example_root(), 16};
  at_once.append(tokens);
  KeyChain in_pieces{example_root(), 16};
  std::size_t at = 0;
  for (std::size_t piece = 1; at < tokens.size(); ++piece) {
    const std::size_t n = std::min(piece, tokens.size() - at);
    in_pieces.append(std::span{tokens}.subspan(at, n));
    at += n;
  }
  ASSERT_EQ(at_once.keys().size(), 4U);
  EXPECT_EQ(at_once.tokens_waiting(), 3U);
  EXPECT_EQ(in_pieces.tokens_waiting(), 3U);
  EXPECT_TRUE(std::ranges::equal(at_once.keys(), in_pieces.keys()));
}

TEST(BlockKeys, change_with_every_field_and_with_where_one_field_ends) {
  std::set<BlockKey> seen;
  const auto add = [&](const BlockKey& key) { EXPECT_TRUE(seen.insert(key).second) << to_hex(key); };
  const auto root = [](std::string_view model, std::string_view print, std::optional<std::string_view> adapter,
                       std::optional<std::string_view> salt, std::uint64_t epoch) {
    return root_key({bytes(model), bytes(print), adapter, salt, epoch});
  };
  add(root("ab", "c", std::nullopt, std::nullopt, 0));
  add(root("a", "bc", std::nullopt, std::nullopt, 0));   // boundary shifted
  add(root("ab", "c", "", std::nullopt, 0));              // empty is not absent
  add(root("ab", "c", std::nullopt, "", 0));
  add(root("ab", "c", "x", std::nullopt, 0));             // an adapter named like a salt
  add(root("ab", "c", std::nullopt, "x", 0));
  add(root("ab", "c", "x", "x", 0));
  add(root("ab", "c", "x", "x", 1));

  const auto block = [&](std::vector<TokenId> tokens, std::vector<ExtraKey> extra) {
    KeyChain chain{example_root(), static_cast<std::uint32_t>(tokens.size())};
    EXPECT_TRUE(chain.append_block(tokens, extra).has_value());
    return chain.keys()[0];
  };
  add(block({1, 2}, {}));
  add(block({2, 1}, {}));
  add(block({1, 2, 0}, {}));
  add(block({1, 2}, {{ExtraKind::media, bytes("m"), 0}}));
  add(block({1, 2}, {{ExtraKind::media, bytes("m"), 1}}));
  add(block({1, 2}, {{ExtraKind::prompt_embedding, bytes("m"), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes("m"), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes("m"), 0}, {ExtraKind::other, bytes(""), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes("m"), 0}, {ExtraKind::other, bytes("n"), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes("n"), 0}, {ExtraKind::other, bytes("m"), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes("mn"), 0}}));

  // The engine's own name never collides with tokens of the same bytes.
  KeyChain named{example_root(), 2};
  const std::array<TokenId, 2> same{1, 2};
  ASSERT_TRUE(named.append_opaque(std::as_bytes(std::span{same})).has_value());
  add(named.keys()[0]);
}

TEST(BlockKeys, of_a_block_depend_on_everything_before_it) {
  KeyChain a{example_root(), 2};
  KeyChain b{example_root(), 2};
  a.append(count_from(1, 6));
  b.append(std::array<TokenId, 6>{9, 2, 3, 4, 5, 6});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(a.keys()[i], b.keys()[i]);
}

TEST(BlockKeys, refuse_whole_blocks_while_tokens_wait) {
  KeyChain chain{example_root(), 4};
  chain.append(count_from(1, 3));
  EXPECT_EQ(chain.append_block(count_from(1, 4), {}).error(), Errc::invalid_argument);
  EXPECT_EQ(chain.append_opaque(bytes("x")).error(), Errc::invalid_argument);
  EXPECT_EQ(chain.tokens_waiting(), 3U);
  chain.append(count_from(4, 1));
  EXPECT_EQ(chain.append_block(count_from(1, 3), {}).error(), Errc::invalid_argument);
  EXPECT_EQ(chain.keys().size(), 1U);
}

TEST(BlockKeys, read_back_from_hexadecimal) {
  const BlockKey key = example_root();
  EXPECT_EQ(parse_block_key(to_hex(key)).value(), key);
  EXPECT_FALSE(parse_block_key("12").has_value());
  EXPECT_FALSE(parse_block_key(std::string(64, 'g')).has_value());
}

}  // namespace
}  // namespace terrace
