#include "terrace/keys.hpp"

#include "base/random.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace terrace {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span{text}); }

PromptItem media(std::uint64_t offset, std::uint64_t length, std::string_view digest) {
  return {ItemKind::media, offset, length, bytes(digest)};
}
PromptItem embedding(std::uint64_t offset, std::uint64_t length, std::string_view digest) {
  return {ItemKind::prompt_embedding, offset, length, bytes(digest)};
}

/// The items that a block sees, as text: kind, digest and offset of each item.
std::string seen(std::span<const ExtraKey> overlaps) {
  std::string text;
  for (const ExtraKey& each : overlaps) {
    text += each.kind == ExtraKind::media ? " media " : " embedding ";
    for (const std::byte b : each.digest) text += static_cast<char>(b);
    text.append("@").append(std::to_string(each.offset));
  }
  return text;
}

TEST(PromptItems, are_seen_by_every_block_that_they_overlap_and_by_no_other) {
  PromptItems items;
  ASSERT_TRUE(items.add(std::array{media(2, 7, "image"), embedding(5, 2, "run"), media(16, 4, "exact"), media(23, 1, "last")}));
  EXPECT_EQ(seen(items.next_block(4)), " media image@2");
  EXPECT_EQ(seen(items.next_block(4)), " media image@-2 embedding run@1");
  EXPECT_EQ(seen(items.next_block(4)), " media image@-6");
  EXPECT_EQ(seen(items.next_block(4)), "");
  EXPECT_EQ(seen(items.next_block(4)), " media exact@0");  // without the blocks that it only touches
  EXPECT_EQ(seen(items.next_block(4)), " media last@3");
  EXPECT_EQ(seen(items.next_block(4)), "");
  EXPECT_EQ(items.position(), 28U);
}

TEST(PromptItems, are_seen_in_one_order_whatever_order_they_came_in) {
  const std::array all{media(3, 9, "b"), media(3, 2, "a"), embedding(3, 9, "a"), media(0, 20, "z"), media(4, 1, "0")};
  std::array<std::size_t, 5> order{0, 1, 2, 3, 4};
  do {
    PromptItems at_once;
    PromptItems one_by_one;
    std::vector<PromptItem> shuffled;
    for (const std::size_t i : order) shuffled.push_back(all[i]);
    ASSERT_TRUE(at_once.add(shuffled));
    for (const PromptItem& item : shuffled) ASSERT_TRUE(one_by_one.add({&item, 1}));
    ASSERT_EQ(seen(at_once.next_block(8)), " media z@0 media a@3 media b@3 embedding a@3 media 0@4");
    ASSERT_EQ(seen(one_by_one.next_block(8)), " media z@0 media a@3 media b@3 embedding a@3 media 0@4");
    for (const std::uint64_t token : {2, 4, 11, 19}) {
      ASSERT_EQ(at_once.media_across(token)->digest[0], std::byte{'z'});
      ASSERT_EQ(one_by_one.media_across(token)->digest[0], std::byte{'z'});
    }
  } while (std::ranges::next_permutation(order).found);
}

TEST(PromptItems, are_refused_where_they_say_nothing_or_come_too_late) {
  constexpr auto token_max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  PromptItems items;
  (void)items.next_block(16);
  for (const PromptItem& bad :
       {media(15, 4, "late"), media(0, 64, "late"), media(20, 0, "empty"), media(20, 4, ""), media(token_max, 1, "far"),
        media(20, token_max, "long"), media(std::numeric_limits<std::uint64_t>::max(), 1, "farther")}) {
    const std::array with_a_good_one{media(16, 4, "good"), bad};
    EXPECT_EQ(items.add(with_a_good_one).error(), Errc::invalid_argument) << bad.offset;
  }
  EXPECT_EQ(seen(items.next_block(16)), "");  // a refused call adds nothing
  EXPECT_TRUE(items.add(std::array{media(token_max - 4, 4, "far")}));
}

