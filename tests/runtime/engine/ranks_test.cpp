// One cache with several ranks. Each rank moves its own part. A rank that does not move delays only the requests that need it.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "storage/memory/memory_store.hpp"
#include "terrace/cache.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/request.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tests/transfer/engine/simulated_ranks.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_port.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t share_bytes = 64;

class CacheOfRanks : public testing::Test {
 protected:
  void make(std::uint32_t count, std::uint32_t device_blocks, std::uint32_t host_blocks) {
    ManagerConfig config;
    config.pools[0].device_blocks = device_blocks;
    config.pools[0].host_blocks = host_blocks;
    ranks_.reset();
    arena_ = std::make_unique<HostArena>(host_blocks, Bytes{share_bytes * count});
    const PoolMemory pool{.slots = device_blocks, .host = arena_.get()};
    ranks_.emplace(Ranks::Options{count, RankPayload::sharded}, std::span{&pool, 1}, TransferSchedulerConfig{}, clock_, waker_);
    const CacheParts parts{ranks_->transfers(), {{arena_.get()}}, clock_, nullptr, &ranks_->devices()};
    cache_ = std::make_unique<Cache>(config, parts);
  }
  void TearDown() override {
    leases_.clear();
    ranks_->mend();
    settle();
    cache_->manager().check_invariants();
    EXPECT_TRUE(cache_->manager().device_ledger().balanced());
  }

