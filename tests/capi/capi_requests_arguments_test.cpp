// Calls of terrace_cache_ functions with arguments at random (capi_arguments_test.cpp). Whatever happens, the process lives, a
// shared block has the bytes of its tokens, a failure has a sentence, and a call that is refused has changed nothing.

#include "terrace.h"
#include "tests/capi/arguments.hpp"
#include "tests/capi/store_fixture.hpp"
#include "tests/patience.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace {

using terrace::test::Arguments;
using terrace::test::block_bytes;
using terrace::test::blocks;

constexpr std::uint32_t unit = 2;  // tokens of a block
constexpr std::int64_t long_enough = std::chrono::nanoseconds{terrace::test::patience}.count();

/// A live request, and the tokens that its engine has given it.
struct Served {
  terrace_chain* chain = nullptr;
  std::vector<std::uint32_t> tokens;
};

std::vector<terrace_key> keys_of(const terrace_chain* chain) {
  const terrace_key* keys = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(terrace_chain_keys(chain, &keys, &count), TERRACE_OK);
  return {keys, keys + count};
}

terrace_chain* make_chain(const std::vector<std::uint32_t>& tokens) {
  const terrace_root root = made<terrace_root>();
  terrace_chain* chain = nullptr;
  EXPECT_EQ(terrace_chain_make(&root, unit, &chain), TERRACE_OK);
  EXPECT_EQ(terrace_chain_append(chain, tokens.data(), tokens.size()), TERRACE_OK);
  return chain;
}

/// The chain of a request has the tokens that its engine has given it, and no others.
void expect_tokens(const Served& served) {
  ASSERT_EQ(terrace_chain_tokens(served.chain), served.tokens.size());
  terrace_chain* const again = make_chain(served.tokens);
  const std::vector<terrace_key> keys = keys_of(served.chain);
  EXPECT_EQ(std::memcmp(keys.data(), keys_of(again).data(), keys.size() * sizeof(terrace_key)), 0);
  terrace_chain_destroy(again);
}

/// What a refused call must leave as it was: the requests with their chains and block tables, and the counts of the cache apart
/// from those of refusals.
std::vector<std::uint64_t> state_of(const terrace_cache* cache, const std::map<std::uint64_t, Served>& live) {
  std::vector<std::uint64_t> state;
  terrace_cache_statistics counts = made<terrace_cache_statistics>();
  EXPECT_EQ(terrace_cache_read_statistics(cache, &counts), TERRACE_OK);
  counts.refused_no_room = counts.refused_never_fits = 0;
  state.resize(sizeof counts / sizeof(std::uint64_t));
  std::memcpy(state.data(), &counts, sizeof counts);
  for (const auto& [id, served] : live) {
    terrace_request request = made<terrace_request>();
    EXPECT_EQ(terrace_cache_read_request(cache, id, &request), TERRACE_OK);
    state.insert(state.end(), {terrace_chain_tokens(served.chain), request.state, request.units, request.committed_units});
    const std::uint32_t* table = nullptr;
    std::size_t entries = 0;
    if (terrace_cache_block_table(cache, id, 0, &table, &entries) == TERRACE_OK)
      state.insert(state.end(), table, table + entries);
  }
  return state;
}

