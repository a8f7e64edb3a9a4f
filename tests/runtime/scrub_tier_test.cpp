// What the scrub of storage means to the cache above it.

#include "runtime/system/stack.hpp"
#include "storage/resilience/guarded_store.hpp"
#include "storage/resilience/scrub.hpp"
#include "tests/runtime/fixture.hpp"

#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// The fixture's store behind a guard, scrubbed at a block in 10 ms.
class ScrubTier : public CacheFixture {
 protected:
  void make_scrubbed(const ManagerConfig& config) {
    make(config);
    const ManagerConfig made = cache->manager().config();
    guard.emplace(*store, clock);
    scrub.emplace(Bytes{block_bytes}, ScrubOptions{Bytes{block_bytes} * 100, seconds{5}});
    scrub->start(*guard, clock.now());
    cache = std::make_unique<Cache>(made, CacheParts{*transfers, *arena, &*guard, clock, nullptr, nullptr});
  }
  void end_pass() {
    const std::uint64_t before = scrub->health().passes;
    for (int i = 0; i < 10'000 && scrub->health().passes == before; ++i) {
      const TimePoint next = cache->next_deadline();
      if (next != never && next > clock.now()) clock.advance(next - clock.now());
      poll();
    }
    ASSERT_EQ(scrub->health().passes, before + 1);
  }
  void TearDown() override {
    CacheFixture::TearDown();
    cache.reset();
  }

  std::optional<Scrub> scrub;
  std::optional<GuardedStore> guard;
};

TEST_F(ScrubTier, what_rotted_is_a_miss_before_anybody_asks_and_copies_above_are_as_they_were) {
  make_scrubbed(with_storage(sizes(4), WritePolicy::write_through));
  const auto keys = keys_of({1, 2, 3});
  run(1, keys);
  ASSERT_EQ(resident(Tier::storage), 3U);
  end_pass();
  EXPECT_EQ(scrub->health().blocks, 3U);
  store->raw(keys[1])[7] ^= std::byte{1};
  end_pass();
  EXPECT_EQ(scrub->health().corrupt, 1U);
  EXPECT_EQ(store->stat().blocks, 1U);
  EXPECT_EQ(resident(Tier::storage), 1U);
  EXPECT_EQ(cache->match(keys).device, 3U) << "the device's copies are good";
  EXPECT_EQ(cache->moved().prefetch.blocks, 0U) << "no read of the cache's own";

  run(2, keys_of({6, 7, 8, 9}));  // they make room
  ASSERT_EQ(cache->match(keys, Tier::device).device, 0U);
  EXPECT_EQ(cache->match(keys).storage, 1U);
  ASSERT_TRUE(acquire(3, keys).has_value());
  settle();
  ASSERT_TRUE(ready(3));
  EXPECT_EQ(stats(3).storage, 1U);
  EXPECT_EQ(stats(3).miss, 2U);
  ASSERT_TRUE(commit(3, keys).has_value());
  release(3);
  settle();
  EXPECT_EQ(resident(Tier::storage), 7U) << "computed again, and stored again";
}