TEST(PromptItems, say_inside_which_media_item_a_prefix_ends) {
  PromptItems items;
  ASSERT_TRUE(items.add(std::array{media(2, 7, "image"), media(12, 4, "other"), embedding(20, 9, "run"), media(24, 2, "in it")}));
  const auto across = [&](std::uint64_t token) -> std::string {
    const std::optional<PromptItem> found = items.media_across(token);
    if (!found) return "none";
    EXPECT_EQ(found->kind, ItemKind::media);
    return std::to_string(found->offset) + "+" + std::to_string(found->length);
  };
  EXPECT_EQ(across(0), "none");
  EXPECT_EQ(across(2), "none");  // before its first token
  EXPECT_EQ(across(3), "2+7");
  EXPECT_EQ(across(8), "2+7");
  EXPECT_EQ(across(9), "none");  // after its last token
  EXPECT_EQ(across(12), "none");
  EXPECT_EQ(across(15), "12+4");
  EXPECT_EQ(across(16), "none");
  EXPECT_EQ(across(22), "none");  // embeddings may be split
  EXPECT_EQ(across(25), "24+2");
  EXPECT_EQ(across(1000), "none");
}

/// Compares with the plain definition, which looks at every item for every block and every token.
TEST(PromptItems, agree_with_a_plain_search) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  for (int round = 0; round < 200; ++round) {
    const std::string names = "abcdefghijklmnopqrstuvwxyz";
    const auto unit = static_cast<std::uint32_t>(random.between(1, 9));
    PromptItems items;
    std::vector<PromptItem> known;
    for (std::uint64_t begin = 0; begin < 200; begin += unit) {
      while (random.chance(0.3)) {
        const std::string_view name = std::string_view{names}.substr(random.below(26), 1);
        PromptItem item = media(begin + random.below(40), random.between(1, 30), name);
        if (random.chance(0.3)) item.kind = ItemKind::prompt_embedding;
        known.push_back(item);
        ASSERT_TRUE(items.add({&item, 1}));
        items.check_invariants();
      }
      std::vector<PromptItem> overlapping;
      std::ranges::copy_if(known, std::back_inserter(overlapping), [&](const PromptItem& item) {
        return item.offset < begin + unit && item.offset + item.length > begin;
      });
      std::ranges::sort(overlapping, {}, [](const PromptItem& i) { return std::tuple{i.offset, i.kind, i.digest[0]}; });
      const std::span<const ExtraKey> got = items.next_block(unit);
      items.check_invariants();
      ASSERT_EQ(got.size(), overlapping.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].offset, static_cast<std::int64_t>(overlapping[i].offset) - static_cast<std::int64_t>(begin));
        ASSERT_EQ(got[i].digest[0], overlapping[i].digest[0]);
        ASSERT_EQ(got[i].kind == ExtraKind::media, overlapping[i].kind == ItemKind::media);
      }
      constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
      std::uint64_t first_across = none;
      for (const PromptItem& item : known) {
        const bool across = item.kind == ItemKind::media && item.offset < begin && item.offset + item.length > begin;
        if (across) first_across = std::min(first_across, item.offset);
      }
      const std::optional<PromptItem> found = items.media_across(begin);
      ASSERT_EQ(found ? found->offset : none, first_across);
    }
  }
}

/// A prompt of a million blocks with one item each. If each block looked at all items, this test would not end.
TEST(PromptItems, of_a_long_prompt_are_walked_over_once) {
  constexpr std::uint64_t blocks = 1'000'000;
  std::vector<PromptItem> all;
  for (std::uint64_t i = 0; i < blocks; ++i) all.push_back(media(i * 16 + 4, 16, "x"));
  PromptItems items;
  ASSERT_TRUE(items.add(all));
  std::uint64_t overlaps = 0;
  for (std::uint64_t i = 0; i < blocks; ++i) overlaps += items.next_block(16).size();
  EXPECT_EQ(overlaps, 2 * blocks - 1);
}

// ---- in a chain ----------------------------------------------------------------------------------------------------------

std::vector<TokenId> count_from(TokenId first, std::size_t n) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<BlockKey> keys_with(std::span<const PromptItem> items, std::size_t tokens = 64, std::uint32_t block_tokens = 16) {
  KeyChain chain{{}, block_tokens};
  EXPECT_TRUE(chain.add_items(items));
  chain.append(count_from(1, tokens));
  return {chain.keys().begin(), chain.keys().end()};
}

TEST(KeyChainItems, change_the_first_block_that_they_overlap_and_all_behind_it) {
  const std::vector<BlockKey> plain = keys_with({});
  const std::vector<BlockKey> with_item = keys_with(std::array{media(20, 30, "image")});
  EXPECT_EQ(plain[0], with_item[0]);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_NE(plain[i], with_item[i]);
}

