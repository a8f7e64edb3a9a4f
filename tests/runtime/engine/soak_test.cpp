// A cache whose tiers have been full for a very long time: its memory does not grow. This is a separate program, because it
// counts all allocated bytes.

#include "base/random.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/index/slot_allocator.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "storage/memory/memory_store.hpp"
#include "terrace/cache.hpp"
#include "tests/allocation_count.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"
#include "tests/seed.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace terrace {
namespace {

constexpr Bytes block_bytes{64};
constexpr std::uint32_t device_blocks = 48;
constexpr std::uint32_t host_blocks = 96;
constexpr std::uint32_t staging_blocks = 8;
constexpr std::uint32_t stored_blocks = 256;
constexpr std::size_t clients_max = 5;

struct Kind {
  const char* name;
  InclusionPolicy inclusion;
  WritePolicy write_policy;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

/// Prompts of 3 to 10 blocks with 40 different beginnings: several times as many blocks as all tiers hold. Some prompts are much
/// more frequent than others.
std::vector<std::vector<BlockKey>> prompts() {
  std::vector<std::vector<BlockKey>> made;
  for (std::uint32_t n = 0; n < 400; ++n) {
    std::vector<std::uint32_t> names(3 + n % 8, 1'000 + n);
    names[0] = names[1] = n % 40;
    made.push_back(test::keys_of(names));
  }
  return made;
}

class Soak : public testing::TestWithParam<Kind> {
 protected:
  struct Client {
    Lease lease;
    std::size_t prompt = 0;
  };

  Soak() {
    ManagerConfig config;
    config.pools[0].device_blocks = device_blocks;
    config.pools[0].host_blocks = host_blocks;
    config.pools[0].staging_blocks = staging_blocks;
    config.storage = true;
    config.inclusion = GetParam().inclusion;
    config.write_policy = GetParam().write_policy;
    cache_.emplace(config, CacheParts{transfers_, {{&arena_, &store_}}, clock_});
    clients_.reserve(clients_max);
  }

  void begin() {
    const bool often = random_.chance(0.6);
    const std::size_t prompt = random_.below(often ? prompts_.size() / 8 : prompts_.size());
    const auto extra = static_cast<std::uint32_t>(random_.below(3));
    Result<Lease> lease = cache_->acquire(test::request_for(++requests_, prompts_[prompt], extra));
    refused_ += !lease;
    if (lease) clients_.push_back({std::move(*lease), prompt});
  }
  void end(std::size_t which) {
    Client& client = clients_[which];
    const bool ready = cache_->state(client.lease) == RequestState::ready;
    if (!ready && !random_.chance(0.01)) return;
    if (ready && random_.chance(0.9)) {
      ASSERT_TRUE(cache_->commit(client.lease, prompts_[client.prompt], Fence{}).has_value());
    } else {
      ++aborted_;
    }
    std::swap(client, clients_.back());
    clients_.pop_back();
  }
  void step() {
    const std::uint64_t die = random_.below(10);
    const auto movable = device_.step_options();
    if (die < 3 && clients_.size() < clients_max) {
      begin();
    } else if (die < 5 && !clients_.empty()) {
      end(random_.below(clients_.size()));
    } else if (die < 8 && !movable.empty()) {
      if (random_.chance(0.001)) device_.fail_next(Direction::swap_in);
      device_.step(movable[random_.below(movable.size())]);
    } else {
      clock_.advance(std::chrono::microseconds{50});
      cache_->poll();
    }
  }
  /// Waits until no request is left and nothing is under way.
  void come_to_rest() {
    clients_.clear();
    for (int i = 0; i < 200; ++i) {
      device_.run();
      cache_->poll();
    }
  }
  void expect_at_rest() const {
    const CacheManager& manager = cache_->manager();
    manager.check_invariants();
    store_.check_invariants();
    EXPECT_EQ(manager.requests().live_requests(), 0U);
    EXPECT_EQ(manager.readers(), 0U);
    EXPECT_FALSE(cache_->has_pending_work());
    EXPECT_EQ(cache_->transfers_in_flight(), 0U);
    EXPECT_EQ(store_.in_flight(), 0U);
    EXPECT_EQ(cache_->next_deadline(), never);
    for (const Ledger& ledger : {manager.device_ledger(), manager.host_ledger()}) {
      EXPECT_TRUE(ledger.balanced());
      EXPECT_EQ(ledger.held + ledger.filling + ledger.quarantined + ledger.null + ledger.retired, 0U);
    }
    EXPECT_EQ(manager.device_ledger().total, device_blocks);
    EXPECT_EQ(manager.host_ledger().total, host_blocks + staging_blocks);
    // An exclusive host tier frees a slot for each block that is loaded.
    EXPECT_LE(manager.host_ledger().free, staging_blocks + device_blocks) << "it is full";
    EXPECT_EQ(store_.stat().blocks, stored_blocks);
  }

  const std::vector<std::vector<BlockKey>> prompts_ = prompts();
  Random random_{test::seed_from_env_or(1)};
  ManualClock clock_;
  NullWaker waker_;
  HostArena arena_{host_blocks + staging_blocks, block_bytes};
  SimulatedDevice device_{device_blocks, arena_, 1};
  TransferEngine transfers_{{}, device_, clock_, waker_};
  MemoryStore store_{stored_blocks, block_bytes};
  std::optional<Cache> cache_;
  std::vector<Client> clients_;
  std::uint64_t requests_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t aborted_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Kinds, Soak,
                         testing::Values(Kind{"lazy", InclusionPolicy::lazy_exclusive, WritePolicy::write_through},
                                         Kind{"exclusive", InclusionPolicy::exclusive, WritePolicy::write_back}),
                         [](const auto& param) { return std::string{param.param.name}; });

TEST_P(Soak, at_full_tiers_holds_no_more_memory_in_the_end_than_when_they_had_become_full) {
  const int rounds = test::long_run() ? 25 : 9;
  constexpr int steps = 200'000;
  constexpr int warm = 3;
  std::vector<std::size_t> living;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < steps; ++i) {
      step();
      if (i % 1000 == 0) cache_->manager().check_invariants();
    }
    come_to_rest();
    if (round < warm) continue;
    expect_at_rest();
    living.push_back(living_bytes);
    ASSERT_FALSE(HasFailure()) << "in round " << round;
  }
  // Memory that is kept for reuse may reach its maximum at any time. A leak grows for ever.
  const auto half = living.begin() + static_cast<std::ptrdiff_t>(living.size() / 2);
  const std::size_t most_early = *std::max_element(living.begin(), half);
  const std::size_t most_late = *std::max_element(half, living.end());
  EXPECT_LE(most_late, most_early + 16'384);
  const ManagerStats& stats = cache_->manager().stats();
  const auto done = static_cast<std::uint64_t>(rounds);
  EXPECT_GT(requests_, 6'000 * done);
  EXPECT_GT(aborted_, 200 * done);
  EXPECT_GT(stats.evicted_host, 4'000 * done);
  EXPECT_GT(stats.stored_evicted, 2'000 * done);
  EXPECT_GT(stats.load_failures, 10 * done / 25);
  std::printf("%lu requests, %lu refused, %lu aborted; evicted %lu from the device, %lu from the host, %lu from storage; "
              "%zu bytes alive early, %zu late\n",
              requests_, refused_, aborted_, stats.evicted_device, stats.evicted_host, stats.stored_evicted, most_early,
              most_late);
}

}  // namespace
}  // namespace terrace