TEST_F(ScrubTier, wakes_an_idle_owner_and_makes_nobody_wait) {
  make_scrubbed(with_storage(sizes(4), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  while (cache->next_deadline() == never) poll();
  ASSERT_GT(cache->next_deadline(), clock.now());
  clock.advance(cache->next_deadline() - clock.now());
  poll();
  ASSERT_EQ(guard->in_flight() + 1, store->in_flight()) << "a read of the scrub's is under way";
  EXPECT_FALSE(cache->has_pending_work());
  cache->drain();
  EXPECT_EQ(guard->in_flight() + 1, store->in_flight()) << "and was not waited for";
  end_pass();
  EXPECT_EQ(cache->next_deadline(), scrub->health().next_pass);
}

class ScrubbedStack : public testing::Test {
 protected:
  ScrubbedStack() {
    std::string name = (std::filesystem::temp_directory_path() / "terrace-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) directory_ = name;
    options_.device_blocks = 8;
    options_.host_blocks = 8;
    options_.block_bytes = KiB * 8;
    options_.write_policy = WritePolicy::write_through;
    options_.flush_interval = {};  // nothing else has deadlines
    options_.storage = FileStorage{.directory = directory_, .capacity = MiB};
  }
  ~ScrubbedStack() override { std::filesystem::remove_all(directory_); }

  /// Of the root of a path of three.
  static std::vector<BlockKey> keys() { return keys_of({1, 2, 3}); }
  static void run(Stack& stack) {
    AcquireRequest wanted;
    const auto all = keys();
    wanted.id = RequestId{1};
    wanted.keys = all;
    wanted.blocks = 3;
    Result<Lease> acquired = stack.cache().acquire(wanted);
    Lease lease = std::move(*acquired);
    while (stack.cache().state(lease) != RequestState::ready) stack.cache().poll();
    ASSERT_TRUE(stack.cache().commit(lease, all, Fence{}).has_value());
    stack.cache().release(std::move(lease), Fence{});
    stack.cache().drain();
  }
  /// As an engine that has nothing to do: asleep until it is woken, or a deadline has come.
  static void idle_until_pass(Stack& stack) {
    const SteadyClock clock;
    const std::uint64_t before = stack.scrub_health()->passes;
    while (stack.scrub_health()->passes == before) {
      stack.cache().poll();
      const TimePoint next = stack.cache().next_deadline();
      const auto left = std::chrono::duration_cast<milliseconds>(next - clock.now()).count();
      pollfd wait{stack.cache().wake_fd(), POLLIN, 0};
      (void)::poll(&wait, 1, next == never ? -1 : static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 60'000)));
    }
  }

  std::filesystem::path directory_;
  StackOptions options_;
};

TEST_F(ScrubbedStack, finds_a_flipped_bit_on_disk_while_it_is_idle) {
  options_.storage_scrub = {.bandwidth = MiB, .period = seconds{1}};
  Stack stack{options_};
  run(stack);
  ASSERT_EQ(stack.store()->stat().blocks, 3U);
  idle_until_pass(stack);
  EXPECT_EQ(stack.scrub_health()->corrupt, 0U);
  std::filesystem::path data;
  for (const auto& entry : std::filesystem::directory_iterator{directory_ / "store"}) {
    if (entry.path().filename().string().starts_with("blocks")) data = entry.path();
  }
  {
    // The second block's slot is the one after its parent's, which is the first.
    std::fstream file{data, std::ios::in | std::ios::out | std::ios::binary};
    file.seekg(8192 + 100);
    const int byte = file.get();
    file.seekp(8192 + 100);
    file.put(static_cast<char>(byte ^ 2));
    ASSERT_TRUE(file.good()) << data;
  }
  idle_until_pass(stack);
  EXPECT_EQ(stack.scrub_health()->corrupt, 1U);
  EXPECT_EQ(stack.store()->stat().blocks, 1U);
  EXPECT_EQ(stack.store()->stat().corrupt, 1U);
  EXPECT_EQ(stack.cache().match(keys()).device, 3U);
  EXPECT_EQ(stack.storage_health()->state, StoreState::well) << "the device did answer";
}

TEST_F(ScrubbedStack, is_scrubbed_unless_told_otherwise_and_at_any_rate_later) {
  {
    Stack stack{options_};
    ASSERT_TRUE(stack.scrub_health().has_value());
    EXPECT_EQ(stack.scrub_health()->bandwidth, MiB * 16);
    EXPECT_EQ(stack.scrub_health()->state, ScrubState::resting);
    EXPECT_NE(stack.cache().next_deadline(), never);
    stack.set_scrub({.bandwidth = Bytes{}, .period = {}});
    stack.cache().poll();
    EXPECT_EQ(stack.scrub_health()->state, ScrubState::off);
    EXPECT_EQ(stack.cache().next_deadline(), never);
    stack.set_scrub({.bandwidth = GiB, .period = {}});
    idle_until_pass(stack);
    EXPECT_THROW(stack.set_scrub({.bandwidth = GiB, .period = seconds{-1}}), std::invalid_argument);
  }
  options_.storage_guard.reset();
  Stack stack{options_};
  EXPECT_FALSE(stack.scrub_health().has_value());
  EXPECT_THROW(stack.set_scrub({}), std::invalid_argument);
}

TEST_F(ScrubbedStack, begins_anywhere_in_its_store_and_elsewhere_after_another_start) {
  std::set<std::uint64_t> began_at;
  for (int start = 0; start < 60 && began_at.size() < 2; ++start) {
    Stack stack{options_};
    stack.cache().poll();
    const ScrubHealth health = *stack.scrub_health();
    EXPECT_GT(health.places, 100U);
    EXPECT_LT(health.began_at, health.places);
    began_at.insert(health.began_at);
  }
  EXPECT_EQ(began_at.size(), 2U) << "of more than 100 places, in 60 starts";
}

TEST_F(ScrubbedStack, is_taken_down_with_a_read_under_way) {
  options_.storage_scrub = {.bandwidth = GiB, .period = seconds{1}};
  std::get<FileStorage>(options_.storage).bandwidth = KiB * 64;  // an eighth of a second a block
  Stack stack{options_};
  run(stack);
  for (std::uint64_t before = stack.store()->stat().reads; stack.scrub_health()->place == 0;) {
    ASSERT_EQ(stack.store()->stat().reads, before);
    stack.cache().poll();
  }
}

}  // namespace
}  // namespace terrace::test
