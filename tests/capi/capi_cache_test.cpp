#include "terrace.h"
#include "tests/capi/cache_fixture.hpp"
#include "tests/capi/store_fixture.hpp"
#include "tests/patience.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

/// A group of a sliding window drops the blocks to which no later token attends.
TEST(CapiCacheGroups, of_a_window_drop_what_is_behind_it) {
  terrace_open_options options = made<terrace_open_options>();
  options.config = "request-units-max = 6\n[[pool]]\nblock-bytes = 4096\ndevice-blocks = 40\nnull-block = true\n"
                   "[[group]]\nblock-tokens = 4\npool = 0\n[[group]]\nkind = \"sliding-window\"\nspan-tokens = 4\nblock-tokens = "
                   "4\npool = 0\n";
  terrace_cache* cache = nullptr;
  ASSERT_EQ(terrace_cache_open(&options, &cache), TERRACE_OK) << terrace_last_error();
  const Chain chain{tokens_of(0, 16)};
  terrace_acquire request = made<terrace_acquire>();
  request.chain = chain.chain;
  ASSERT_EQ(terrace_cache_acquire(cache, &request, nullptr), TERRACE_OK) << terrace_last_error();
  const std::uint64_t id = 0;
  const std::uint64_t computed = 16;
  std::array<std::uint32_t, 2> lengths{};
  std::array<std::int32_t, 12> entries{};
  const std::array<terrace_table, 2> tables{{{entries.data(), 6, lengths.data(), 0, 1}, {&entries[6], 6, &lengths[1], 1, 1}}};
  terrace_status status = -1;
  terrace_step step = made<terrace_step>();
  step.requests = &id;
  step.count = 1;
  step.computed_tokens = &computed;
  step.statuses = &status;
  step.tables = tables.data();
  step.table_count = tables.size();
  step.advance = 1;
  ASSERT_EQ(terrace_cache_step(cache, &step), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(lengths, (std::array<std::uint32_t, 2>{4, 4}));
  EXPECT_TRUE(std::ranges::all_of(std::span{entries}.first(4), [](std::int32_t slot) { return slot != 0; }));
  EXPECT_EQ(std::ranges::count(std::span{entries}.subspan(6, 4), 0), 3) << "null blocks";
  std::uint32_t state = 0;
  EXPECT_EQ(terrace_cache_group_state(cache, id, 1, &state), TERRACE_OK);
  EXPECT_EQ(state, TERRACE_GROUP_SERVES);
  const std::uint64_t lookahead = 100;
  step.needed_tokens = &lookahead;
  EXPECT_EQ(terrace_cache_step(cache, &step), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(lengths, (std::array<std::uint32_t, 2>{6, 6})) << "a request has at most request-units-max";
  EXPECT_EQ(terrace_cache_release(cache, &id, 1, nullptr), TERRACE_OK);
  terrace_cache_statistics counts = made<terrace_cache_statistics>();
  ASSERT_EQ(terrace_cache_read_statistics(cache, &counts), TERRACE_OK);
  EXPECT_EQ(counts.asked, 16U) << "tokens, because there are groups";
  EXPECT_EQ(counts.missed, 16U);

  terrace_root root = made<terrace_root>();
  terrace_chain* other = nullptr;
  ASSERT_EQ(terrace_chain_make(&root, 8, &other), TERRACE_OK);
  request.chain = other;
  EXPECT_EQ(terrace_cache_acquire(cache, &request, nullptr), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("the blocks of the chain have 8 tokens, must have 4")) << terrace_last_error();
  terrace_chain_destroy(other);
  EXPECT_EQ(terrace_cache_destroy(cache, TERRACE_NEVER), 1);
}

/// A conversation of two turns, of which the second one finds the blocks of the first one. Others push them down to the host and
/// to storage, and they come back with their bytes.
TEST_F(CapiCache, serves_a_conversation_from_every_tier) {
  const Chain chain{tokens_of(0, 14)};
  terrace_request first = acquire(of_chain(1, chain));
  EXPECT_EQ(first.miss, 3U);
  EXPECT_EQ(table(1).size(), 4U);
  compute(1, 1);
  ASSERT_EQ(step(1, 14, {100, 101}), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(match(chain.keys()).device, 3U) << "block 3 is full, and not computed";
  ASSERT_EQ(step(1, 16, {102}, 18), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(match(chain.keys()).device, 4U);
  EXPECT_EQ(table(1).size(), 5U);
  release(1);

  EXPECT_EQ(acquire(of_chain(2, chain)).device, 4U);
  expect_computed(2, 1, 4);
  release(2);
  for (std::uint32_t other = 1; other <= 6; ++other) serve(10 + other, Chain{tokens_of(1000 * other, 24)}, 20 * other);
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  const terrace_found found = match(chain.keys());
  EXPECT_EQ(found.device + found.host, 0U) << "six prompts of 6 blocks have gone through 12 and 16 blocks";
  EXPECT_EQ(found.storage, 4U);

  const terrace_request again = acquire(of_chain(3, chain));
  EXPECT_EQ(again.storage, 4U);
  expect_computed(3, 1, 4);
  const std::uint8_t* sources = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(terrace_cache_hit_sources(cache_, 3, &sources, &count), TERRACE_OK);
  EXPECT_EQ((std::vector<std::uint8_t>{sources, sources + count}), (std::vector<std::uint8_t>(4, TERRACE_STORAGE)));
  release(3);
  EXPECT_EQ(statistics().found_storage, 4U) << "blocks, because there are no groups";
  EXPECT_EQ(statistics().live, 0U);
}

TEST_F(CapiCache, at_least_the_last_token_of_a_prompt_is_computed) {
  const Chain chain{tokens_of(0, 8)};
  serve(1, chain, 1);
  terrace_request again = acquire(of_chain(2, chain));
  EXPECT_EQ(again.device, 1U);
  EXPECT_EQ(again.miss, 1U);
  release(2);
  terrace_acquire none = of_chain(3, chain);
  none.flags = TERRACE_ACQUIRE_HITS_MAX;
  EXPECT_EQ(acquire(none).device, 0U);
  release(3);
  terrace_acquire all = of_chain(4, chain);
  all.flags = TERRACE_ACQUIRE_HITS_MAX;
  all.hit_units_max = 2;
  EXPECT_EQ(acquire(all).miss, 1U) << "a limit does not allow more";
  release(4);
}

TEST_F(CapiCache, a_step_touches_nothing_outside_of_its_arrays) {
  const Chain chain{tokens_of(0, 18)};
  acquire(of_chain(1, chain));
  const std::uint64_t id = 1;
  const std::uint64_t computed = 18;
  std::uint32_t row = 0;
  std::uint32_t count = 1;
  const std::uint32_t token = 7;
  std::uint32_t length = 0;
  std::array<std::int32_t, 12> entries{};
  terrace_status status = -1;
  terrace_table block_tables{entries.data(), 12, &length, 0, 1};
  terrace_step step = made<terrace_step>();
  step.requests = &id;
  step.count = step.token_capacity = 1;
  step.token_counts = &count;
  step.tokens = &token;
  step.computed_tokens = &computed;
  step.rows = &row;
  step.tables = &block_tables;
  step.table_count = 1;
  step.statuses = &status;
  const auto refused = [&](const char* why) {
    status = TERRACE_OK;
    EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_INVALID_ARGUMENT);
    EXPECT_TRUE(says(why)) << terrace_last_error();
    EXPECT_EQ(terrace_chain_tokens(chain.chain), 18U) << "nothing of the request has changed";
    EXPECT_EQ(match(chain.keys()).device, 0U);
    EXPECT_EQ(length, 0U);
  };
  row = 1;
  refused("row 1 of the table of group 0 does not exist: row_count is 1");
  row = 0;
  count = 2;
  refused("the sum of step->token_counts is 2, and token_capacity is 1");
  count = 1;
  block_tables.stride = 4;
  refused("0 entries of at most 4; the request has 5, and will have 5");
  block_tables.stride = 12;
  block_tables.group = 1;
  refused("there is no group 1: the number of groups is 1");
  block_tables.group = 0;
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(length, 5U);
  EXPECT_EQ(terrace_chain_tokens(chain.chain), 19U);
  release(1);
}

TEST_F(CapiCache, a_row_of_a_step_has_the_entries_of_one_request) {
  std::array<Chain, 2> chains{Chain{tokens_of(0, 5)}, Chain{tokens_of(100, 5)}};
  acquire(of_chain(1, chains[0]));
  acquire(of_chain(2, chains[1]));
  const std::array<std::uint64_t, 2> requests{1, 2};
  const std::array<std::uint64_t, 2> computed{};
  std::array<std::uint32_t, 2> rows{0, 0};
  std::array<terrace_status, 2> statuses{};
  std::array<std::uint32_t, 2> lengths{};
  std::array<std::uint64_t, 2> owners{};
  std::array<std::int32_t, 24> entries{};
  const terrace_table block_tables{entries.data(), 12, lengths.data(), 0, 2};
  terrace_step step = made<terrace_step>();
  step.requests = requests.data();
  step.count = 2;
  step.computed_tokens = computed.data();
  step.rows = rows.data();
  step.tables = &block_tables;
  step.table_count = 1;
  step.statuses = statuses.data();
  step.row_owners = owners.data();
  const std::array<terrace_status, 2> second_refused{TERRACE_OK, TERRACE_INVALID_ARGUMENT};
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(statuses, second_refused) << "two requests are in one row";
  EXPECT_TRUE(says("row 0 of the table of group 0 has the entries of another request")) << terrace_last_error();
  EXPECT_TRUE(std::ranges::equal(std::span{entries}.first(2), table(1)));
  rows[1] = 1;
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_OK) << terrace_last_error();

  // Another request has the row, and also the id of the one that has ended.
  release(2);
  acquire(of_chain(2, chains[1]));
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(statuses, second_refused);
  lengths[1] = 0;
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_OK) << terrace_last_error();
  EXPECT_TRUE(std::ranges::equal(std::span{entries}.subspan(12, 2), table(2)));
  step.row_owners = nullptr;
  rows[1] = 0;
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_OK) << "nothing is checked";
  release(1);
  release(2);
}