  Result<void> acquire(std::uint64_t id, const std::vector<BlockKey>& keys, TimePoint deadline = never) {
    AcquireRequest wanted = request_for(id, keys);
    wanted.deadline = deadline;
    Result<Lease> lease = cache_->acquire(wanted);
    if (!lease) return lease.error();
    leases_[id] = std::move(*lease);
    return {};
  }
  void run(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    settle();
    ASSERT_TRUE(cache_->state(leases_.at(id)) == RequestState::ready);
    ASSERT_TRUE(cache_->commit(leases_.at(id), keys, write(id)).has_value());
    cache_->release(std::move(leases_.at(id)), {});
    leases_.erase(id);
    settle();
  }
  /// The content for a key differs between ranks.
  static std::byte content(std::uint32_t rank, const BlockKey& key) {
    return static_cast<std::byte>(key.prefix64() % 89 + 89 * rank);
  }
  Fence write(std::uint64_t id) {
    const auto table = cache_->block_table(leases_.at(id)).value();
    const std::vector<SlotId> slots{table.begin(), table.end()};
    return ranks_->devices().launch([slots, keys = keys_.at(id)](std::uint32_t rank, BlockAccess& access) {
      std::vector<std::byte> scratch(share_bytes);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const auto block = access.write_target(slots[i], scratch);
        std::memset(block.data(), static_cast<int>(content(rank, keys[i])), block.size());
        access.written(slots[i], scratch);
      }
    });
  }
  void expect_content(std::uint64_t id) {
    const auto table = cache_->block_table(leases_.at(id)).value();
    const std::vector<SlotId> slots{table.begin(), table.end()};
    auto compared = std::make_shared<std::uint32_t>(0);
    ranks_->devices().launch([=, keys = keys_.at(id)](std::uint32_t rank, BlockAccess& access) {
      std::vector<std::byte> scratch(share_bytes);
      for (std::size_t i = 0; i < slots.size(); ++i) {
        for (const std::byte byte : access.read(slots[i], scratch)) EXPECT_EQ(byte, content(rank, keys[i]));
        ++*compared;
      }
    });
    ranks_->run();
    EXPECT_EQ(*compared, slots.size() * ranks_->devices().size());
  }
  void run_named(std::uint64_t id, std::initializer_list<std::uint32_t> names) {
    keys_[id] = keys_of(names);
    run(id, keys_[id]);
  }
  std::vector<RequestEvent> poll() {
    const auto some = cache_->poll();
    return {some.begin(), some.end()};
  }
  std::vector<RequestEvent> settle() {
    std::vector<RequestEvent> all;
    for (int i = 0; i < 50; ++i) {
      ranks_->run();
      const auto some = poll();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  ManualClock clock_;
  NullWaker waker_;
  std::unique_ptr<HostArena> arena_;
  std::optional<Ranks> ranks_;
  std::unique_ptr<Cache> cache_;
  std::map<std::uint64_t, Lease> leases_;
  std::map<std::uint64_t, std::vector<BlockKey>> keys_;
};

TEST_F(CacheOfRanks, a_block_comes_back_on_every_rank_with_what_that_rank_wrote) {
  make(3, 2, 8);
  run_named(1, {1, 2});
  run_named(2, {8, 9});
  ASSERT_EQ(cache_->match(keys_[1]).found[Source::host], 2U);
  keys_[3] = keys_[1];
  ASSERT_TRUE(acquire(3, keys_[3]).has_value());
  settle();
  ASSERT_TRUE(cache_->state(leases_.at(3)) == RequestState::ready);
  expect_content(3);
}

TEST_F(CacheOfRanks, a_frozen_rank_costs_a_request_its_deadline_and_nobody_else_anything) {
  make(2, 4, 8);
  run_named(1, {1, 2});
  run_named(2, {5, 6, 7, 8});  // swaps 1 and 2 out to the host
  run_named(3, {5});
  ASSERT_EQ(cache_->match(keys_of({1, 2})).found[Source::host], 2U);
  ranks_->device(1).stuck(Direction::swap_in, true);
  ASSERT_TRUE(acquire(4, keys_of({1, 2}), clock_.now() + seconds{1}).has_value());
  EXPECT_TRUE(settle().empty());
  EXPECT_FALSE(cache_->state(leases_.at(4)) == RequestState::ready);
  EXPECT_EQ(ranks_->transfers().oldest_copy(), clock_.now()) << "that of the frozen rank";
  // A hit on the device is served meanwhile, because no call waits.
  keys_[5] = keys_of({5, 6});
  ASSERT_TRUE(acquire(5, keys_[5]).has_value());
  EXPECT_TRUE(cache_->state(leases_.at(5)) == RequestState::ready);
  leases_.erase(5);
  clock_.advance(seconds{2});
  const std::vector<RequestEvent> events = settle();
  expect_only_event(events, 4, Errc::deadline_exceeded);
  clock_.advance(seconds{2});
  EXPECT_EQ(ranks_->transfers().health(0).state, RankHealth::State::well);
  EXPECT_EQ(ranks_->transfers().health(1).state, RankHealth::State::slow);
  // Its slots are quarantined until the rank has stopped using them.
  EXPECT_EQ(cache_->manager().device_ledger().quarantined, 2U);
  leases_.erase(4);
  ranks_->mend();
  settle();
  EXPECT_EQ(cache_->manager().device_ledger().quarantined, 0U);
}

TEST_F(CacheOfRanks, a_lost_rank_fails_loads_and_the_request_computes) {
  make(2, 4, 8);
  run_named(1, {1, 2});
  run_named(2, {5, 6, 7, 8});
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  EXPECT_FALSE(cache_->state(leases_.at(3)) == RequestState::ready);
  ranks_->transfers().lose(1);
  settle();
  ASSERT_TRUE(cache_->state(leases_.at(3)) == RequestState::ready);
  EXPECT_TRUE(cache_->hit_sources(leases_.at(3))->empty());
  EXPECT_GT(cache_->manager().stats().load_failures, 0U);
}

TEST_F(CacheOfRanks, a_rank_whose_copies_all_fail_is_named) {
  make(2, 4, 8);
  ranks_->device(1).dead(Direction::swap_out, true);
  for (std::uint32_t id = 1; id <= 12; ++id) run_named(id, {10 * id, 10 * id + 1, 10 * id + 2, 10 * id + 3});
  EXPECT_EQ(ranks_->transfers().health(0).state, RankHealth::State::well);
  EXPECT_EQ(ranks_->transfers().health(1).state, RankHealth::State::failing);
  EXPECT_FALSE(cache_->link_health().in_use);
  EXPECT_GT(cache_->stats().swap_outs.failed, 0U);
  ranks_->mend();
  clock_.advance(seconds{1});
  poll();
  run_named(20, {500, 501, 502, 503});
  EXPECT_EQ(ranks_->transfers().health(1).state, RankHealth::State::well);
  EXPECT_TRUE(cache_->link_health().in_use);
}

/// An engine whose thread does nothing while it is frozen.
class FrozenTransfers final : public TransferPort {
 public:
  explicit FrozenTransfers(TransferPort& port) : port_{port} {}
  void submit(Transfer transfer) override {
    if (frozen) {
      transfers_.push_back(std::move(transfer));
    } else {
      port_.submit(std::move(transfer));
    }
  }
  void raise(TransferId id, Urgency urgency) override { port_.raise(id, urgency); }
  void postpone(TransferId id, TimePoint deadline) override { port_.postpone(id, deadline); }
  void cancel(TransferId id) override { port_.cancel(id); }
  void limit(Urgency urgency, BytesPerSecond per_second) override { port_.limit(urgency, per_second); }
  std::size_t poll(std::vector<TransferEvent>& out) override { return frozen ? 0 : port_.poll(out); }
  [[nodiscard]] TimePoint next_deadline() const override { return never; }
  [[nodiscard]] Fence reached() const override { return port_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return port_.after_all_work(); }
  void thaw() {
    frozen = false;
    for (Transfer& transfer : std::exchange(transfers_, {})) port_.submit(std::move(transfer));
  }

  bool frozen = false;

 private:
  TransferPort& port_;
  std::vector<Transfer> transfers_;
};

/// No call of the cache waits for its engine: requests that need the engine have deadlines, and the others are served.
TEST_F(CacheOfRanks, a_frozen_engine_costs_a_request_its_deadline_and_nobody_else_anything) {
  make(1, 4, 8);
  FrozenTransfers engine{ranks_->transfers()};
  const ManagerConfig config = cache_->manager().config();
  cache_ = std::make_unique<Cache>(config, CacheParts{engine, {{arena_.get()}}, clock_, nullptr, &ranks_->devices()});
  run_named(1, {1, 2});
  run_named(2, {5, 6, 7, 8});
  ASSERT_EQ(cache_->match(keys_[1]).found[Source::host], 2U);
  engine.frozen = true;
  ASSERT_TRUE(acquire(3, keys_of({1, 2}), clock_.now() + seconds{1}).has_value());
  ASSERT_TRUE(acquire(4, keys_of({8, 9}), clock_.now() + seconds{1}).has_value());  // waits for slots that a swap-out must free
  EXPECT_TRUE(settle().empty());
  clock_.advance(seconds{1});
  const std::vector<RequestEvent> events = settle();
  ASSERT_EQ(events.size(), 2U);
  for (const RequestEvent& event : events) EXPECT_EQ(event.error, Errc::deadline_exceeded);
  leases_.clear();
  keys_[5] = keys_of({5});
  ASSERT_TRUE(acquire(5, keys_[5]).has_value());
  EXPECT_TRUE(cache_->state(leases_.at(5)) == RequestState::ready);
  leases_.clear();
  engine.thaw();
  settle();
  EXPECT_EQ(cache_->manager().device_ledger().quarantined, 0U);
  EXPECT_FALSE(cache_->has_pending_work());
  cache_->manager().check_invariants();
  cache_.reset();
  make(1, 4, 8);  // TearDown needs it
}

CacheSystemOptions two_ranks() {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = KiB * 8, .device_blocks = 4, .host_blocks = 16}};
  options.ranks.resize(2);
  return options;
}

