// Block sizes and counts from the shape of a model and a memory budget, and how tokens are distributed over ranks.

#include "terrace/model_plan.hpp"
#include "base/random.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/system/pool_plan.hpp"
#include "runtime/system/system_config.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/refusal.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

constexpr TypicalSequence typical{.tokens = 4096, .chunk_tokens = 512, .encoder_tokens = 256};
constexpr MemoryBudget large{.device = GiB * 40, .host = GiB * 400};

LayerShape heads(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_size) {
  LayerShape shape;
  shape.layers = layers;
  shape.kv_heads = kv_heads;
  shape.head_size = head_size;
  return shape;
}

std::string why_no_groups(const ModelShape& model, const MemoryBudget& budget = large) {
  return test::refusal_of<std::invalid_argument>([&] { (void)plan_groups(model, typical, budget); });
}

TEST(ModelPlan, sizes_the_blocks_of_known_models) {
  const GroupPlan llama = plan_groups({{heads(32, 8, 128)}}, typical, large);
  ASSERT_EQ(llama.pools.size(), 1U);
  EXPECT_EQ(llama.pools[0].block_bytes, MiB * 2);
  EXPECT_EQ(llama.pools[0].layers, 32U);
  EXPECT_EQ(llama.pools[0].device_blocks, Blocks{20'480});
  EXPECT_EQ(llama.pools[0].host_blocks, Blocks{204'800});
  EXPECT_EQ(llama.sequences, 80U);
  EXPECT_FALSE(llama.pools[0].null_block);

  LayerShape latent;
  latent.layers = 61;
  latent.latent_size = 576;
  const GroupPlan mla = plan_groups({{latent}, 8}, typical, large);
  EXPECT_EQ(mla.pools[0].block_bytes, Bytes{61 * 576 * 2 * 16}) << "every rank holds the same latent";
  EXPECT_EQ(mla.rank_payload, RankPayload::replicated);
  EXPECT_EQ(mla.pools[0].host_blocks.value(), GiB * 400 / Bytes{61 * 576 * 2 * 16});

  LayerShape window = heads(20, 4, 256);
  window.kind = GroupKind::sliding_window;
  window.span_tokens = 1024;
  const GroupPlan hybrid = plan_groups({{heads(20, 4, 256), window, heads(4, 4, 256)}}, typical, large);
  ASSERT_EQ(hybrid.pools.size(), 2U) << "groups of equal blocks share a pool";
  EXPECT_EQ(hybrid.groups[0].pool, hybrid.groups[1].pool);
  EXPECT_TRUE(hybrid.pools[0].null_block);
  EXPECT_FALSE(hybrid.pools[1].null_block);
}

TEST(ModelPlan, divides_heads_among_ranks_and_repeats_them_if_there_are_too_few) {
  const GroupPlan divided = plan_groups({{heads(32, 8, 128)}, 4}, typical, large);
  EXPECT_EQ(divided.pools[0].block_bytes, MiB * 2);
  EXPECT_EQ(divided.rank_payload, RankPayload::sharded);
  EXPECT_EQ(divided.pools[0].device_blocks, Blocks{81'920}) << "each rank holds a quarter of every block";
  EXPECT_EQ(divided.host_used, GiB * 400);
  const GroupPlan repeated = plan_groups({{heads(32, 2, 128)}, 4}, typical, large);
  EXPECT_EQ(repeated.pools[0].block_bytes, MiB) << "four ranks with one of two heads each";
  EXPECT_EQ(why_no_groups({{heads(32, 6, 128)}, 4}),
            "layers 0: 6 KV heads cannot be divided evenly among 4 ranks: one must be a multiple of the other");
}

TEST(ModelPlan, keeps_scales_inside_the_block_or_in_a_group_of_their_own) {
  LayerShape shape = heads(32, 8, 128);
  shape.type = KvType::int8;
  shape.scales = QuantisationScales{};
  const GroupPlan inside = plan_groups({{shape}}, typical, large);
  ASSERT_EQ(inside.groups.size(), 1U);
  EXPECT_EQ(inside.pools[0].block_bytes, Bytes{32 * 16 * 2 * 8 * (128 + 4)});
  shape.scales->place = QuantisationScales::Place::own_group;
  shape.scales->type = KvType::float16;
  shape.scales->values_per_scale = 32;
  const GroupPlan apart = plan_groups({{shape}}, typical, large);
  ASSERT_EQ(apart.groups.size(), 2U);
  EXPECT_EQ(apart.pools[0].block_bytes, MiB);
  EXPECT_EQ(apart.pools[apart.groups[1].pool.value()].block_bytes, Bytes{32 * 16 * 2 * 8 * 4 * 2});
  const Blocks more = apart.pools[1].device_blocks - apart.pools[0].device_blocks;
  EXPECT_LE(more, Blocks{16}) << "a sequence needs as many of both; the smaller blocks fill what is left";
  shape.scales->values_per_scale = 48;
  EXPECT_EQ(why_no_groups({{shape}}), "layers 0: 128 values cannot be divided into runs of 48 with one scale each");
}

TEST(ModelPlan, says_what_does_not_fit_and_what_would) {
  ModelShape model{{heads(3, 1, 20)}};
  MemoryBudget budget = large;
  budget.block_unit = KiB * 4;
  EXPECT_EQ(why_no_groups(model, budget),
            "layers 0: a block of 16 tokens has 3840 bytes, which is not a multiple of 4KiB: 256 tokens would do");
  model.layers[0].block_tokens = 256;
  EXPECT_EQ(why_no_groups(model, budget), "");
  EXPECT_EQ(why_no_groups({{heads(32, 8, 128)}}, {.device = MiB * 100}),
            "a sequence of 4096 tokens needs 512MiB on the device, and there are 100MiB");
  LayerShape odd = heads(1, 1, 1);
  odd.type = KvType::int4;
  odd.value_head_size = 2;
  odd.block_tokens = 1;
  EXPECT_EQ(why_no_groups({{odd}}), "layers 0: 3 values of int4 in 1 tokens are not a whole number of bytes: 2 tokens would do");
  LayerShape both = heads(1, 1, 64);
  both.latent_size = 5;
  EXPECT_EQ(why_no_groups({{both}}), "layers 0: one of kv_heads with head_size, latent_size, and state_bytes must be set");
  EXPECT_EQ(why_no_groups({{heads(1, 1, 0)}}), "layers 0: kv_heads and head_size must both be set");
  EXPECT_EQ(why_no_groups({{heads(0, 1, 64)}}), "layers 0: there is no layer: at least 1 is needed");
  EXPECT_EQ(why_no_groups({}), "a model needs at least one kind of layer");
  EXPECT_EQ(why_no_groups({std::vector(1025, heads(1, 1, 64))}), "a model has at most 1024 kinds of layers");
  EXPECT_EQ(why_no_groups({{heads(1, 1, 64)}}, {.device = TiB * 1024 * 1025}),
            "1049600TiB are given, must be at most 1048576TiB");
  LayerShape state;
  state.layers = 2;
  state.state_bytes = Bytes{1000};
  EXPECT_EQ(why_no_groups({{state}}), "layers 0: state_bytes is for kind recurrent, and the others are not");
  state.kind = GroupKind::recurrent;
  EXPECT_EQ(why_no_groups({{state}, 3}), "layers 0: a state of 1000 bytes cannot be divided evenly among 3 ranks");
}

/// The bytes of one layer of one block on one rank, counted one by one.
std::uint64_t counted(const LayerShape& shape, std::uint32_t ranks) {
  if (shape.kind == GroupKind::recurrent) return count(shape.state_bytes) / ranks;
  std::uint64_t bits = 0;
  for (std::uint32_t token = 0; token < shape.block_tokens; ++token) {
    for (std::uint32_t head = 0; head * ranks < std::max(shape.kv_heads, ranks) && shape.latent_size == 0; ++head) {
      for (std::uint32_t i = 0; i < 2 * shape.head_size; ++i) bits += bits_of(shape.type);
      if (shape.scales) bits += std::uint64_t{2} * bits_of(shape.scales->type);
    }
    for (std::uint32_t i = 0; i < shape.latent_size; ++i) bits += bits_of(shape.type);
    if (shape.scales && shape.latent_size > 0) bits += bits_of(shape.scales->type);
  }
  return bits / 8;
}

TEST(ModelPlan, fills_the_budget_and_never_exceeds_it) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    ModelShape model;
    model.ranks = 1U << random.below(3);
    const std::uint64_t kinds = random.between(1, 4);
    for (std::uint64_t i = 0; i < kinds; ++i) {
      LayerShape shape;
      shape.kind = i == 0 ? GroupKind::full : static_cast<GroupKind>(random.below(5));
      shape.layers = static_cast<std::uint32_t>(random.between(4, 40));
      shape.block_tokens = 8U << random.below(3);
      if (shape.kind == GroupKind::recurrent) {
        shape.state_bytes = Bytes{random.between(16, 1000) * 64};
      } else if (random.chance(0.2)) {
        shape.latent_size = static_cast<std::uint32_t>(random.between(64, 300)) * 2;
      } else {
        shape.kv_heads = 1U << random.below(4);
        shape.head_size = static_cast<std::uint32_t>(random.between(4, 32)) * 8;
      }
      if (shape.kind == GroupKind::sliding_window) shape.span_tokens = 100;
      if (shape.kind == GroupKind::chunked_local) shape.span_tokens = shape.block_tokens * 4;
      shape.type = static_cast<KvType>(random.below(6));
      if (shape.kind != GroupKind::recurrent && random.chance(0.4)) shape.scales = QuantisationScales{};
      shape.optional = i > 0 && shape.kind != GroupKind::cross && random.chance(0.2);
      model.layers.push_back(shape);
    }
    const MemoryBudget budget{.device = GiB * random.between(32, 64), .host = GiB * random.between(0, 64)};
    const GroupPlan plan = plan_groups(model, typical, budget);
    Bytes largest{};
    Bytes device{};
    Bytes host{};
    const std::uint64_t copies = plan.rank_payload == RankPayload::replicated ? 1 : model.ranks;
    for (const PoolOptions& pool : plan.pools) {
      const Bytes each{count(pool.block_bytes) / copies};
      device += each * pool.device_blocks.value();
      host += pool.block_bytes * pool.host_blocks.value();
      largest = std::max(largest, pool.block_bytes);
    }
    ASSERT_EQ(plan.groups.size(), model.layers.size());
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      const PoolOptions& pool = plan.pools[plan.groups[g].pool.value()];
      EXPECT_EQ(count(pool.block_bytes), counted(model.layers[g], model.ranks) * model.layers[g].layers * copies);
      EXPECT_EQ(pool.layers, model.layers[g].layers);
    }
    EXPECT_EQ(device, plan.device_used);
    EXPECT_EQ(host, plan.host_used);
    EXPECT_LE(device, budget.device);
    EXPECT_LE(host, budget.host);
    EXPECT_LT(count(budget.device) - count(device), count(largest)) << "it fills the device";
    EXPECT_LT(count(budget.host) - count(host), count(largest) + copies) << "and the host";
    EXPECT_GE(plan.sequences, 1U);
    CacheSystemOptions options;
    plan.apply_to(options);
    EXPECT_EQ(options.ranks.size(), model.ranks);
    EXPECT_NO_THROW((void)manager_config(options));
  }
}

/// The bytes that a pool of very large blocks leaves over are not given away one by one, and a sum does not overflow.
TEST(ModelPlan, ends_soon_for_any_sizes) {
  LayerShape state;
  state.kind = GroupKind::recurrent;
  state.layers = 1;
  state.state_bytes = TiB * 512;
  LayerShape small = heads(1, 1, 1);
  small.block_tokens = 1;
  const MemoryBudget much{.device = TiB * 1024 * 1024};
  const std::string sentence = test::refusal_of<std::invalid_argument>([&] {
    (void)plan_groups({{state, small}}, {.tokens = 2}, much);
  });
  EXPECT_NE(sentence.find("are too small for so much memory"), std::string::npos) << sentence;
  LayerShape large_blocks = heads(4096, 1024, 1024);
  large_blocks.block_tokens = 1;
  const std::string needs = test::refusal_of<std::invalid_argument>(
      [&] { (void)plan_groups({{large_blocks}}, {.tokens = std::uint32_t{1} << 31}, much); });
  EXPECT_NE(needs.find("needs"), std::string::npos) << "2^65 bytes";
}

TEST(ModelPlan, makes_options_that_a_cache_starts_with) {
  LayerShape window = heads(2, 2, 16);
  window.kind = GroupKind::sliding_window;
  window.span_tokens = 32;
  LayerShape full = heads(4, 2, 16);
  full.type = KvType::int8;
  full.scales = QuantisationScales{.place = QuantisationScales::Place::own_group};
  const GroupPlan plan = plan_groups({{full, window}, 2}, {.tokens = 256, .chunk_tokens = 32}, {.device = MiB, .host = MiB * 2});
  CacheSystemOptions options;
  plan.apply_to(options);
  CacheSystem system{options};
  EXPECT_EQ(system.pool_count(), plan.pools.size());
  ASSERT_EQ(system.devices().size(), 2U);
  for (std::size_t pool = 0; pool < plan.pools.size(); ++pool) {
    const DevicePool& its = system.devices().at(1).info().pools[pool];
    EXPECT_EQ(its.block_bytes * 2, plan.pools[pool].block_bytes);
    EXPECT_EQ(its.layers, plan.pools[pool].layers);
  }
}

SizedGroup group(GroupKind kind, std::uint32_t block_tokens, std::uint32_t span_tokens, Bytes block_bytes) {
  SizedGroup sized;
  sized.group.kind = kind;
  sized.group.block_tokens = block_tokens;
  sized.group.span_tokens = span_tokens;
  sized.block_bytes = block_bytes;
  return sized;
}

/// Nine groups with eight block sizes that have few common divisors.
std::vector<SizedGroup> nine_groups() {
  return {group(GroupKind::full, 16, 0, KiB * 40),
          group(GroupKind::full, 32, 0, KiB * 17),
          group(GroupKind::sliding_window, 16, 128, KiB * 100),
          group(GroupKind::sliding_window, 32, 512, KiB * 72),
          group(GroupKind::chunked_local, 16, 256, KiB * 48),
          group(GroupKind::recurrent, 64, 0, KiB * 700),
          group(GroupKind::recurrent, 32, 0, KiB * 333),
          group(GroupKind::cross, 16, 0, KiB * 40),
          group(GroupKind::full, 64, 0, KiB * 9)};
}

ManagerConfig config_of(const GroupPlan& plan) {
  CacheSystemOptions options;
  plan.apply_to(options);
  return manager_config(options);
}

std::string why_no_pools(std::span<const SizedGroup> groups, const TypicalSequence& sequence, Bytes device) {
  return test::refusal_of<std::invalid_argument>([&] { (void)plan_pools(groups, sequence, device, Bytes{}); });
}

TEST(PoolPlan, leaves_less_than_the_smallest_block_over) {
  for (const Bytes device : {MiB * 300, MiB * 999, GiB * 7}) {
    const GroupPlan plan = plan_pools(nine_groups(), {2048, 512, 64}, device, device, 2);
    EXPECT_LE(plan.device_used, device);
    EXPECT_LT(count(device) - count(plan.device_used), count(KiB * 9));
    EXPECT_LE(plan.host_used, device);
    EXPECT_LT(count(device) - count(plan.host_used), count(KiB * 9));
  }
}

TEST(PoolPlan, says_how_much_would_do_where_there_is_too_little) {
  const std::vector<SizedGroup> groups{group(GroupKind::full, 16, 0, KiB * 64)};
  EXPECT_EQ(plan_pools(groups, {160, 0, 0}, KiB * 640, Bytes{}).sequences, 1U);
  EXPECT_NE(why_no_pools(groups, {161, 0, 0}, KiB * 640).find("704KiB"), std::string::npos);
  EXPECT_NE(why_no_pools({}, {16, 0, 0}, KiB).find("a group"), std::string::npos);
  const std::vector<SizedGroup> cross{group(GroupKind::cross, 16, 0, KiB)};
  EXPECT_NE(why_no_pools(cross, {16, 0, 0}, MiB).find("encoder tokens"), std::string::npos);
}

/// Allocates as many sequences as fit, of all lengths around the typical one.
TEST(PoolPlan, nine_mixed_groups_waste_under_a_twentieth_of_their_bytes_when_full) {
  const TypicalSequence sequence{1024, 256, 64};
  const Bytes device = MiB * 512;
  const GroupPlan plan = plan_pools(nine_groups(), sequence, device, Bytes{});
  CacheManager manager{config_of(plan)};
  const std::uint32_t unit = manager.unit_tokens();
  Random random{9};
  std::deque<RequestId> running;
  std::uint64_t next = 0;
  std::uint64_t refused = 0;
  for (int step = 0; step < 3000; ++step) {
    const auto units = static_cast<std::uint32_t>(random.between(sequence.tokens / 2, sequence.tokens * 3 / 2) / unit);
    const std::vector<std::uint32_t> names(units, static_cast<std::uint32_t>(next % 400));
    const std::vector<BlockKey> keys = test::keys_of(names);
    AcquireRequest request;
    request.id = RequestId{++next};
    request.keys = keys;
    request.units = HashUnits{units};
    const std::uint32_t chunk = sequence.chunk_tokens / unit;
    request.new_units_max = HashUnits{chunk};
    request.encoder_tokens = sequence.encoder_tokens;
    if (!manager.acquire(request)) {
      ++refused;
      ASSERT_FALSE(running.empty());
      ASSERT_TRUE(manager.requests().release(running.front(), Fence{}).has_value());
      manager.settle();
      running.pop_front();
      continue;
    }
    running.push_back(request.id);
    const auto hits = static_cast<std::uint32_t>(manager.requests().hit_sources(request.id)->size());
    bool room = true;
    for (std::uint32_t done = std::min(units, hits + chunk); room; done += chunk) {
      done = std::min(done, units);
      ASSERT_TRUE(manager.requests().commit(request.id, std::span{keys}.first(done), Fence{}).has_value());
      manager.settle();
      ASSERT_TRUE(manager.requests().advance(request.id, std::uint64_t{done} * unit, Fence{}).has_value());
      manager.settle();
      if (done == units) break;
      room = manager.requests().extend(request.id, std::min(chunk, units - done)).has_value();
      manager.settle();
    }
    if (step % 100 == 0) manager.check_invariants();
  }
  EXPECT_GT(refused, 100U);  // the pools were full
  std::uint64_t used = 0;
  for (std::size_t pool = 0; pool < plan.pools.size(); ++pool) {
    const Ledger ledger = manager.device_ledger(PoolId{static_cast<std::uint16_t>(pool)});
    used += (ledger.held + ledger.ready) * count(plan.pools[pool].block_bytes);
  }
  EXPECT_GE(used, count(device) * 95 / 100) << "of " << count(device);
  for (const RequestId id : running) ASSERT_TRUE(manager.requests().release(id, Fence{}).has_value());
}

}  // namespace
}  // namespace terrace
