// What a cache tells of itself, and what it is to be made of.

#include "terrace.h"
#include "tests/capi/cache_fixture.hpp"
#include "tests/capi/store_fixture.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

TEST_F(CapiCache, keys_tell_salts_adapters_and_media_apart) {
  const Chain plain{tokens_of(0, 8)};
  const Chain salted{tokens_of(0, 8), "salt"};
  EXPECT_NE(std::memcmp(plain.keys().data(), salted.keys().data(), sizeof(terrace_key)), 0);
  EXPECT_NE(terrace_chain_tenant(plain.chain), terrace_chain_tenant(salted.chain));
  serve(1, salted, 1);
  EXPECT_EQ(match(plain.keys()).device, 0U);
  EXPECT_EQ(match(salted.keys()).device, 2U);

  Chain pictured{{}};
  const terrace_item item{5, 6, "an image", 8, TERRACE_ITEM_MEDIA, 0};
  ASSERT_EQ(terrace_chain_add_items(pictured.chain, &item, 1), TERRACE_OK);
  const std::vector<std::uint32_t> tokens = tokens_of(0, 16);
  ASSERT_EQ(terrace_chain_append(pictured.chain, tokens.data(), tokens.size()), TERRACE_OK);
  const std::vector<terrace_key> keys = pictured.keys();
  EXPECT_EQ(std::memcmp(&keys[0], &plain.keys()[0], sizeof(terrace_key)), 0);
  EXPECT_NE(std::memcmp(&keys[1], &plain.keys()[1], sizeof(terrace_key)), 0);
  const auto before_media = [&](std::uint32_t blocks) {
    std::uint32_t shorter = 77;
    EXPECT_EQ(terrace_chain_before_media(pictured.chain, blocks, &shorter), TERRACE_OK);
    return shorter;
  };
  EXPECT_EQ(before_media(1), 1U);
  EXPECT_EQ(before_media(2), 1U) << "tokens 5 to 10 are one item";
  EXPECT_EQ(before_media(3), 3U);
  EXPECT_EQ(terrace_chain_add_items(pictured.chain, &item, 1), TERRACE_INVALID_ARGUMENT) << "its blocks have their keys";
  terrace_item wrong = item;
  wrong.kind = 9;
  EXPECT_EQ(terrace_chain_add_items(pictured.chain, &wrong, 1), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_chain_append(nullptr, tokens.data(), 1), TERRACE_INVALID_ARGUMENT);
}

TEST_F(CapiCache, blocks_of_a_prefix_are_told_by_place) {
  const Chain chain{tokens_of(0, 16)};
  serve(1, chain, 1);
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  std::vector<terrace_key> keys = chain.keys();
  keys.push_back(Chain{tokens_of(900, 4)}.keys().front());
  const terrace_place* places = nullptr;
  std::size_t count = 0;
  const auto find = [&](std::uint16_t group) {
    return terrace_cache_find_blocks(cache_, keys.data(), keys.size(), group, &places, &count);
  };
  acquire(of_chain(2, chain));
  ASSERT_EQ(find(0), TERRACE_OK) << terrace_last_error();
  ASSERT_EQ(count, 5U);
  const std::vector<std::uint32_t> slots = table(2);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(places[i].device, slots[i]);
    EXPECT_EQ(places[i].host, TERRACE_NO_SLOT);
    EXPECT_TRUE(places[i].storage == 1 && places[i].in_use == 1);
  }
  EXPECT_TRUE(places[4].device == TERRACE_NO_SLOT && places[4].storage == 0 && places[4].in_use == 0);
  release(2);
  EXPECT_EQ(find(3), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("there is no group 3: the number of groups is 1"));
  EXPECT_EQ(terrace_cache_find_blocks(cache_, nullptr, 1, 0, &places, &count), TERRACE_INVALID_ARGUMENT);

  ASSERT_EQ(terrace_cache_clear(cache_, TERRACE_CLEAR_KEEP_STORAGE), TERRACE_OK);
  const terrace_request again = acquire(of_chain(3, chain));
  EXPECT_EQ(again.storage, 3U);
  EXPECT_TRUE(again.waited_storage > 0 && again.waited_storage <= again.waited);
  EXPECT_EQ(again.waited_host + again.waited_shared + again.waited_looking, 0);
  release(3);
}

TEST(CapiChain, tells_inside_which_media_item_a_match_ends) {
  const Chain pictured{{}};
  const terrace_item item{5, 6, "an image", 8, TERRACE_ITEM_MEDIA, 0};
  ASSERT_EQ(terrace_chain_add_items(pictured.chain, &item, 1), TERRACE_OK);
  terrace_item across{};
  ASSERT_EQ(terrace_chain_media_across(pictured.chain, 2, &across), TERRACE_OK);
  EXPECT_EQ(across.offset, 5U);
  EXPECT_EQ(across.length, 6U);
  EXPECT_EQ(std::string(static_cast<const char*>(across.digest), across.digest_bytes), "an image");
  ASSERT_EQ(terrace_chain_media_across(pictured.chain, 3, &across), TERRACE_OK);
  EXPECT_EQ(across.length, 0U);
}

