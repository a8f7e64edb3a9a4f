#include "terrace/keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

std::span<const std::byte> bytes_of_text(std::string_view text) { return std::as_bytes(std::span{text}); }

BlockKey example_root() {
  RootFields fields;
  fields.model_digest = bytes_of_text("model");
  fields.fingerprint = bytes_of_text("geometry");
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

// The vectors of docs/block-keys.md, which another program has computed. They never change within a format version.
TEST(BlockKeys, match_the_golden_vectors) {
  EXPECT_EQ(to_hex(example_root()), "cee3fc66810bbcff72932120829381b40ffd12bfd2bb04f767ef50ca7029d2cd");
  RootFields bare;
  EXPECT_EQ(to_hex(root_key(bare)), "d25848f3dab04bd0e3f413d13c98e346edc1593a9fee59a14a1ad04ca8ba25f7");

  KeyChain chain{example_root(), 4};
  chain.append(count_from(1, 4));
  EXPECT_EQ(to_hex(chain.keys()[0]), "4929c89a466645e43e39779475b4e4ffa22a7e5971b4f03854169f64f289159b");
  const std::array<ExtraKey, 2> extra{
      {{ExtraKind::media, bytes_of_text("image"), 2}, {ExtraKind::prompt_embedding, bytes_of_text("embedding"), 0}}};
  ASSERT_TRUE(chain.append_block(count_from(5, 4), extra).has_value());
  EXPECT_EQ(to_hex(chain.keys()[1]), "84d16fd73edc479df5eb63a3126f6d5c1c4d499773baf8e91391aa850a083a62");
  ASSERT_TRUE(chain.append_opaque(bytes_of_text("engine's own")).has_value());
  EXPECT_EQ(to_hex(chain.keys()[2]), "6b38f462fc59d99b0625e91b7e0ea71a284c2e9cb8af759b0bf381ab0f56629f");
}

TEST(BlockKeys, of_a_prompt_with_items_match_the_golden_vectors) {
  KeyChain chain{example_root(), 4};
  const std::array<PromptItem, 3> items{{{ItemKind::media, 2, 7, bytes_of_text("image")},
                                         {ItemKind::prompt_embedding, 5, 2, bytes_of_text("embeddings")},
                                         {ItemKind::media, 2, 2, bytes_of_text("a sound")}}};
  ASSERT_TRUE(chain.add_items(items).has_value());
  chain.append(count_from(1, 12));
  ASSERT_EQ(chain.keys().size(), 3U);
  EXPECT_EQ(to_hex(chain.keys()[0]), "3eb2ad0c0669addacefd783839a6fbe2f1fe9ad825e7fb9b711d8a6924621785");
  EXPECT_EQ(to_hex(chain.keys()[1]), "7b91d9cd1b33ab7944f7f59ecbe2d8738edab20951719e7d6b27e412bac3a887");
  EXPECT_EQ(to_hex(chain.keys()[2]), "7f8388744f30fdd9f3322bd043ec8a795ba6cf571eb57e47143320470673c043");
}

TEST(BlockKeys, of_every_optional_field_match_the_golden_vectors) {
  RootFields fields;
  fields.model_digest = bytes_of_text("model");
  fields.fingerprint = bytes_of_text("geometry");
  fields.weight_epoch = 7;
  EXPECT_EQ(to_hex(root_key(fields)), "e4878b787c330d9e41fa41e4f6611e95af87f696d66fe09586bbd1534e351abe");
  fields.tenant_salt = "adapter";
  EXPECT_EQ(to_hex(root_key(fields)), "16e0ea3a235f33ba0335d48d387f89f537ac3613a704314f981d5028e616f63d");
  fields.tenant_salt.reset();
  fields.adapter = "";
  EXPECT_EQ(to_hex(root_key(fields)), "0ce94f9852627c801c4d5eaf1d9d7d51ebd5a7ab49ecc3341172756c6974f098");

  KeyChain chain{example_root(), 4};
  const std::array<ExtraKey, 1> extra{{{ExtraKind::other, bytes_of_text("engine's word"), 0}}};
  ASSERT_TRUE(chain.append_block(count_from(1, 4), extra).has_value());
  EXPECT_EQ(to_hex(chain.keys()[0]), "9c79f56cfbf946c54fc267316b5f31c906cc59f6378d7dff68a0869f562400f1");
}

TEST(OpaqueKeys, match_the_golden_vectors) {
  EXPECT_EQ(to_hex(opaque_key(bytes_of_text("model"), bytes_of_text("engine's own"))),
            "2d4b403afd87db668a00e49c088682e388926e8445e4c52f9121b8e5336cc90b");
  EXPECT_EQ(to_hex(opaque_key({}, {})), "bdc1299886044bc1fe3f67375928bbd1d4d14345b921625212d1121afd2171e6");
}

TEST(OpaqueKeys, of_names_of_any_length_differ_by_name_and_namespace) {
  std::set<BlockKey> seen;
  const std::string letters(300, 'a');
  OpaqueKeys keys{bytes_of_text("model")};
  for (std::size_t length = 0; length <= letters.size(); ++length) {
    const std::string_view name = std::string_view{letters}.substr(0, length);
    EXPECT_EQ(keys(bytes_of_text(name)), opaque_key(bytes_of_text("model"), bytes_of_text(name)));
    EXPECT_TRUE(seen.insert(keys(bytes_of_text(name))).second);
    EXPECT_TRUE(seen.insert(opaque_key(bytes_of_text("model a"), bytes_of_text(name))).second);
    EXPECT_TRUE(seen.insert(opaque_key({}, bytes_of_text(name))).second);
  }
  // The same bytes, with another end of the namespace.
  EXPECT_NE(opaque_key(bytes_of_text("ab"), bytes_of_text("c")), opaque_key(bytes_of_text("a"), bytes_of_text("bc")));
}

TEST(OpaqueKeys, are_never_the_keys_of_chained_blocks) {
  KeyChain chain{BlockKey{}, 4};
  ASSERT_TRUE(chain.append_opaque(bytes_of_text("name")).has_value());
  EXPECT_NE(opaque_key(BlockKey{}.bytes, bytes_of_text("name")), chain.keys()[0]);
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
    return root_key({bytes_of_text(model), bytes_of_text(print), adapter, salt, epoch});
  };
  add(root("ab", "c", std::nullopt, std::nullopt, 0));
  add(root("a", "bc", std::nullopt, std::nullopt, 0));  // the boundary is shifted
  add(root("ab", "c", "", std::nullopt, 0));            // an empty field is not an absent one
  add(root("ab", "c", std::nullopt, "", 0));
  add(root("ab", "c", "x", std::nullopt, 0));  // an adapter with the name of a salt
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
  add(block({1, 2}, {{ExtraKind::media, bytes_of_text("m"), 0}}));
  add(block({1, 2}, {{ExtraKind::media, bytes_of_text("m"), 1}}));
  add(block({1, 2}, {{ExtraKind::prompt_embedding, bytes_of_text("m"), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes_of_text("m"), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes_of_text("m"), 0}, {ExtraKind::other, bytes_of_text(""), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes_of_text("m"), 0}, {ExtraKind::other, bytes_of_text("n"), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes_of_text("n"), 0}, {ExtraKind::other, bytes_of_text("m"), 0}}));
  add(block({1, 2}, {{ExtraKind::other, bytes_of_text("mn"), 0}}));

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
  EXPECT_EQ(chain.append_opaque(bytes_of_text("x")).error(), Errc::invalid_argument);
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

// ---- keys of groups -----------------------------------------------------------------------------------------------------------

std::vector<BlockKey> chain_of(std::size_t tokens, std::uint32_t unit, TokenId changed = 0) {
  std::vector<TokenId> ids(tokens);
  std::iota(ids.begin(), ids.end(), 1);
  ids[changed] += 1000;
  KeyChain chain{{}, unit};
  chain.append(ids);
  return {chain.keys().begin(), chain.keys().end()};
}

TEST(GroupKeys, of_a_block_are_those_of_its_last_unit) {
  const std::vector<BlockKey> chain = chain_of(200, 16);  // 12 units
  const GroupKeys group{16, 64};
  EXPECT_EQ(group.units_per_block(), 4U);
  ASSERT_EQ(group.blocks(chain.size()), 3U);
  EXPECT_EQ(group.key(chain, 0), chain[3]);
  EXPECT_EQ(group.key(chain, 1), chain[7]);
  EXPECT_EQ(group.key(chain, 2), chain[11]);
  EXPECT_EQ(group.units(3), 12U);
}

TEST(GroupKeys, of_an_unfinished_block_are_not_there) {
  const GroupKeys group{16, 64};
  EXPECT_EQ(group.blocks(0), 0U);
  EXPECT_EQ(group.blocks(3), 0U);
  EXPECT_EQ(group.blocks(7), 1U);
}

TEST(GroupKeys, are_the_chain_itself_where_a_block_is_a_unit) {
  const std::vector<BlockKey> chain = chain_of(64, 16);
  const GroupKeys group{16, 16};
  ASSERT_EQ(group.blocks(chain.size()), chain.size());
  for (std::size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(group.key(chain, i), chain[i]);
}

TEST(GroupKeys, change_with_every_token_of_the_block_and_of_those_before) {
  const GroupKeys group{16, 64};
  const std::vector<BlockKey> changed_last = chain_of(128, 16, 127);
  for (TokenId token = 0; token < 127; ++token) {
    const std::vector<BlockKey> changed = chain_of(128, 16, token);
    EXPECT_NE(group.key(changed, 1), group.key(changed_last, 1)) << token;
    EXPECT_EQ(group.key(changed, 0) == group.key(changed_last, 0), token >= 64) << token;
  }
}

TEST(GroupKeys, refuse_blocks_that_are_not_whole_units_and_say_why) {
  for (const auto [unit, block] : std::array<std::array<std::uint32_t, 2>, 5>{{{16, 24}, {16, 8}, {64, 16}, {0, 16}, {16, 0}}}) {
    try {
      const GroupKeys group{unit, block};
      ADD_FAILURE() << unit << " into " << block << " was accepted as " << group.units_per_block();
    } catch (const std::invalid_argument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("hash units of " + std::to_string(unit) + " tokens"), std::string::npos) << text;
      EXPECT_NE(text.find("block of " + std::to_string(block) + " tokens"), std::string::npos) << text;
    }
  }
}

TEST(HashUnit, is_the_greatest_common_divisor_of_the_block_sizes) {
  EXPECT_EQ(hash_unit(std::array{64U}), 64U);
  EXPECT_EQ(hash_unit(std::array{64U, 16U, 256U}), 16U);
  EXPECT_EQ(hash_unit(std::array{48U, 32U}), 16U);
  EXPECT_EQ(hash_unit(std::array{16U, 15U}), 1U);
  EXPECT_THROW((void)hash_unit({}), std::invalid_argument);
  EXPECT_THROW((void)hash_unit(std::array{16U, 0U}), std::invalid_argument);
}

}  // namespace
}  // namespace terrace
