// Calls of terrace_cache_ functions with arguments at random (capi_arguments_test.cpp). Whatever happens, the process lives, a
// shared block has the bytes of its tokens, and a failure has a sentence.

#include "terrace.h"
#include "tests/capi/arguments.hpp"
#include "tests/capi/store_fixture.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace {

using terrace::test::Arguments;
using terrace::test::block_bytes;
using terrace::test::blocks;

/// A live request, and the bytes that its blocks have: those of the token with which each block begins.
struct Served {
  terrace_chain* chain = nullptr;
  std::vector<std::uint32_t> tokens;
};

void request_calls(std::uint64_t seed) {
  Arguments any{seed};
  constexpr std::uint32_t unit = 2;
  std::vector<std::byte> kv(blocks * block_bytes);
  const terrace_device_region region{0, 0, reinterpret_cast<std::uint64_t>(kv.data()), block_bytes, block_bytes, 0, 0};
  terrace_open_options options = made<terrace_open_options>();
  options.regions = &region;
  options.region_count = 1;
  options.config = "[storage]\nwhere = \"memory:\"\ncapacity = \"128KiB\"\n"
                   "[[pool]]\nblock-bytes = 4096\ndevice-blocks = 16\nhost-blocks = 8\n";
  terrace_cache* cache = nullptr;
  ASSERT_EQ(terrace_cache_open(&options, &cache), TERRACE_OK) << terrace_last_error();
  std::map<std::uint64_t, Served> live;
  const auto make_chain = [&](const std::vector<std::uint32_t>& tokens) {
    const terrace_root root = made<terrace_root>();
    terrace_chain* chain = nullptr;
    EXPECT_EQ(terrace_chain_make(&root, unit, &chain), TERRACE_OK);
    EXPECT_EQ(terrace_chain_append(chain, tokens.data(), tokens.size()), TERRACE_OK);
    return chain;
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
        request.external_units = any.one_in(8) ? any.number<std::uint32_t>(3) : 0;
        request.farthest = any.number<std::uint32_t>(5);
        request.flags = any.one_in(2) ? any.number<std::uint32_t>(0x20) & ~2U : 0;
        request.deadline = any.one_in(8) ? any.number<std::int64_t>(1000) : 0;
        terrace_request state = made<terrace_request>();
        const terrace_status status = terrace_cache_acquire(cache, &request, &state);
        Arguments::judge(status);
        if (status != TERRACE_OK) {
          terrace_chain_destroy(served.chain);
          break;
        }
        EXPECT_EQ(terrace_cache_drain(cache, 5'000'000'000), TERRACE_OK);
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
          for (std::size_t i = 0; i < block_bytes; ++i) ASSERT_EQ(row[i], right) << "seed " << seed << " call " << call;
        }
        const std::array<std::uint32_t, 2> more{static_cast<std::uint32_t>(any.below(2)),
                                                static_cast<std::uint32_t>(any.below(2))};
        const std::uint32_t added = any.one_in(2) ? 0 : static_cast<std::uint32_t>(any.below(3));
        const std::uint64_t computed = any.one_in(10) ? any.number<std::uint64_t>(40) : full * unit;
        const std::uint64_t needed = any.one_in(3) ? any.number<std::uint64_t>(30) : 0;
        std::array<std::int32_t, 16> row{};
        auto length = any.one_in(10) ? any.number<std::uint32_t>(20) : 0;
        const terrace_table entries_of{row.data(), row.size(), &length, any.one_in(10) ? any.number<std::uint32_t>(3) : 0,
                                       any.one_in(10) ? 0U : 1U};
        terrace_status status = -1;
        terrace_step step = made<terrace_step>();
        step.requests = &id;
        step.count = 1;
        step.tokens = more.data();
        step.token_counts = &added;
        step.token_capacity = any.one_in(10) ? any.number<std::uint32_t>(2) % 3 : 2;
        step.computed_tokens = computed <= full * unit ? &computed : &needed;
        step.needed_tokens = &needed;
        step.written = any.one_in(15) ? any.number<std::uint64_t>(3) : 0;
        step.tables = &entries_of;
        step.table_count = any.below(2);
        step.advance = any.number<std::uint32_t>(2);
        step.statuses = &status;
        if (*step.computed_tokens > full * unit && *step.computed_tokens <= served.tokens.size() + added) break;
        Arguments::judge(terrace_cache_step(cache, &step));
        served.tokens.insert(
            served.tokens.end(), more.begin(),
            more.begin() + static_cast<std::ptrdiff_t>(terrace_chain_tokens(served.chain) - served.tokens.size()));
        break;
      }
      case 5: {
        terrace_release how = made<terrace_release>();
        how.flags = any.number<std::uint32_t>(8);
        how.last_use = any.one_in(8) ? any.number<std::uint64_t>(3) : 0;
        how.next_use = any.one_in(3) ? TERRACE_NEVER : any.number<std::int64_t>(9) - 1;
        const terrace_status status = terrace_cache_release(cache, &id, 1, any.one_in(3) ? nullptr : &how);
        Arguments::judge(status);
        if (status != TERRACE_OK || !live.contains(id)) break;
        terrace_chain_destroy(live[id].chain);
        live.erase(id);
        break;
      }
      case 6: {
        const terrace_key* keys = nullptr;
        std::size_t count = 0;
        if (live.empty()) break;
        ASSERT_EQ(terrace_chain_keys(live.begin()->second.chain, &keys, &count), TERRACE_OK);
        const std::vector<terrace_key> prefix{keys, keys + count};
        const auto time = any.one_in(3) ? TERRACE_NEVER : any.number<std::int64_t>(100'000) - 5;
        std::uint64_t made_id = 0;
        Arguments::judge(terrace_cache_pin(cache, prefix.data(), count, any.number<std::int64_t>(100'000), &made_id));
        Arguments::judge(terrace_cache_unpin(cache, any.number<std::uint64_t>(9)));
        Arguments::judge(terrace_cache_retain(cache, prefix.data(), count, any.number<std::uint32_t>(15), time, &made_id));
        Arguments::judge(terrace_cache_end_retention(cache, any.number<std::uint64_t>(9)));
        Arguments::judge(terrace_cache_expect_use(cache, prefix.data(), count, time));
        Arguments::judge(terrace_cache_prefetch(cache, prefix.data(), count, any.number<std::uint32_t>(6), 0, time, &made_id));
        Arguments::judge(terrace_cache_cancel_prefetch(cache, any.number<std::uint64_t>(9)));
        terrace_found found = made<terrace_found>();
        Arguments::judge(terrace_cache_match(cache, prefix.data(), count, any.number<std::uint32_t>(6), &found));
        EXPECT_LE(found.device + found.host + found.storage + found.shared, count);
        std::uint32_t freed = 0;
        if (any.one_in(4)) Arguments::judge(terrace_cache_drop(cache, prefix.data(), count, &freed));
        break;
      }
      case 7: {
        const auto tenant = any.number<std::uint64_t>(2);
        Arguments::judge(terrace_cache_set_quota(cache, tenant, any.number<std::uint32_t>(9), any.number<std::uint32_t>(9),
                                                 any.number<std::uint16_t>(2)));
        std::uint64_t held = 0;
        Arguments::judge(
            terrace_cache_tenant_blocks(cache, tenant, any.number<std::uint32_t>(4), any.number<std::uint16_t>(2), &held));
        Arguments::judge(terrace_cache_remove_quota(cache, tenant, any.number<std::uint16_t>(2)));
        const std::uint32_t slot = any.number<std::uint32_t>(20);
        std::uint32_t evicted = 0;
        const std::uint32_t* in_use = nullptr;
        std::size_t count = 0;
        Arguments::judge(terrace_cache_evict(cache, &slot, 1, any.number<std::uint16_t>(2), &evicted, &in_use, &count));
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
        Arguments::judge(
            terrace_cache_find_blocks(cache, some.data(), some.size(), any.number<std::uint16_t>(3), &places, &count));
        Arguments::judge(terrace_cache_signal(cache, nullptr, any.number<std::uint32_t>(3), &point));
        Arguments::judge(terrace_cache_await(cache, id, any.number<std::uint32_t>(3), nullptr, any.number<std::uint32_t>(3)));
        Arguments::judge(terrace_cache_extend(cache, id, any.number<std::uint32_t>(3)));
        Arguments::judge(terrace_cache_advance(cache, id, any.number<std::uint64_t>(9), any.number<std::uint64_t>(3)));
        Arguments::judge(terrace_cache_hit_sources(cache, id, &sources, &count));
        Arguments::judge(terrace_cache_group_state(cache, id, any.number<std::uint16_t>(3), &state));
        Arguments::judge(terrace_cache_common_prefix(cache, any.number<std::uint16_t>(3), &state));
        Arguments::judge(terrace_cache_poll(cache, &events, &count));
        Arguments::judge(terrace_cache_end_step(cache));
        if (any.one_in(10)) Arguments::judge(terrace_cache_clear(cache, any.number<std::uint32_t>(0x2000)));
        if (any.one_in(2)) Arguments::judge(terrace_cache_resume(cache));
        break;
      }
    }
  }
  EXPECT_EQ(terrace_cache_destroy(cache, 5'000'000'000), 1) << "seed " << seed;
  for (auto& [id, served] : live) terrace_chain_destroy(served.chain);
}

TEST(CapiArguments, requests_survive_any_numbers) {
  const std::uint64_t first = terrace::test::seed_from_env_or(1);
  for (std::uint64_t seed = first; seed < first + 10; ++seed) {
    request_calls(seed);
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "TERRACE_SEED=" << seed;
  }
}

}  // namespace