TEST_F(CapiCache, one_block_is_told_by_its_key_alone) {
  const Chain chain{tokens_of(0, 16)};
  serve(1, chain, 1);
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  acquire(of_chain(2, chain));
  terrace_place place{};
  ASSERT_EQ(terrace_cache_find_block(cache_, &chain.keys()[2], 0, &place), TERRACE_OK) << terrace_last_error();
  EXPECT_TRUE(place.device == table(2)[2] && place.host == TERRACE_NO_SLOT && place.storage == 1 && place.in_use == 1);
  release(2);
  const terrace_key other{};
  ASSERT_EQ(terrace_cache_find_block(cache_, &other, 0, &place), TERRACE_OK);
  EXPECT_TRUE(place.device == TERRACE_NO_SLOT && place.host == TERRACE_NO_SLOT && place.storage == 0 && place.in_use == 0);
  EXPECT_EQ(terrace_cache_find_block(cache_, &other, 3, &place), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_cache_find_block(cache_, nullptr, 0, &place), TERRACE_INVALID_ARGUMENT);
}

TEST_F(CapiCache, what_it_has_and_what_fits_is_told) {
  const auto usage = [&](std::uint32_t tier) {
    terrace_usage value = made<terrace_usage>();
    EXPECT_EQ(terrace_cache_read_usage(cache_, tier, 0, &value), TERRACE_OK) << terrace_last_error();
    return value;
  };
  EXPECT_EQ(usage(TERRACE_TIER_HOST).free, 16U);
  std::uint64_t blocks = 0;
  ASSERT_EQ(terrace_cache_blocks_for(cache_, 7, 0, &blocks), TERRACE_OK);
  EXPECT_EQ(blocks, 7U) << "without groups, hash units";
  EXPECT_EQ(terrace_cache_blocks_for(cache_, 7, 1, &blocks), TERRACE_INVALID_ARGUMENT);

  ASSERT_EQ(terrace_cache_pause_idle_service(cache_, 3'600'000'000'000), TERRACE_OK);
  serve(1, Chain{tokens_of(0, 16)}, 1);
  const Chain fork{tokens_of(0, 12)};
  acquire(of_chain(2, fork));
  ASSERT_EQ(terrace_cache_end_step(cache_), TERRACE_OK);
  EXPECT_GT(statistics().transfers_in_flight, 0U) << "blocks are written to storage until a poll collects the writes";
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  EXPECT_EQ(statistics().transfers_in_flight, 0U);
  const terrace_usage device = usage(TERRACE_TIER_DEVICE);
  EXPECT_EQ(device.blocks, device_blocks);
  EXPECT_EQ(device.free + device.evictable, device_blocks - 3U);
  EXPECT_EQ(device.promised, 0U);
  terrace_tree_counts tree = made<terrace_tree_counts>();
  ASSERT_EQ(terrace_cache_read_tree(cache_, 0, &tree), TERRACE_OK);
  EXPECT_EQ(tree.blocks, 4U);
  EXPECT_EQ(tree.device_blocks, 4U);
  EXPECT_EQ(tree.device_leaves, 1U);
  EXPECT_EQ(tree.device_pinned, 2U) << "the last block of the request is computed";
  EXPECT_EQ(tree.storage_blocks, 4U);
  EXPECT_EQ(tree.host_blocks + tree.host_pinned + tree.host_leaves, 0U);
  const char* text = nullptr;
  ASSERT_EQ(terrace_cache_describe_tree(cache_, 8, &text), TERRACE_OK);
  EXPECT_EQ(std::string{text}.rfind("4 blocks in ", 0), 0U) << text;
  release(2);
  terrace_usage none = made<terrace_usage>();
  EXPECT_EQ(terrace_cache_read_usage(cache_, TERRACE_TIER_STORAGE, 0, &none), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_cache_read_usage(cache_, TERRACE_TIER_HOST, 1, &none), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_cache_read_tree(cache_, 1, &tree), TERRACE_INVALID_ARGUMENT);
}

/// One key in four is followed. All blocks fit the device.
TEST_F(CapiCache, misses_are_told_by_reason) {
  const auto serve_all = [&] {
    for (std::uint32_t i = 0; i < device_blocks - 2; ++i) serve(i + 1, Chain{tokens_of(100 * i, unit + 1)}, i);
    terrace_misses misses = made<terrace_misses>();
    EXPECT_EQ(terrace_cache_read_misses(cache_, &misses), TERRACE_OK);
    return misses;
  };
  EXPECT_EQ(serve_all().unknown, 0U) << "nobody has asked for it";
  ASSERT_EQ(terrace_cache_clear(cache_, 0), TERRACE_OK);
  ASSERT_EQ(terrace_cache_measure_misses(cache_), TERRACE_OK);
  const terrace_misses first = serve_all();
  EXPECT_GT(first.unknown, 0U);
  EXPECT_EQ(first.cleared, 0U);
  ASSERT_EQ(terrace_cache_clear(cache_, 0), TERRACE_OK);
  const terrace_misses second = serve_all();
  EXPECT_EQ(second.unknown, first.unknown);
  EXPECT_EQ(second.cleared, first.unknown) << "the same blocks were there before the clear";
}

