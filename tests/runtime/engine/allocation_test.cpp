// The step path of a warm manager allocates nothing. This is a separate program, because it counts every allocation.
#include "lab/policies/policies.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/cache.hpp"
#include "tests/allocation_count.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/ranked_transfers.hpp"
#include "transfer/engine/transfer_port.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <unordered_set>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using tools::PolicyKind;

constexpr std::uint32_t device_blocks = 2000;
constexpr std::uint32_t prompt_blocks = 64;

/// Prompts in families: the prompts of a family share their first half and differ after it.
std::vector<std::vector<BlockKey>> prompts() {
  std::vector<std::vector<BlockKey>> made;
  for (std::uint32_t family = 0; family < 8; ++family) {
    for (std::uint32_t member = 0; member < 16; ++member) {
      std::vector<std::uint32_t> names(prompt_blocks, 1 + family);
      for (std::uint32_t i = prompt_blocks / 2; i < prompt_blocks; ++i) names[i] = 100 + family * 16 + member;
      made.push_back(test::keys_of(names));
    }
  }
  return made;
}

/// A whole request: match, acquire, extend by one block of output, commit in two parts, release.
void serve(CacheManager& manager, std::uint64_t id, const std::vector<BlockKey>& keys) {
  const RequestId request{id};
  (void)manager.requests().match(keys);
  TERRACE_CHECK(manager.acquire(test::request_for(id, keys)).has_value());
  TERRACE_CHECK(manager.requests().extend(request, 1).has_value());
  manager.settle();
  TERRACE_CHECK(manager.requests().commit(request, std::span{keys}.first(keys.size() / 2), Fence{id}).has_value());
  manager.settle();
  TERRACE_CHECK(manager.requests().commit(request, keys, Fence{id}).has_value());
  manager.settle();
  TERRACE_CHECK(manager.requests().advance(request, keys.size(), Fence{id}).has_value());
  manager.settle();
  TERRACE_CHECK(manager.requests().block_table(request)->size() == keys.size() + 1);
  TERRACE_CHECK(manager.requests().request_stats(request).has_value());
  TERRACE_CHECK(manager.requests().release(request, Fence{id}).has_value());
  manager.settle();
  manager.actions().clear();
}

class Allocations : public testing::TestWithParam<PolicyKind> {};
INSTANTIATE_TEST_SUITE_P(Policies, Allocations, testing::Values(PolicyKind::lru, PolicyKind::adaptive));

void expect_none_once_warm(CacheManager& manager) {
  const auto requests = prompts();
  std::uint64_t id = 0;
  // There are more blocks than fit the device, so that each round evicts what the next one needs.
  ASSERT_GT(8 * (prompt_blocks / 2) + requests.size() * (prompt_blocks / 2), device_blocks);
  for (int round = 0; round < 100; ++round) {
    for (const auto& keys : requests) serve(manager, ++id, keys);
  }
  const std::uint64_t evicted_before = manager.stats().evicted_device;
  const std::size_t before = allocations;
  for (int round = 0; round < 4; ++round) {
    for (const auto& keys : requests) serve(manager, ++id, keys);
  }
  EXPECT_EQ(allocations - before, 0U);
  EXPECT_GT(manager.requests().match(requests.back()).total(), 0U);  // and it has had hits
  EXPECT_GT(manager.stats().evicted_device, evicted_before + 4 * device_blocks);
}

ManagerConfig with_policy(PolicyKind policy) {
  ManagerConfig config;
  config.policy = policy_factory(policy);
  config.pools[0].device_blocks = device_blocks;
  return config;
}

TEST_P(Allocations, are_none_on_the_step_path_once_warm) {
  CacheManager manager{with_policy(GetParam())};
  expect_none_once_warm(manager);
}

TEST_P(Allocations, are_none_where_residency_is_sampled) {
  CacheManager manager{with_policy(GetParam())};
  manager.administration().sample_residency(64);
  expect_none_once_warm(manager);
  EXPECT_GT(manager.administration().residency_totals().device.lifetime.total(), 0U);
}

TEST_P(Allocations, are_none_where_groups_have_windows_and_states) {
  ManagerConfig config = with_policy(GetParam());
  GroupConfig window;
  window.kind = GroupKind::sliding_window;
  window.span_tokens = 16;
  window.pool = PoolId{1};
  GroupConfig state;
  state.kind = GroupKind::recurrent;
  // A prompt that is computed at once keeps only its last state, so a required group would prevent hits of shared beginnings.
  state.optional = true;
  state.pool = PoolId{1};
  config.groups = {GroupConfig{}, window, state};
  config.pools[0].null_block = true;
  config.pools.push_back(config.pools.front());
  CacheManager manager{config};
  expect_none_once_warm(manager);
}