TEST_F(CapiCache, a_step_serves_all_requests_that_it_can) {
  const Chain small{tokens_of(0, 4)};
  const Chain large{tokens_of(100, 30)};
  acquire(of_chain(1, small));
  acquire(of_chain(2, large));
  const std::array<std::uint64_t, 3> requests{2, 1, 9};
  const std::array<std::uint32_t, 3> counts{1, 4, 1};
  const std::array<std::uint32_t, 6> tokens{7, 8, 9, 10, 11, 12};
  const std::array<std::uint64_t, 3> computed{30, 4, 0};
  const std::array<std::uint64_t, 3> needed{48, 0, 0};
  const std::array<std::uint32_t, 3> rows{0, 2, 1};
  std::array<terrace_status, 3> statuses{};
  std::array<std::uint32_t, 3> lengths{};
  std::vector<std::int32_t> entries(3 * 12, -1);
  const terrace_table block_tables{entries.data(), 12, lengths.data(), 0, 3};
  terrace_step step = made<terrace_step>();
  step.requests = requests.data();
  step.count = requests.size();
  step.token_counts = counts.data();
  step.tokens = tokens.data();
  step.token_capacity = tokens.size();
  step.computed_tokens = computed.data();
  step.needed_tokens = needed.data();
  step.rows = rows.data();
  step.tables = &block_tables;
  step.table_count = 1;
  step.statuses = statuses.data();
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_NO_ROOM);
  EXPECT_EQ(statuses, (std::array<terrace_status, 3>{TERRACE_NO_ROOM, TERRACE_OK, TERRACE_UNKNOWN_REQUEST}));
  EXPECT_EQ(terrace_chain_tokens(large.chain), 31U);
  const terrace_key expected = Chain{{0, 1, 2, 3, 8, 9, 10, 11}}.keys().at(1);
  EXPECT_EQ(std::memcmp(&small.keys().at(1), &expected, sizeof expected), 0) << "the second request has its own tokens";
  EXPECT_EQ(match(large.keys()).device, 7U);
  EXPECT_EQ(lengths, (std::array<std::uint32_t, 3>{0, 0, 2}));
  EXPECT_TRUE(std::ranges::equal(std::span{entries}.subspan(24, 2), table(1)));

  // The caller preempts the other request, and calls again without tokens.
  release(1);
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK) << "its block is being stored";
  step.count = 1;
  step.tokens = nullptr;
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(lengths[0], 12U);
  EXPECT_TRUE(std::ranges::equal(std::span{entries}.first(12), table(2)));
  EXPECT_EQ(terrace_chain_tokens(large.chain), 31U);

  lengths[0] = 13;
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("row 0 of the table of group 0 has 13 entries of at most 12; the request has 12, and will have 12"));
  const std::array<std::uint64_t, 1> too_many{32};
  step.computed_tokens = too_many.data();
  EXPECT_EQ(terrace_cache_step(cache_, &step), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("the number of computed tokens is 32, and the sequence has 31")) << terrace_last_error();
  release(2);
}