TEST(CacheSystemOfRanks, deals_blocks_out_evenly) {
  CacheSystem stack{two_ranks()};
  ASSERT_EQ(stack.devices().size(), 2U);
  EXPECT_EQ(stack.devices().at(1).info().pool().block_bytes, KiB * 4);
  ASSERT_EQ(stack.rank_health().size(), 2U);
  EXPECT_EQ(stack.rank_health()[1].name, "rank 1 (emulated)");
  CacheSystemOptions odd = two_ranks();
  odd.pools[0].block_bytes = Bytes{8191};
  EXPECT_THROW(CacheSystem{odd}, std::invalid_argument);
  CacheSystemOptions alike = two_ranks();
  alike.rank_payload = RankPayload::replicated;
  EXPECT_EQ(CacheSystem{alike}.devices().at(1).info().pool().block_bytes, KiB * 8);
  CacheSystemOptions gpus = two_ranks();
  gpus.ranks = {{EmulatedGpu{}}, {EmulatedGpu{}}, {CudaGpu{.ordinal = 4096}}};
  const std::string said = refusal_of<std::runtime_error>([&] { const CacheSystem system{gpus}; });
  EXPECT_EQ(said.find("rank 2: "), 0U) << said;
  CacheSystemOptions one = two_ranks();
  one.ranks.resize(1);
  EXPECT_TRUE(CacheSystem{one}.rank_health().empty());
}