// ---- with tiers below ----------------------------------------------------------------------------------------------------

/// Completes every transfer by the next poll.
class PromptTransfers final : public TransferPort {
 public:
  void submit(Transfer transfer) override {
    const Uncounted here;
    const std::uint32_t blocks = block_count(transfer.runs);
    for (std::uint32_t layers = 1; transfer.by_layer && layers < 4; ++layers) {
      TransferEvent event;
      event.id = transfer.id;
      event.kind = TransferEvent::Kind::layers;
      event.layers = layers;
      done_.push_back(std::move(event));
      ++layers_told_;
    }
    done_.push_back({.id = transfer.id,
                     .kind = TransferEvent::Kind::finished,
                     .direction = transfer.direction,
                     .layers = 0,
                     .outcomes = std::vector<BlockOutcome>(blocks, BlockOutcome::done),
                     .moved = {},
                     .took = {},
                     .copying = {},
                     .error = {},
                     .runs = std::move(transfer.runs)});
    blocks_ += blocks;
  }
  void raise(TransferId, Urgency) override {}
  void postpone(TransferId, TimePoint) override {}
  void cancel(TransferId) override {}
  void limit(Urgency, BytesPerSecond) override {}
  std::size_t poll(std::vector<TransferEvent>& out) override {
    const std::size_t arrived = done_.size();
    for (TransferEvent& event : done_) out.push_back(std::move(event));
    done_.clear();
    return arrived;
  }
  [[nodiscard]] TimePoint next_deadline() const override { return never; }
  [[nodiscard]] Fence reached() const override { return {}; }
  [[nodiscard]] Fence after_all_work() const override { return {}; }
  [[nodiscard]] bool given_out(Fence /*point*/) const override { return true; }  // the test counts its own
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint64_t layers_told() const { return layers_told_; }

 private:
  std::vector<TransferEvent> done_;
  std::uint64_t blocks_ = 0;
  std::uint64_t layers_told_ = 0;
};

/// Remembers every key for ever, and completes every operation by the next poll.
class PromptStore final : public BlockStore {
 public:
  void read(std::span<const StoreRead> batch) override {
    const Uncounted here;
    for (const StoreRead& read : batch) end(StoreEvent::Kind::read, read.token, keys_.contains(read.key));
    reads_ += batch.size();
  }
  void write(std::span<const StoreWrite> batch) override {
    const Uncounted here;
    for (const StoreWrite& write : batch) end(StoreEvent::Kind::written, write.token, keys_.insert(write.block.key).second);
  }
  void remove(std::span<const BlockKey>, std::uint64_t) override {}
  [[nodiscard]] bool contains(const BlockKey& key) const override { return keys_.contains(key); }
  void touch(std::span<const BlockKey>) override {}
  void flush(std::uint64_t token) override { end(StoreEvent::Kind::flushed, token, true); }
  void adopt_all(const Adopt&) override {}
  std::size_t poll(std::vector<StoreEvent>& out) override {
    const std::size_t arrived = done_.size();
    out.insert(out.end(), done_.begin(), done_.end());
    done_.clear();
    return arrived;
  }
  [[nodiscard]] std::size_t in_flight() const override { return done_.size(); }
  [[nodiscard]] Bytes block_bytes() const override { return Bytes{64}; }
  [[nodiscard]] StoreStat stat() const override { return {}; }
  void for_each(const std::function<void(const StoredBlock&)>&) const override {}
  void check_invariants() const override {}
  [[nodiscard]] std::uint64_t reads() const { return reads_; }

 private:
  void end(StoreEvent::Kind kind, std::uint64_t token, bool well) {
    StoreEvent event;
    event.kind = kind;
    event.token = event.write_token = token;
    if (!well) event.error = Errc::not_found;
    done_.push_back(event);
  }

  std::unordered_set<BlockKey, std::hash<BlockKey>> keys_;
  std::vector<StoreEvent> done_;
  std::uint64_t reads_ = 0;
};

struct Tiers {
  const char* name;
  InclusionPolicy inclusion;
  WritePolicy write_policy;
  bool reads = false;  ///< there were hits that only storage has
  int ranks = 1;
};
void PrintTo(const Tiers& tiers, std::ostream* out) { *out << tiers.name; }