TEST(CapiPlan, sizes_the_blocks_of_a_model_and_fills_the_memory) {
  std::array<terrace_layer_shape, 2> layers{};
  layers[0].layers = 32;
  layers[0].block_tokens = 16;
  layers[0].kv_heads = 8;
  layers[0].head_size = 128;
  layers[0].type = TERRACE_INT8;
  layers[0].scales = TERRACE_SCALES_OWN_GROUP;
  layers[0].scale_type = TERRACE_FLOAT16;
  layers[1] = layers[0];
  layers[1].kind = TERRACE_ATTENTION_SLIDING_WINDOW;
  layers[1].span_tokens = 1024;
  layers[1].type = TERRACE_BFLOAT16;
  layers[1].scales = TERRACE_SCALES_NONE;
  terrace_plan_order order = made<terrace_plan_order>();
  order.layers = layers.data();
  order.layer_count = layers.size();
  order.device_bytes = std::uint64_t{8} << 30;
  order.host_bytes = std::uint64_t{16} << 30;
  order.tokens = 4096;
  std::array<terrace_planned_group, 4> groups{};
  std::array<terrace_planned_pool, 4> pools{};
  terrace_group_plan plan = made<terrace_group_plan>();
  ASSERT_EQ(terrace_plan_groups(&order, groups.data(), pools.data(), &plan), TERRACE_OK) << terrace_last_error();
  ASSERT_EQ(plan.group_count, 3U) << "the scales are a group of their own";
  ASSERT_EQ(plan.pool_count, 3U);
  EXPECT_EQ(groups[2].kind, static_cast<std::uint32_t>(TERRACE_ATTENTION_SLIDING_WINDOW));
  EXPECT_EQ(groups[2].span_tokens, 1024U);
  EXPECT_EQ(pools[groups[0].pool].block_bytes, 1U << 20U);
  EXPECT_EQ(pools[groups[1].pool].block_bytes, 32U * 16 * 2 * 8 * 2);
  EXPECT_EQ(pools[groups[2].pool].block_bytes, 2U << 20U);
  EXPECT_EQ(pools[groups[2].pool].null_block, 1U);
  EXPECT_GT(plan.sequences, 0U);
  EXPECT_LE(plan.device_used, order.device_bytes);
  EXPECT_GT(plan.device_used, order.device_bytes - (2U << 20U));

  std::string config;
  const auto option = [&config](const char* name, std::uint64_t value) {
    config += std::string{name} + " = " + std::to_string(value) + "\n";
  };
  order.device_bytes = std::uint64_t{1} << 26;
  order.host_bytes = 0;
  order.tokens = 64;
  ASSERT_EQ(terrace_plan_groups(&order, groups.data(), pools.data(), &plan), TERRACE_OK) << terrace_last_error();
  for (const terrace_planned_pool& pool : std::span{pools}.first(plan.pool_count)) {
    config += "[[pool]]\nnull-block = " + std::string{pool.null_block == 1 ? "true" : "false"} + "\n";
    option("block-bytes", pool.block_bytes);
    option("device-blocks", pool.device_blocks);
    option("host-blocks", pool.host_blocks);
  }
  for (const terrace_planned_group& group : std::span{groups}.first(plan.group_count)) {
    config += std::string{"[[group]]\nkind = \""} + (group.span_tokens == 0 ? "full" : "sliding-window") + "\"\n";
    option("block-tokens", group.block_tokens);
    option("span-tokens", group.span_tokens);
    option("pool", group.pool);
  }
  terrace_open_options options = made<terrace_open_options>();
  options.config = config.c_str();
  terrace_cache* cache = nullptr;
  ASSERT_EQ(terrace_cache_open(&options, &cache), TERRACE_OK) << terrace_last_error();
  std::uint64_t blocks = 0;
  ASSERT_EQ(terrace_cache_blocks_for(cache, 4096, 2, &blocks), TERRACE_OK);
  EXPECT_EQ(blocks, 256U);
  EXPECT_EQ(terrace_cache_destroy(cache, TERRACE_NEVER), 1);

  order.device_bytes = 1 << 20;
  EXPECT_EQ(terrace_plan_groups(&order, groups.data(), pools.data(), &plan), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("a sequence of 64 tokens needs")) << terrace_last_error();
  layers[0].type = 6;
  EXPECT_EQ(terrace_plan_groups(&order, groups.data(), pools.data(), &plan), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("type of a layer is 6, must be from 0 to 5")) << terrace_last_error();
}

}  // namespace
}  // namespace terrace::test