/// Byte for byte: the data that each rank has written fills its part of the host slot from the first byte to the last, and comes
/// back.
TEST(CacheSystemOfRanks, keeps_each_ranks_share_in_its_part_of_the_block) {
  constexpr std::size_t share = 4096;
  CacheSystemOptions options = two_ranks();
  options.pools[0].block_bytes = Bytes{3 * share};
  options.ranks.resize(3);
  options.pools[0].device_blocks = 2;
  options.inclusion = InclusionPolicy::inclusive;
  PoolOptions& pool = options.pools[0];
  constexpr std::uint32_t rows = 8;
  pool.host_blocks = 4;
  std::vector<std::byte> host(3 * share * rows);
  pool.host_rows = HostRows{host.data(), rows, pool.block_bytes, pool.block_bytes};
  CacheSystem stack{options};
  const auto written = [](std::uint32_t rank, std::size_t block, std::size_t at) {
    return static_cast<std::byte>((at * 7 + at / 256 + rank * 83 + block * 31) % 251);
  };
  const std::vector<BlockKey> keys = keys_of({1, 2});
  const auto acquire = [&](std::uint64_t id, const std::vector<BlockKey>& wanted) {
    Lease lease = stack.cache().acquire(request_for(id, wanted)).value();
    stack.cache().drain();
    return lease;
  };
  const auto slots_of = [&](const Lease& lease) {
    const auto table = stack.cache().block_table(lease).value();
    return std::vector<SlotId>{table.begin(), table.end()};
  };
  {
    Lease lease = acquire(1, keys);
    const Fence fence = stack.devices().launch([=, slots = slots_of(lease)](std::uint32_t rank, BlockAccess& access) {
      std::vector<std::byte> scratch(share);
      for (std::size_t block = 0; block < slots.size(); ++block) {
        const auto target = access.write_target(slots[block], scratch);
        for (std::size_t at = 0; at < target.size(); ++at) target[at] = written(rank, block, at);
        access.written(slots[block], scratch);
      }
    });
    ASSERT_TRUE(stack.cache().commit(lease, keys, fence).has_value());
    stack.cache().release(std::move(lease), fence);
    stack.cache().drain();
  }
  const Residency& residency = stack.cache().manager().residency();
  for (std::size_t block = 0; block < keys.size(); ++block) {
    const Prefix prefix = residency.tree().find(std::span{keys}.first(block + 1));
    ASSERT_TRUE(residency.usable(prefix.last(), Tier::host));
    const auto bytes = std::span{host}.subspan(3 * share * residency.copy(prefix.last(), Tier::host).slot().value(), 3 * share);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      ASSERT_EQ(bytes[at], written(static_cast<std::uint32_t>(at / share), block, at % share)) << "byte " << at;
    }
  }
  stack.cache().release(acquire(2, keys_of({5, 6})), Fence{});  // takes their place on the devices
  Lease lease = acquire(3, keys);
  ASSERT_EQ(stack.cache().state(lease), RequestState::ready);
  EXPECT_EQ(stack.cache().request_stats(lease)->found[Source::host], 2U);
  std::atomic<std::uint32_t> wrong{0};
  std::atomic<std::uint32_t> looked{0};
  const Fence fence = stack.devices().launch([&, slots = slots_of(lease)](std::uint32_t rank, BlockAccess& access) {
    std::vector<std::byte> scratch(share);
    for (std::size_t block = 0; block < slots.size(); ++block) {
      const auto bytes = access.read(slots[block], scratch);
      for (std::size_t at = 0; at < bytes.size(); ++at) wrong += bytes[at] != written(rank, block, at);
    }
    ++looked;
  });
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::milliseconds{patience_ms};
  while (looked < 3 && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
  EXPECT_EQ(looked, 3U);
  EXPECT_EQ(wrong, 0U);
  stack.cache().release(std::move(lease), fence);
}

std::ptrdiff_t entries_in(const char* directory) {
  return std::distance(std::filesystem::directory_iterator{directory}, std::filesystem::directory_iterator{});
}

/// Threads that were joined leave the list a moment later.
void await_threads(std::ptrdiff_t wanted) {
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::milliseconds{patience_ms};
  while (entries_in("/proc/self/task") != wanted && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
  EXPECT_EQ(entries_in("/proc/self/task"), wanted);
}

TEST(CacheSystemOfRanks, of_which_any_cannot_start_does_not_start_and_leaves_nothing) {
  const TemporaryDirectory temporary;
  const std::filesystem::path& directory = temporary.path();
  CacheSystemOptions options = two_ranks();
  options.pools[0].block_bytes = KiB * 24;
  options.ranks.resize(3);
  options.storage = FileStorage{.directories = {directory}, .capacity = MiB};
  { const CacheSystem once{two_ranks()}; }  // the first CacheSystem allocates things that stay
  const std::ptrdiff_t threads = entries_in("/proc/self/task");
  const std::ptrdiff_t descriptors = entries_in("/proc/self/fd");

  // Each error is found when the ranks before it have started, with their threads.
  EmulatedGpu broken;
  broken.link[Direction::swap_in].latency = -seconds{1};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CacheSystemOptions one_broken = options;
    one_broken.ranks[rank].device = broken;
    const std::string said = refusal_of<std::invalid_argument>([&] { const CacheSystem stack{one_broken}; });
    EXPECT_NE(said.find("latency"), std::string::npos) << said;
    await_threads(threads);
    EXPECT_EQ(entries_in("/proc/self/fd"), descriptors);
    EXPECT_TRUE(std::filesystem::is_empty(directory)) << "storage was made for nobody";
  }
  // All ranks start, and then storage does not.
  CacheSystemOptions homeless = options;
  std::get<FileStorage>(homeless.storage).directories.front() = directory / "nowhere" / "store";
  EXPECT_THROW(CacheSystem{homeless}, std::system_error);
  await_threads(threads);
  EXPECT_EQ(entries_in("/proc/self/fd"), descriptors);

  {
    CacheSystem stack{options};
    EXPECT_EQ(stack.devices().size(), 3U);
    EXPECT_TRUE(std::filesystem::exists(directory / "store" / "catalog"));
  }
}

}  // namespace
}  // namespace terrace::test