class TierAllocations : public testing::TestWithParam<Tiers> {};
INSTANTIATE_TEST_SUITE_P(Tiers, TierAllocations,
                         testing::Values(Tiers{"keep", InclusionPolicy::non_inclusive, WritePolicy::none},
                                         Tiers{"exclusive", InclusionPolicy::exclusive, WritePolicy::none},
                                         Tiers{"inclusive", InclusionPolicy::inclusive, WritePolicy::none},
                                         Tiers{"lazy", InclusionPolicy::lazy_exclusive, WritePolicy::none},
                                         Tiers{"lazy_write_back", InclusionPolicy::lazy_exclusive, WritePolicy::write_back, true},
                                         Tiers{"keep_write_through", InclusionPolicy::non_inclusive, WritePolicy::write_through,
                                               true},
                                         Tiers{"keep_write_back", InclusionPolicy::non_inclusive, WritePolicy::write_back, true},
                                         Tiers{"exclusive_write_back", InclusionPolicy::exclusive, WritePolicy::write_back},
                                         Tiers{"keep_of_two_ranks", InclusionPolicy::non_inclusive, WritePolicy::none, false, 2},
                                         Tiers{"keep_selective", InclusionPolicy::non_inclusive, WritePolicy::selective, true}),
                         [](const auto& param) { return param.param.name; });

/// The same as above, with the waits that loads need, and with a deadline. Every second request is by layer.
void serve(Cache& cache, std::uint64_t id, const std::vector<BlockKey>& keys) {
  AcquireRequest wanted = test::request_for(id, keys);
  wanted.deadline = TimePoint{std::chrono::hours{2}};
  wanted.by_layer = id % 2 == 0;
  (void)cache.match(keys);
  Result<Lease> lease = cache.acquire(wanted);
  TERRACE_CHECK(lease.has_value());
  for (int polls = 0; cache.state(*lease) != RequestState::ready; ++polls) {
    TERRACE_CHECK(polls < 1000);
    for (const RequestEvent& event : cache.poll()) {
      if (!event.ends_wait()) TERRACE_CHECK(cache.block_table(*lease)->size() == keys.size());
    }
  }
  TERRACE_CHECK(cache.commit(*lease, std::span{keys}.first(keys.size() / 2), Fence{id}).has_value());
  TERRACE_CHECK(cache.commit(*lease, keys, Fence{id}).has_value());
  // extend() never waits, so it cannot use slots whose blocks must be copied down first.
  if (!cache.extend(*lease, 1)) cache.poll();
  cache.release(std::move(*lease), Fence{id});
  cache.poll();
}

TEST_P(TierAllocations, are_none_on_the_step_path_once_warm) {
  const Tiers& tiers = GetParam();
  ManagerConfig config = with_policy(PolicyKind::adaptive);
  config.inclusion = tiers.inclusion;
  config.write_policy = tiers.write_policy;
  config.storage = tiers.write_policy != WritePolicy::none;
  config.pools[0].host_blocks = device_blocks / 2;
  config.pools[0].staging_blocks = config.storage ? 16 : 0;
  PromptTransfers transfers;
  PromptStore store;
  HostArena arena{config.pools[0].host_blocks + config.pools[0].staging_blocks, store.block_bytes()};
  const ManualClock clock;
  PromptTransfers other_rank;
  NullWaker waker;
  RankedTransfers ranked{{{"a", &transfers}, {"b", &other_rank}}, clock, waker};
  TransferPort& port = tiers.ranks > 1 ? static_cast<TransferPort&>(ranked) : transfers;
  Cache cache{config, {port, {{&arena, config.storage ? &store : nullptr}}, clock}};
  const auto requests = prompts();
  std::uint64_t id = 0;
  const auto rounds = [&](int count) {
    for (int round = 0; round < count; ++round) {
      for (const auto& keys : requests) serve(cache, ++id, keys);
    }
  };
  rounds(100);
  const std::uint64_t moved_before = transfers.blocks();
  const std::uint64_t read_before = store.reads();
  const std::uint64_t told_before = transfers.layers_told();
  const std::size_t before = allocations;
  rounds(8);
  EXPECT_EQ(allocations - before, 0U);
  EXPECT_GT(transfers.blocks(), moved_before + 4 * device_blocks);
  EXPECT_EQ(store.reads() > read_before, tiers.reads);
  EXPECT_GT(transfers.layers_told(), told_before);
  cache.drain();
  cache.manager().check_invariants();
}

TEST(AllocationCount, counts) {
  const std::size_t before = allocations;
  const std::vector<int> some(10);
  EXPECT_EQ(allocations, before + 1);
  const Uncounted here;
  const std::vector<int> others(10);
  EXPECT_EQ(allocations, before + 1);
}

}  // namespace
}  // namespace terrace