/// A caller mends what was refused, and calls again: the tokens count once.
TEST_F(CapiCache, a_step_that_is_refused_has_appended_nothing) {
  const Chain chain{tokens_of(0, 4)};
  acquire(of_chain(1, chain));
  const std::vector<std::uint32_t> next = tokens_of(4, 4);
  EXPECT_EQ(step(1, 8, next), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("the number of computed tokens is 8, and the sequence has 8, with slots for 4")) << terrace_last_error();
  EXPECT_EQ(step(1, 4, next), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(terrace_chain_tokens(chain.chain), 8U);

  constexpr std::uint64_t huge = std::uint64_t{1} << 62;
  EXPECT_EQ(step(1, 8, tokens_of(8, 4), huge), TERRACE_NEVER_FITS);
  EXPECT_EQ(terrace_chain_tokens(chain.chain), 12U) << "this refusal is said to have appended";
  EXPECT_EQ(match(chain.keys()).device, 2U) << "and to have shared";
  EXPECT_EQ(table(1).size(), 2U);
  EXPECT_EQ(step(1, 8), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(table(1).size(), 3U);
  release(1);
}

/// While a load brings a block, a commit shares only the blocks before it. A later step shares the others.
TEST_F(CapiCache, a_step_shares_what_a_commit_could_not) {
  const Chain chain{tokens_of(0, 16)};
  serve(1, chain, 1);
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  ASSERT_EQ(terrace_cache_clear(cache_, TERRACE_CLEAR_KEEP_STORAGE), TERRACE_OK);
  ASSERT_EQ(terrace_cache_pause_transfers(cache_), TERRACE_OK);
  EXPECT_EQ(statistics().transfers_paused, 1U);
  const terrace_acquire loads = of_chain(2, chain);
  ASSERT_EQ(terrace_cache_acquire(cache_, &loads, nullptr), TERRACE_OK) << terrace_last_error();
  const Chain again{tokens_of(0, 16)};
  terrace_acquire computes = of_chain(3, again);
  computes.farthest = TERRACE_DEVICE;
  EXPECT_EQ(acquire(computes).miss, 4U);
  compute(3, 1);
  const std::vector<terrace_key> keys = again.keys();
  ASSERT_EQ(terrace_cache_commit(cache_, 3, keys.data(), keys.size(), 0, nullptr, nullptr), TERRACE_OK);
  const auto committed = [&] {
    terrace_request state = made<terrace_request>();
    EXPECT_EQ(terrace_cache_read_request(cache_, 3, &state), TERRACE_OK);
    return state.committed_units;
  };
  EXPECT_EQ(committed(), 0U);
  EXPECT_EQ(step(3, 16), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(committed(), 0U);
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  EXPECT_EQ(step(3, 16), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(committed(), 4U);
  const std::array<std::uint64_t, 2> both{2, 3};
  EXPECT_EQ(terrace_cache_release(cache_, both.data(), both.size(), nullptr), TERRACE_OK);
}

TEST_F(CapiCache, calls_without_a_chain_name_keys) {
  const Chain chain{tokens_of(0, 8)};
  const std::vector<terrace_key> keys = chain.keys();
  const auto of_keys = [&](std::uint64_t id) {
    terrace_acquire request = made<terrace_acquire>();
    request.request = id;
    request.keys = keys.data();
    request.count = keys.size();
    return request;
  };
  acquire(of_keys(1));
  acquire(of_keys(2));
  EXPECT_EQ(step(1, 0), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("request 1 has no chain")) << terrace_last_error();
  EXPECT_EQ(terrace_cache_commit(cache_, 1, keys.data(), keys.size(), 0, nullptr, nullptr), TERRACE_OK);
  const terrace_duplicate* duplicates = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(terrace_cache_commit(cache_, 2, keys.data(), keys.size(), 0, &duplicates, &count), TERRACE_OK);
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(duplicates[1].block, 1U);
  EXPECT_EQ(duplicates[1].own, table(2)[1]);
  EXPECT_EQ(duplicates[1].shared, table(1)[1]);
  EXPECT_EQ(terrace_cache_extend(cache_, 1, 2), TERRACE_OK);
  EXPECT_EQ(table(1).size(), 4U);
  EXPECT_EQ(terrace_cache_advance(cache_, 1, 8, 0), TERRACE_OK) << terrace_last_error();
  std::uint32_t shared = 0;
  EXPECT_EQ(terrace_cache_common_prefix(cache_, 0, &shared), TERRACE_OK);
  EXPECT_EQ(shared, 2U);
  std::uint32_t state = 0;
  EXPECT_EQ(terrace_cache_group_state(cache_, 1, 0, &state), TERRACE_OK);
  EXPECT_EQ(state, TERRACE_GROUP_SERVES);
  EXPECT_EQ(terrace_cache_end_step(cache_), TERRACE_OK);
  EXPECT_EQ(terrace_cache_await(cache_, 1, UINT32_MAX, nullptr, 0), TERRACE_OK);
  const std::array<std::uint64_t, 3> all{1, 7, 2};
  EXPECT_EQ(terrace_cache_release(cache_, all.data(), all.size(), nullptr), TERRACE_UNKNOWN_REQUEST);
  EXPECT_TRUE(says("1 of 3 requests are not alive; the others have ended")) << terrace_last_error();
  EXPECT_EQ(statistics().live, 0U);
  EXPECT_EQ(terrace_cache_compute_is_idle(cache_), TERRACE_OK);
}

TEST_F(CapiCache, a_chain_belongs_to_one_request_and_outlives_its_handle) {
  auto chain = std::make_unique<Chain>(tokens_of(0, 8));
  acquire(of_chain(1, *chain));
  const terrace_acquire second = of_chain(2, *chain);
  EXPECT_EQ(terrace_cache_acquire(cache_, &second, nullptr), TERRACE_IN_USE);
  const std::vector<terrace_key> keys = chain->keys();
  chain.reset();
  EXPECT_EQ(step(1, 8, {1}), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(match(keys).device, 2U);
  release(1);
  const Chain again{tokens_of(0, 8)};
  terrace_acquire both = of_chain(3, again);
  both.keys = keys.data();
  EXPECT_EQ(terrace_cache_acquire(cache_, &both, nullptr), TERRACE_INVALID_ARGUMENT);
  acquire(of_chain(3, again));
  release(3);
  acquire(of_chain(4, again));
  release(4);
}

TEST_F(CapiCache, hints_decide_what_goes_first) {
  ASSERT_EQ(terrace_cache_set(cache_, "write-policy", "none"), TERRACE_OK) << terrace_last_error();
  const Chain kept{tokens_of(0, 16)};
  const Chain pinned{tokens_of(100, 8)};
  const Chain ended{tokens_of(200, 8)};
  serve(1, kept, 1);
  serve(2, pinned, 2);
  terrace_release how = made<terrace_release>();
  how.flags = TERRACE_RELEASE_USED_UNTIL | TERRACE_RELEASE_NEXT_USE | TERRACE_RELEASE_OUTPUT_TOKENS;
  how.next_use = TERRACE_NEVER;
  how.output_tokens = 3;
  acquire(of_chain(3, ended));
  EXPECT_EQ(step(3, 8), TERRACE_OK);
  const std::uint64_t third = 3;
  EXPECT_EQ(terrace_cache_release(cache_, &third, 1, &how), TERRACE_OK);

  const std::vector<terrace_key> keys = kept.keys();
  std::uint64_t retention = 0;
  EXPECT_EQ(terrace_cache_retain(cache_, keys.data(), keys.size(), TERRACE_HIGHEST_PRIORITY, TERRACE_NEVER, &retention),
            TERRACE_OK);
  const std::vector<terrace_key> pinned_keys = pinned.keys();
  std::uint64_t pin = 0;
  EXPECT_EQ(terrace_cache_pin(cache_, pinned_keys.data(), pinned_keys.size(), TERRACE_NEVER, &pin), TERRACE_OK);
  serve(4, Chain{tokens_of(300, 24)}, 3);  // needs two blocks more than are free
  EXPECT_EQ(match(keys).device, 4U);
  EXPECT_EQ(match(pinned_keys).device, 2U);
  EXPECT_EQ(match(ended.keys()).device, 0U) << "its session has ended";

  EXPECT_EQ(terrace_cache_expect_use(cache_, keys.data(), keys.size(), 1'000'000'000), TERRACE_OK);
  EXPECT_EQ(terrace_cache_expect_use(cache_, keys.data(), keys.size(), -1), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_cache_end_retention(cache_, retention), TERRACE_OK);
  EXPECT_EQ(terrace_cache_end_retention(cache_, retention), TERRACE_NOT_FOUND);
  EXPECT_EQ(terrace_cache_unpin(cache_, pin), TERRACE_OK);
  EXPECT_EQ(terrace_cache_unpin(cache_, pin), TERRACE_NOT_FOUND);
  EXPECT_EQ(terrace_cache_retain(cache_, keys.data(), keys.size(), 99, TERRACE_NEVER, &retention), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("priority is 99, must be from 0 to 14")) << terrace_last_error();
}

TEST_F(CapiCache, quotas_count_the_blocks_of_a_tenant) {
  const Chain chain{tokens_of(0, 24), "tenant"};
  const std::uint64_t tenant = terrace_chain_tenant(chain.chain);
  std::uint64_t blocks = 0;
  EXPECT_EQ(terrace_cache_tenant_blocks(cache_, tenant, TERRACE_TIER_DEVICE, 0, &blocks), TERRACE_NOT_FOUND);
  ASSERT_EQ(terrace_cache_set_quota(cache_, tenant, 2, UINT32_MAX, 0), TERRACE_OK) << terrace_last_error();
  serve(1, chain, 1);
  serve(2, Chain{tokens_of(500, 40)}, 2);
  ASSERT_EQ(terrace_cache_tenant_blocks(cache_, tenant, TERRACE_TIER_DEVICE, 0, &blocks), TERRACE_OK);
  EXPECT_EQ(blocks, 2U) << "the four blocks beyond the quota have gone, and none of the other tenant";
  EXPECT_EQ(terrace_cache_remove_quota(cache_, tenant, 0), TERRACE_OK);
  EXPECT_EQ(terrace_cache_remove_quota(cache_, tenant, 0), TERRACE_NOT_FOUND);
  EXPECT_EQ(terrace_cache_set_quota(cache_, tenant, 2, 2, 7), TERRACE_INVALID_ARGUMENT);
}

TEST_F(CapiCache, a_prefetch_brings_blocks_to_the_host) {
  const Chain chain{tokens_of(0, 16)};
  serve(1, chain, 1);
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  ASSERT_EQ(terrace_cache_clear(cache_, TERRACE_CLEAR_KEEP_STORAGE), TERRACE_OK);
  const std::vector<terrace_key> keys = chain.keys();
  EXPECT_EQ(match(keys).storage, 4U);
  EXPECT_EQ(match(keys, TERRACE_HOST).storage, 0U);
  std::uint64_t prefetch = 0;
  ASSERT_EQ(terrace_cache_prefetch(cache_, keys.data(), keys.size(), TERRACE_STORAGE, 0, 0, &prefetch), TERRACE_OK)
      << terrace_last_error();
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  std::int32_t running = 1;
  EXPECT_EQ(terrace_cache_prefetching(cache_, prefetch, &running), TERRACE_OK);
  EXPECT_EQ(running, 0);
  EXPECT_EQ(match(keys).host, 4U);
  EXPECT_EQ(terrace_cache_cancel_prefetch(cache_, prefetch), TERRACE_NOT_FOUND);
  EXPECT_EQ(terrace_cache_prefetch(cache_, keys.data(), keys.size(), 9, 0, 0, &prefetch), TERRACE_INVALID_ARGUMENT);
}

TEST_F(CapiCache, the_memory_of_a_sleeping_engine_moves) {
  const Chain chain{tokens_of(0, 16)};
  acquire(of_chain(1, chain));
  EXPECT_EQ(terrace_cache_clear(cache_, TERRACE_CLEAR_IDLE_ONLY | TERRACE_CLEAR_WAIT), TERRACE_IN_USE);
  compute(1, 1);
  EXPECT_EQ(step(1, 16), TERRACE_OK);
  release(1);
  std::uint64_t durable = 0;
  ASSERT_EQ(terrace_cache_checkpoint(cache_, 60'000'000'000, &durable), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(durable, 4U);
  std::vector<std::byte> elsewhere(slot_bytes * device_blocks);
  const terrace_device_region region{0, 0, reinterpret_cast<std::uint64_t>(elsewhere.data()), slot_bytes, slot_bytes, 0, 0};
  EXPECT_EQ(terrace_cache_relocate(cache_, &region, 1), TERRACE_IN_USE) << "blocks are cached on the device";
  const std::uint32_t wait = TERRACE_CLEAR_IDLE_ONLY | TERRACE_CLEAR_RELEASE_HOST | TERRACE_CLEAR_KEEP_STORAGE;
  ASSERT_EQ(terrace_cache_clear(cache_, wait), TERRACE_OK);
  const terrace_acquire refused = of_chain(2, chain);
  EXPECT_EQ(terrace_cache_acquire(cache_, &refused, nullptr), TERRACE_PAUSED);
  EXPECT_EQ(statistics().cleared, 2U);
  EXPECT_EQ(statistics().host_blocks, 0U);
  ASSERT_EQ(terrace_cache_relocate(cache_, &region, 1), TERRACE_OK) << terrace_last_error();
  ASSERT_EQ(terrace_cache_resume(cache_), TERRACE_OK);
  EXPECT_EQ(statistics().cleared, 0U);
  EXPECT_EQ(statistics().host_blocks, 16U);
  memory_.swap(elsewhere);
  std::ranges::fill(elsewhere, std::byte{0xEE});
  EXPECT_EQ(acquire(of_chain(2, chain)).storage, 3U);
  expect_computed(2, 1, 3);
  release(2);
  const terrace_device_region wrong{3, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(terrace_cache_relocate(cache_, &wrong, 1), TERRACE_INVALID_ARGUMENT);
}

TEST_F(CapiCache, blocks_leave_by_name) {
  const Chain chain{tokens_of(0, 16)};
  serve(1, chain, 1);
  EXPECT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  const std::vector<terrace_key> keys = chain.keys();
  std::uint32_t freed = 0;
  EXPECT_EQ(terrace_cache_drop(cache_, keys.data(), keys.size(), &freed), TERRACE_OK);
  EXPECT_EQ(freed, 4U);
  EXPECT_EQ(terrace_cache_drop(cache_, Chain{tokens_of(900, 4)}.keys().data(), 1, &freed), TERRACE_NOT_FOUND);
  const terrace_request again = acquire(of_chain(2, chain));
  EXPECT_EQ(again.device, 0U);
  EXPECT_EQ(again.storage, 3U);
  const std::uint32_t slot = table(2)[0];
  std::uint32_t evicted = 0;
  const std::uint32_t* in_use = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(terrace_cache_evict(cache_, &slot, 1, 0, &evicted, &in_use, &count), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(count, 1U) << "a request has it";
  release(2);
  ASSERT_EQ(terrace_cache_evict(cache_, &slot, 1, 0, &evicted, &in_use, &count), TERRACE_OK);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(match(keys).device + match(keys).storage, 0U);
  EXPECT_EQ(terrace_cache_evict(cache_, &slot, 1, 9, &evicted, &in_use, &count), TERRACE_INVALID_ARGUMENT);
}

TEST_F(CapiCache, settings_and_sizes_change_while_it_serves) {
  EXPECT_EQ(terrace_cache_set(cache_, "policy", "lru"), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(terrace_cache_set(cache_, "policy", "best"), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("best")) << terrace_last_error();
  EXPECT_EQ(terrace_cache_set(cache_, "ranks", "2"), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_cache_resize(cache_, TERRACE_TIER_DEVICE, 8, 0), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(statistics().device_blocks, 8U);
  EXPECT_EQ(terrace_cache_resize(cache_, 3, 8, 0), TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(terrace_cache_resize(cache_, TERRACE_TIER_HOST, 1U << 27U, 0), TERRACE_OK) << "512 GiB";
  EXPECT_EQ(statistics().host_blocks, 16U);
  EXPECT_EQ(terrace_cache_make_room(cache_, TERRACE_TIER_DEVICE, 9, 0), TERRACE_NEVER_FITS);
  EXPECT_EQ(terrace_cache_pause_transfers(cache_) + terrace_cache_resume_transfers(cache_), TERRACE_OK);
}

TEST_F(CapiCache, events_name_the_device) {
  ASSERT_EQ(terrace_cache_record_events(cache_), TERRACE_OK);
  const Chain chain{tokens_of(0, 8)};
  serve(1, chain, 1);
  const terrace_cache_event* events = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(terrace_cache_events(cache_, &events, &count), TERRACE_OK);
  std::map<std::uint32_t, int> stored;
  for (std::size_t i = 0; i < count; ++i) stored[events[i].source] += events[i].kind == TERRACE_CACHE_STORED ? 1 : 0;
  EXPECT_EQ(stored[TERRACE_DEVICE], 2);
  EXPECT_EQ(events[0].tenant, terrace_chain_tenant(chain.chain));
}

TEST_F(CapiCache, points_that_were_not_given_out_are_refused) {
  const Chain chain{tokens_of(0, 8)};
  acquire(of_chain(1, chain));
  const std::vector<terrace_key> keys = chain.keys();
  EXPECT_EQ(terrace_cache_commit(cache_, 1, keys.data(), 1, 5, nullptr, nullptr), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("written is 5, which terrace_cache_signal() has not returned for each rank")) << terrace_last_error();
  std::uint64_t point = 0;
  ASSERT_EQ(terrace_cache_signal(cache_, nullptr, 0, &point), TERRACE_OK);
  EXPECT_EQ(terrace_cache_commit(cache_, 1, keys.data(), 1, point, nullptr, nullptr), TERRACE_OK);
  terrace_release how = made<terrace_release>();
  how.flags = TERRACE_RELEASE_USED_UNTIL;
  how.last_use = point + 1;
  const std::uint64_t id = 1;
  EXPECT_EQ(terrace_cache_release(cache_, &id, 1, &how), TERRACE_INVALID_ARGUMENT);
  how.last_use = point;
  EXPECT_EQ(terrace_cache_release(cache_, &id, 1, &how), TERRACE_OK);
}

TEST_F(CapiCache, that_ends_with_live_requests_ends_them) {
  const Chain chain{tokens_of(0, 8)};
  acquire(of_chain(1, chain));
  EXPECT_EQ(statistics().live, 1U);
  TearDown();
  SetUp();
  acquire(of_chain(1, chain));  // no request has the chain any more
}

TEST_F(CapiCache, calls_for_the_other_kind_say_so) {
  std::size_t leading = 0;
  EXPECT_EQ(terrace_offload_leading(cache_, 0, nullptr, 0, &leading), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("jobs are for one that terrace_offload_open() has made")) << terrace_last_error();
  terrace_offload_stop(cache_);
  terrace_offload_statistics jobs = made<terrace_offload_statistics>();
  EXPECT_EQ(terrace_offload_read_statistics(cache_, &jobs), TERRACE_INVALID_ARGUMENT);
  terrace_open_options options = made<terrace_open_options>();
  options.config = "[[pool]]\nblock-bytes = 4096\ndevice-blocks = 1\nhost-blocks = 4\n";
  terrace_cache* offload = nullptr;
  ASSERT_EQ(terrace_offload_open(&options, &offload), TERRACE_OK);
  const terrace_acquire request = made<terrace_acquire>();
  EXPECT_EQ(terrace_cache_acquire(offload, &request, nullptr), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("requests are for one that terrace_cache_open() has made")) << terrace_last_error();
  EXPECT_EQ(terrace_cache_resize(offload, TERRACE_TIER_DEVICE, 4, 0), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_cache_destroy(offload, TERRACE_NEVER), 1);
}

}  // namespace
}  // namespace terrace::test