TEST(KeyChainItems, of_the_last_block_alone_change_only_that) {
  const std::vector<BlockKey> a = keys_with(std::array{media(10, 40, "image"), media(63, 1, "a")});
  const std::vector<BlockKey> b = keys_with(std::array{media(10, 40, "image"), media(63, 1, "b")});
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 3, b.begin()));
  EXPECT_NE(a[3], b[3]);
}

TEST(KeyChainItems, are_the_same_however_the_prompt_arrives) {
  const std::array items{media(3, 1, "a"), media(15, 2, "b"), embedding(17, 40, "c"), media(64, 5, "d"), media(66, 100, "e")};
  const std::vector<TokenId> tokens = count_from(100, 200);
  const std::vector<BlockKey> expected = [&] {
    KeyChain chain{{}, 16};
    EXPECT_TRUE(chain.add_items(items));
    chain.append(tokens);
    return std::vector<BlockKey>{chain.keys().begin(), chain.keys().end()};
  }();
  ASSERT_EQ(expected.size(), 12U);
  for (const std::size_t piece : {1U, 5U, 15U, 16U, 17U, 33U, 64U}) {
    KeyChain chain{{}, 16};
    std::size_t added = 0;
    for (std::size_t at = 0; at < tokens.size(); at += piece) {
      // Each item is added as late as possible: before the block in which it begins is complete.
      const std::size_t end = std::min(at + piece, tokens.size());
      for (; added < items.size() && items[added].offset < end; ++added) {
        ASSERT_TRUE(chain.add_items({&items[added], 1})) << added;
      }
      chain.append(std::span{tokens}.subspan(at, end - at));
    }
    EXPECT_TRUE(std::ranges::equal(chain.keys(), expected)) << piece;
  }
}

TEST(KeyChainItems, are_what_the_caller_could_have_said_block_by_block) {
  KeyChain by_hand{{}, 4};
  const std::array first{ExtraKey{ExtraKind::media, bytes("image"), 2}};
  const std::array second{ExtraKey{ExtraKind::media, bytes("image"), -2}, ExtraKey{ExtraKind::embedding_item, bytes("run"), 1},
                          ExtraKey{ExtraKind::other, bytes("word"), 0}};
  const std::array third{ExtraKey{ExtraKind::media, bytes("image"), -6}};
  ASSERT_TRUE(by_hand.append_block(count_from(1, 4), first));
  ASSERT_TRUE(by_hand.append_block(count_from(5, 4), second));
  ASSERT_TRUE(by_hand.append_opaque(bytes("name"), third));

  KeyChain with_items{{}, 4};
  ASSERT_TRUE(with_items.add_items(std::array{media(2, 7, "image"), embedding(5, 2, "run")}));
  with_items.append(count_from(1, 4));
  ASSERT_TRUE(with_items.append_block(count_from(5, 4), {&second[2], 1}));
  ASSERT_TRUE(with_items.append_opaque(bytes("name")));
  EXPECT_TRUE(std::ranges::equal(by_hand.keys(), with_items.keys()));
}

TEST(KeyChainItems, are_refused_for_a_block_whose_key_is_made) {
  KeyChain chain{{}, 16};
  chain.append(count_from(1, 40));
  EXPECT_EQ(chain.add_items(std::array{media(31, 10, "late")}).error(), Errc::invalid_argument);
  EXPECT_TRUE(chain.add_items(std::array{media(32, 10, "in time")}));  // its block is not complete yet
  chain.append(count_from(41, 8));
  EXPECT_EQ(chain.keys()[2], keys_with(std::array{media(32, 10, "in time")}, 48)[2]);
}

TEST(KeyChainItems, say_whether_a_match_ends_inside_one) {
  KeyChain chain{{}, 16};
  const std::array items{media(10, 22, "two blocks"), media(40, 8, "to the end of a block"), media(50, 100, "long")};
  ASSERT_TRUE(chain.add_items(items));
  EXPECT_FALSE(chain.media_across(0));
  EXPECT_EQ(chain.media_across(1)->offset, 10U);
  EXPECT_FALSE(chain.media_across(2));
  EXPECT_FALSE(chain.media_across(3));
  for (const std::size_t blocks : {4U, 9U}) {
    const std::optional<PromptItem> item = chain.media_across(blocks);
    ASSERT_TRUE(item);
    EXPECT_EQ(item->offset, 50U);
    EXPECT_EQ(item->length, 100U);
    EXPECT_TRUE(std::ranges::equal(item->digest, bytes("long")));
  }
  EXPECT_FALSE(chain.media_across(10));
}

}  // namespace
}  // namespace terrace