void request_calls(std::uint64_t seed) {
  Arguments any{seed};
  std::vector<std::byte> kv(blocks * block_bytes);
  const terrace_device_region region{0, 0, reinterpret_cast<std::uint64_t>(kv.data()), block_bytes, block_bytes, 0, 0};
  terrace_open_options options = made<terrace_open_options>();
  options.regions = &region;
  options.region_count = 1;
  options.config = "idle-service = false\n[storage]\nwhere = \"memory:\"\ncapacity = \"128KiB\"\n"
                   "[[pool]]\nblock-bytes = 4096\ndevice-blocks = 16\nhost-blocks = 8\n";
  terrace_cache* cache = nullptr;
  ASSERT_EQ(terrace_cache_open(&options, &cache), TERRACE_OK) << terrace_last_error();
  std::map<std::uint64_t, Served> live;
  const auto judged = [&](const auto& call) {
    const std::vector<std::uint64_t> before = state_of(cache, live);
    const terrace_status status = call();
    Arguments::judge(status);
    if (status == TERRACE_OK) return true;
    EXPECT_EQ(state_of(cache, live), before) << terrace_last_error();
    return false;
  };
  const auto bytes_of = [&](std::size_t block, const std::vector<std::uint32_t>& tokens) {
    std::uint32_t sum = 1;
    for (std::size_t i = 0; i < (block + 1) * unit; ++i) sum = sum * 31 + tokens[i];
    return static_cast<std::byte>(sum);
  };
  for (int call = 0; call < 400; ++call) {
    const auto id = any.number<std::uint64_t>(4);
    switch (any.below(9)) {
      case 0:
      case 1: {
        Served served;
        for (std::uint64_t n = any.below(12) + 1; n > 0; --n) served.tokens.push_back(static_cast<std::uint32_t>(any.below(2)));
        served.chain = make_chain(served.tokens);
        terrace_acquire request = made<terrace_acquire>();
        request.request = id;
        request.chain = served.chain;
        request.units = any.one_in(8) ? any.number<std::uint32_t>(20) : 0;
        request.hit_units_max = any.number<std::uint32_t>(4);
        request.new_units_max = any.number<std::uint32_t>(4);
        request.room_left = any.one_in(8) ? any.number<std::uint32_t>(4) : 0;
        request.external_units = any.one_in(8) ? any.number<std::uint32_t>(3) : 0;
        request.farthest = any.number<std::uint32_t>(5);
        request.flags = any.one_in(2) ? any.number<std::uint32_t>(0x20) & ~2U : 0;
        request.deadline = any.one_in(8) ? any.number<std::int64_t>(1000) : 0;
        terrace_request state = made<terrace_request>();
        if (!judged([&] { return terrace_cache_acquire(cache, &request, &state); })) {
          terrace_chain_destroy(served.chain);
          break;
        }
        EXPECT_EQ(terrace_cache_drain(cache, long_enough), TERRACE_OK);
        live[id] = served;
        break;
      }
      case 2:
      case 3:
      case 4: {
        const auto found = live.find(id);
        if (found == live.end()) break;
        Served& served = found->second;
        terrace_request state = made<terrace_request>();
        Arguments::judge(terrace_cache_read_request(cache, id, &state));
        const std::uint32_t* table = nullptr;
        std::size_t entries = 0;
        if (terrace_cache_block_table(cache, id, 0, &table, &entries) != TERRACE_OK) break;
        // The blocks that are shared have the bytes of their tokens; the engine computes the others.
        const std::size_t full = std::min(served.tokens.size() / unit, entries);
        for (std::size_t block = 0; block < full; ++block) {
          std::byte* const row = kv.data() + table[block] * block_bytes;
          const std::byte right = bytes_of(block, served.tokens);
          if (block >= state.committed_units) std::memset(row, static_cast<int>(right), block_bytes);
          for (std::size_t i = 0; i < block_bytes; ++i) ASSERT_EQ(row[i], right) << "call " << call;
        }
        if (any.one_in(4)) {
          const std::vector<terrace_key> keys = keys_of(served.chain);
          const std::size_t some = std::min<std::size_t>(any.one_in(3) ? any.number<std::uint32_t>(20) : full, keys.size());
          const std::uint64_t written = any.one_in(8) ? any.number<std::uint64_t>(3) : 0;
          judged([&] { return terrace_cache_commit(cache, id, keys.data(), some, written, nullptr, nullptr); });
        }
        // The engine names a request once or twice. It never says that it has computed a block that it has not.
        const std::array<std::uint64_t, 2> ids{id, id};
        const std::size_t count = any.one_in(5) ? 2 : 1;
        std::array<std::uint32_t, 4> more{};
        for (std::uint32_t& token : more) token = static_cast<std::uint32_t>(any.below(2));
        const std::array<std::uint32_t, 2> added{any.one_in(2) ? 0 : static_cast<std::uint32_t>(any.below(3)),
                                                 any.one_in(2) ? 0 : static_cast<std::uint32_t>(any.below(3))};
        const std::uint64_t drawn = any.one_in(3) ? any.number<std::uint64_t>(served.tokens.size() + 3) : full * unit;
        const bool lies = drawn / unit > full && drawn <= entries * unit;
        const std::array<std::uint64_t, 2> computed{lies ? full * unit : drawn, full * unit};
        const auto needed_of = [&] { return any.one_in(3) ? any.number<std::uint64_t>(30) : 0; };
        const std::array<std::uint64_t, 2> needed{needed_of(), needed_of()};
        std::array<std::int32_t, 16> row{};
        const std::array<std::uint32_t, 2> row_of{0, 0};
        auto length = any.one_in(10) ? any.number<std::uint32_t>(20) : 0;
        const terrace_table entries_of{row.data(), row.size(), &length, any.one_in(10) ? any.number<std::uint32_t>(3) : 0,
                                       any.one_in(10) ? 0U : 1U};
        std::array<terrace_status, 2> statuses{-1, -1};
        terrace_step step = made<terrace_step>();
        step.requests = ids.data();
        step.count = count;
        step.tokens = more.data();
        step.token_counts = added.data();
        step.token_capacity = any.one_in(10) ? any.number<std::uint32_t>(2) % 5 : 4;
        step.computed_tokens = computed.data();
        step.needed_tokens = needed.data();
        step.written = any.one_in(15) ? any.number<std::uint64_t>(3) : 0;
        step.rows = row_of.data();
        step.tables = &entries_of;
        step.table_count = any.below(2);
        step.advance = any.number<std::uint32_t>(2);
        step.statuses = statuses.data();
        const std::vector<std::uint64_t> before = state_of(cache, live);
        Arguments::judge(terrace_cache_step(cache, &step));
        const std::uint32_t* token = more.data();
        bool changed = false;
        for (std::size_t i = 0; i < count; token += added[i++]) {
          const bool appends = statuses[i] == TERRACE_OK || statuses[i] == TERRACE_NO_ROOM || statuses[i] == TERRACE_NEVER_FITS;
          if (appends) served.tokens.insert(served.tokens.end(), token, token + added[i]);
          changed |= appends;
        }
        if (!changed) {
          EXPECT_EQ(state_of(cache, live), before) << terrace_last_error();
        }
        expect_tokens(served);
        break;
      }
      case 5: {
        terrace_release how = made<terrace_release>();
        how.flags = any.number<std::uint32_t>(8);
        how.last_use = any.one_in(8) ? any.number<std::uint64_t>(3) : 0;
        how.next_use = any.one_in(3) ? TERRACE_NEVER : any.number<std::int64_t>(9) - 1;
        const terrace_release* const given = any.one_in(3) ? nullptr : &how;
        const auto found = live.extract(id);
        const bool released = judged([&] { return terrace_cache_release(cache, &id, 1, given); });
        EXPECT_EQ(terrace_cache_compute_is_idle(cache), TERRACE_OK);
        if (found && released) terrace_chain_destroy(found.mapped().chain);
        else if (found) live[id] = found.mapped();
        break;
      }
      case 6: {
        if (live.empty()) break;
        const std::vector<terrace_key> prefix = keys_of(live.begin()->second.chain);
        const std::size_t count = prefix.size();
        const auto time = any.one_in(3) ? TERRACE_NEVER : any.number<std::int64_t>(100'000) - 5;
        std::uint64_t made_id = 0;
        judged([&] { return terrace_cache_pin(cache, prefix.data(), count, any.number<std::int64_t>(100'000), &made_id); });
        judged([&] { return terrace_cache_unpin(cache, any.number<std::uint64_t>(9)); });
        judged([&] { return terrace_cache_retain(cache, prefix.data(), count, any.number<std::uint32_t>(15), time, &made_id); });
        judged([&] { return terrace_cache_end_retention(cache, any.number<std::uint64_t>(9)); });
        judged([&] { return terrace_cache_expect_use(cache, prefix.data(), count, time); });
        judged(
            [&] { return terrace_cache_prefetch(cache, prefix.data(), count, any.number<std::uint32_t>(6), 0, time, &made_id); });
        judged([&] { return terrace_cache_cancel_prefetch(cache, any.number<std::uint64_t>(9)); });
        terrace_found found = made<terrace_found>();
        judged([&] { return terrace_cache_match(cache, prefix.data(), count, any.number<std::uint32_t>(6), &found); });
        EXPECT_LE(found.device + found.host + found.storage + found.shared, count);
        std::uint32_t freed = 0;
        if (any.one_in(4)) judged([&] { return terrace_cache_drop(cache, prefix.data(), count, &freed); });
        break;
      }
      case 7: {
        const auto tenant = any.number<std::uint64_t>(2);
        judged([&] {
          return terrace_cache_set_quota(cache, tenant, any.number<std::uint32_t>(9), any.number<std::uint32_t>(9),
                                         any.number<std::uint16_t>(2));
        });
        std::uint64_t held = 0;
        judged([&] {
          return terrace_cache_tenant_blocks(cache, tenant, any.number<std::uint32_t>(4), any.number<std::uint16_t>(2), &held);
        });
        judged([&] { return terrace_cache_remove_quota(cache, tenant, any.number<std::uint16_t>(2)); });
        const std::uint32_t slot = any.number<std::uint32_t>(20);
        std::uint32_t evicted = 0;
        const std::uint32_t* in_use = nullptr;
        std::size_t count = 0;
        judged([&] { return terrace_cache_evict(cache, &slot, 1, any.number<std::uint16_t>(2), &evicted, &in_use, &count); });
        break;
      }
      default: {
        std::uint64_t point = 0;
        std::uint32_t state = 0;
        const terrace_request_event* events = nullptr;
        const std::uint8_t* sources = nullptr;
        std::size_t count = 0;
        const terrace_place* places = nullptr;
        const std::vector<terrace_key> some(any.number<std::uint32_t>(3) % 4);
        judged([&] {
          return terrace_cache_find_blocks(cache, some.data(), some.size(), any.number<std::uint16_t>(3), &places, &count);
        });
        read_calls(any, cache);
        std::uint64_t needed = 0;
        Arguments::judge(terrace_cache_blocks_for(cache, any.number<std::uint64_t>(99), any.number<std::uint16_t>(3), &needed));
        terrace_item item{};
        Arguments::judge(
            terrace_chain_media_across(live.empty() ? nullptr : live.begin()->second.chain, any.number<std::uint32_t>(9), &item));
        judged([&] { return terrace_cache_signal(cache, nullptr, any.number<std::uint32_t>(3), &point); });
        judged(
            [&] { return terrace_cache_await(cache, id, any.number<std::uint32_t>(3), nullptr, any.number<std::uint32_t>(3)); });
        judged([&] { return terrace_cache_extend(cache, id, any.number<std::uint32_t>(3)); });
        judged([&] { return terrace_cache_advance(cache, id, any.number<std::uint64_t>(9), any.number<std::uint64_t>(3)); });
        judged([&] { return terrace_cache_hit_sources(cache, id, &sources, &count); });
        judged([&] { return terrace_cache_group_state(cache, id, any.number<std::uint16_t>(3), &state); });
        judged([&] { return terrace_cache_common_prefix(cache, any.number<std::uint16_t>(3), &state); });
        judged([&] { return terrace_cache_poll(cache, &events, &count); });
        judged([&] { return terrace_cache_end_step(cache); });
        if (any.one_in(10)) judged([&] { return terrace_cache_clear(cache, any.number<std::uint32_t>(0x2000)); });
        if (any.one_in(2)) judged([&] { return terrace_cache_resume(cache); });
        break;
      }
    }
  }
  EXPECT_EQ(terrace_cache_destroy(cache, long_enough), 1);
  for (auto& [id, served] : live) terrace_chain_destroy(served.chain);
}

void plan_calls(std::uint64_t seed) {
  Arguments any{seed};
  std::array<terrace_layer_shape, 3> layers{};
  for (terrace_layer_shape& layer : layers) {
    layer = {any.number<std::uint32_t>(5),  any.number<std::uint32_t>(9), any.number<std::uint32_t>(40),
             any.number<std::uint32_t>(99), any.number<std::uint32_t>(2), any.number<std::uint32_t>(9),
             any.number<std::uint32_t>(99), any.number<std::uint32_t>(3), any.number<std::uint32_t>(2),
             any.number<std::uint32_t>(6),  any.number<std::uint32_t>(3), any.number<std::uint32_t>(6),
             any.number<std::uint32_t>(3),  any.number<std::uint32_t>(9), any.one_in(4) ? any.number<std::uint64_t>(99) : 0};
    if (layer.kv_heads == 0) layer.head_size = 0;
    if (layer.kv_heads != 0) layer.latent_size = 0;
  }
  terrace_plan_order order = made<terrace_plan_order>();
  order.layers = any.one_in(20) ? nullptr : layers.data();
  order.layer_count = any.below(layers.size() + 1);
  order.device_bytes = any.one_in(4) ? any.number<std::uint64_t>(9999) << any.below(40) : std::uint64_t{1} << 34;
  order.host_bytes = any.number<std::uint64_t>(9999) << any.below(40);
  order.block_unit = any.one_in(4) ? any.number<std::uint64_t>(9) : 0;
  order.ranks = any.number<std::uint32_t>(5);
  order.tokens = any.number<std::uint32_t>(9999);
  order.chunk_tokens = any.number<std::uint32_t>(999);
  order.encoder_tokens = any.number<std::uint32_t>(999);
  order.staging_blocks = any.number<std::uint32_t>(9);
  std::array<terrace_planned_group, 2 * layers.size()> groups{};
  std::array<terrace_planned_pool, 2 * layers.size()> pools{};
  terrace_group_plan plan = made<terrace_group_plan>();
  const terrace_status status = terrace_plan_groups(&order, groups.data(), pools.data(), &plan);
  Arguments::judge(status);
  EXPECT_TRUE(status != TERRACE_OK || plan.device_used <= order.device_bytes) << seed;
}

TEST(CapiArguments, plans_survive_any_numbers) {
  const std::uint64_t first = terrace::test::seed_from_env_or(1);
  for (std::uint64_t seed = first; seed < first + 2000; ++seed) plan_calls(seed);
}

TEST(CapiArguments, requests_survive_any_numbers) {
  const std::uint64_t first = terrace::test::seed_from_env_or(1);
  const std::uint64_t count = terrace::test::seeds_from_env_or(10, 200);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    request_calls(seed);
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "TERRACE_SEED=" << seed;
  }
}

}  // namespace
