// A host tier whose memory grows and shrinks while it serves.

#include "base/waker.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/system.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/fixture.hpp"

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace terrace::test {
namespace {

class HostChunksTest : public CacheFixture {
 protected:
  [[nodiscard]] Result<void> resize(Blocks blocks) {
    const Result<void> done = cache->resize(Tier::host, blocks);
    cache->manager().check_invariants();
    return done;
  }
  /// Serves prefixes of two blocks each. The first of them end up in the host.
  void run_prefixes(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) run(next_id_++, prefix(first + i));
    cache->manager().check_invariants();
  }
  static std::vector<BlockKey> prefix(std::uint32_t number) { return keys_of({number * 10, number * 10 + 1}); }
  [[nodiscard]] std::uint32_t in_host(std::uint32_t number) const { return cache->match(prefix(number)).found[Source::host]; }
  [[nodiscard]] std::uint64_t mapped_blocks() const { return cache->host_memory().mapped / Bytes{block_bytes}; }
  /// One of the first six prefixes that is in host slots from here on.
  [[nodiscard]] std::uint32_t prefix_above(std::uint32_t slot) const {
    const Residency& residency = cache->manager().residency();
    for (std::uint32_t number = 1; number <= 6; ++number) {
      if (in_host(number) < 2) continue;
      if (residency.copy(residency.tree().find(prefix(number)).last(), Tier::host).slot().value() >= slot) return number;
    }
    return 0;
  }

 private:
  std::uint64_t next_id_ = 100;
};

TEST_F(HostChunksTest, serves_without_the_host_tier_until_there_is_memory_and_with_what_is_warm_then) {
  host_chunk_blocks = 4;
  host_warm = false;
  ManagerConfig config = with_storage(sizes(2, 8), WritePolicy::none);
  config.pools[0].staging_blocks = 2;
  make(config);
  EXPECT_EQ(cache->host_memory().usable, 2U);  // the rest of the chunk that staging uses
  EXPECT_EQ(cache->host_memory().coming, 2U);
  EXPECT_FALSE(cache->host_memory().warm());
  ASSERT_TRUE(acquire(1, prefix(1)).has_value());
  ASSERT_TRUE(ready(1));
  ASSERT_TRUE(commit(1, prefix(1)).has_value());
  release(1);
  EXPECT_EQ(cache->manager().usage(Tier::host).blocks, 2U);
  ASSERT_TRUE(arena_worker->step());
  EXPECT_EQ(cache->host_memory().usable, 2U);
  poll();
  EXPECT_EQ(cache->host_memory().usable, 6U);
  EXPECT_EQ(cache->manager().usage(Tier::host).free, 6U);
  settle();
  EXPECT_TRUE(cache->host_memory().warm());
  run_prefixes(2, 5);
  EXPECT_EQ(resident(Tier::host), 8U);
  EXPECT_EQ(mapped_blocks(), 10U);
}

TEST_F(HostChunksTest, grows_beyond_what_it_began_with_as_chunks_become_warm) {
  host_chunk_blocks = 4;
  make(sizes(2, 4));
  run_prefixes(1, 3);
  ASSERT_EQ(resident(Tier::host), 4U);
  ASSERT_TRUE(resize(13).has_value());
  EXPECT_EQ(cache->host_memory().wanted, 13U);
  EXPECT_EQ(cache->host_memory().usable, 4U);  // no page has been touched yet
  EXPECT_EQ(cache->host_memory().coming, 3U);
  ASSERT_TRUE(arena_worker->step());
  poll();
  EXPECT_EQ(cache->host_memory().usable, 8U);
  settle();
  EXPECT_EQ(cache->host_memory().usable, 13U);
  EXPECT_EQ(mapped_blocks(), 13U);
  run_prefixes(4, 6);
  EXPECT_EQ(resident(Tier::host), 13U);
  EXPECT_EQ(in_host(3), 2U);
  ASSERT_TRUE(acquire(50, prefix(3)).has_value());
  settle();
  EXPECT_EQ(stats(50).found[Source::host], 2U);
}

TEST_F(HostChunksTest, gives_back_whole_chunks_from_the_highest_when_it_shrinks) {
  host_chunk_blocks = 4;
  make(sizes(2, 12));
  run_prefixes(1, 7);
  ASSERT_EQ(resident(Tier::host), 12U);
  ASSERT_TRUE(resize(5).has_value());  // this needs two chunks
  EXPECT_EQ(cache->retiring(Tier::host), 0U);
  EXPECT_EQ(resident(Tier::host), 5U);
  EXPECT_EQ(arena->state(2), ChunkState::unmapping);
  settle();
  EXPECT_EQ(arena->state(2), ChunkState::absent);
  EXPECT_EQ(mapped_blocks(), 8U);
  EXPECT_EQ(arena->state(0), ChunkState::warm);
  run_prefixes(11, 6);
  EXPECT_EQ(resident(Tier::host), 5U);
  ASSERT_TRUE(resize(0).has_value());
  settle();
  EXPECT_EQ(mapped_blocks(), 0U);
  ASSERT_TRUE(resize(6).has_value());
  settle();
  run_prefixes(21, 6);
  EXPECT_EQ(resident(Tier::host), 6U);
  EXPECT_EQ(mapped_blocks(), 6U);
}

TEST_F(HostChunksTest, memory_goes_back_at_a_clear_and_comes_again_when_the_cache_resumes) {
  host_chunk_blocks = 4;
  make(sizes(2, 12));
  run_prefixes(1, 7);
  ASSERT_EQ(mapped_blocks(), 12U);
  ASSERT_TRUE(acquire(50, prefix(7)).has_value());
  cache->clear({.release_host = true});
  settle();
  EXPECT_EQ(cache->status(), CacheStatus::clearing) << "it includes `wait`: a request is alive";
  EXPECT_EQ(mapped_blocks(), 12U);
  EXPECT_EQ(acquire(51, prefix(1)).error(), Errc::paused);
  release(50);
  settle();
  EXPECT_EQ(cache->status(), CacheStatus::cleared);
  EXPECT_EQ(mapped_blocks(), 0U);
  cache->clear({.release_host = true});
  settle();
  ASSERT_TRUE(cache->resume().has_value());
  EXPECT_EQ(cache->host_memory().wanted, 12U) << "a second clear does not forget the size";
  EXPECT_EQ(cache->host_memory().usable, 0U);
  settle();
  EXPECT_EQ(mapped_blocks(), 12U);
  run_prefixes(1, 7);
  EXPECT_EQ(resident(Tier::host), 12U);
}

TEST_F(HostChunksTest, a_size_that_is_set_while_memory_is_away_holds) {
  host_chunk_blocks = 4;
  make(sizes(2, 12));
  cache->clear({.release_host = true});
  settle();
  ASSERT_EQ(mapped_blocks(), 0U);
  ASSERT_TRUE(resize(8).has_value());
  ASSERT_TRUE(cache->resume().has_value());
  settle();
  EXPECT_EQ(cache->host_memory().wanted, 8U);
  EXPECT_EQ(mapped_blocks(), 8U);
}

TEST_F(HostChunksTest, memory_goes_back_although_another_clear_comes_meanwhile) {
  host_chunk_blocks = 4;
  make(sizes(2, 12));
  ASSERT_TRUE(acquire(50, prefix(7)).has_value());
  cache->clear({.release_host = true});
  cache->clear({.wait = true});
  release(50);
  settle();
  EXPECT_EQ(cache->status(), CacheStatus::cleared);
  EXPECT_EQ(mapped_blocks(), 0U);
  ASSERT_TRUE(cache->resume().has_value());
  settle();
  EXPECT_EQ(mapped_blocks(), 12U);
  cache->clear({.wait = true});
  settle();
  EXPECT_EQ(mapped_blocks(), 12U) << "the next clear has not asked for it";
}

TEST_F(HostChunksTest, in_rows_of_another_owner_the_last_chunk_may_be_smaller_and_comes_back) {
  // Both last chunks are smaller than the others; the second one is smaller than a 128th of the tier, too.
  for (const auto [rows, chunk, less] : {std::array{10U, 4U, 6U}, std::array{257U, 256U, 200U}}) {
    host_chunk_blocks = chunk;
    std::vector<std::byte> memory(rows * block_bytes);
    host_rows = HostRows{memory.data(), rows, Bytes{block_bytes}, Bytes{block_bytes}};
    make(sizes(2, rows));
    ASSERT_TRUE(resize(Blocks{less}).has_value());
    settle();
    EXPECT_LT(mapped_blocks(), rows);
    EXPECT_EQ(resize(Blocks{rows + 1}).error(), Errc::never_fits);
    EXPECT_EQ(cache->host_memory().wanted, less) << "nothing has changed";
    ASSERT_TRUE(resize(Blocks{rows}).has_value());
    settle();
    EXPECT_EQ(mapped_blocks(), rows);
    run_prefixes(1, rows / 2 + 2);
    EXPECT_EQ(resident(Tier::host), rows);
    cache->clear({.release_host = true});
    settle();
    EXPECT_EQ(mapped_blocks(), 0U);
    ASSERT_TRUE(cache->resume().has_value());
    settle();
    EXPECT_EQ(mapped_blocks(), rows);
    cache.reset();
    transfers.reset();
    device.reset();
    arena.reset();
  }
}

TEST_F(HostChunksTest, what_is_in_a_chunk_that_goes_leaves_rather_than_others) {
  host_chunk_blocks = 4;
  make(sizes(2, 8));
  run_prefixes(1, 5);
  ASSERT_EQ(resident(Tier::host), 8U);
  // The prefixes are in their order of arrival: two per chunk.
  ASSERT_TRUE(resize(4).has_value());
  EXPECT_EQ(resident(Tier::host), 4U);
  settle();
  EXPECT_EQ(mapped_blocks(), 4U);
  std::uint32_t left = 0;
  for (std::uint32_t number = 1; number <= 5; ++number) left += in_host(number);
  EXPECT_EQ(left, 4U);
}

TEST_F(HostChunksTest, a_chunk_with_a_pinned_block_stays_until_that_goes) {
  host_chunk_blocks = 4;
  make(sizes(4, 8));
  run_prefixes(1, 6);
  ASSERT_EQ(resident(Tier::host), 8U);
  const std::uint32_t high = prefix_above(4);
  ASSERT_NE(high, 0U);
  const PinId pin = cache->pin(prefix(high)).value();
  ASSERT_TRUE(resize(4).has_value());
  settle();
  EXPECT_EQ(in_host(high), 2U);
  EXPECT_EQ(resident(Tier::host), 4U);  // the others have been evicted in the chunk that stays
  EXPECT_EQ(cache->host_memory().going, 1U);
  EXPECT_EQ(mapped_blocks(), 8U);
  run_prefixes(11, 3);
  EXPECT_EQ(resident(Tier::host), 4U);
  ASSERT_TRUE(cache->unpin(pin).has_value());
  settle();
  EXPECT_EQ(in_host(high), 0U);
  EXPECT_EQ(mapped_blocks(), 4U);
  run_prefixes(21, 5);
  EXPECT_EQ(resident(Tier::host), 4U);
}

TEST_F(HostChunksTest, a_chunk_that_was_to_go_comes_back_where_the_tier_grows_again) {
  host_chunk_blocks = 4;
  make(sizes(4, 8));
  run_prefixes(1, 6);
  const PinId pin = cache->pin(prefix(prefix_above(4))).value();
  ASSERT_TRUE(resize(4).has_value());
  EXPECT_EQ(cache->host_memory().going, 1U);
  ASSERT_TRUE(resize(8).has_value());
  settle();
  EXPECT_EQ(cache->host_memory().usable, 8U);
  EXPECT_EQ(cache->host_memory().going, 0U);
  EXPECT_EQ(mapped_blocks(), 8U);
  run_prefixes(11, 6);
  EXPECT_EQ(resident(Tier::host), 8U);
  ASSERT_TRUE(cache->unpin(pin).has_value());
}

TEST_F(HostChunksTest, growth_that_is_not_wanted_any_more_is_called_off) {
  host_chunk_blocks = 4;
  make(sizes(2, 4));
  ASSERT_TRUE(resize(20).has_value());
  ASSERT_TRUE(arena_worker->step());
  ASSERT_TRUE(resize(4).has_value());  // the first of four chunks is there, but its event has not been collected
  settle();
  EXPECT_EQ(cache->host_memory().usable, 4U);
  EXPECT_EQ(mapped_blocks(), 4U);
  EXPECT_TRUE(cache->host_memory().failure.empty());
  ASSERT_TRUE(resize(9).has_value());
  settle();
  EXPECT_EQ(cache->host_memory().usable, 9U);
  EXPECT_EQ(mapped_blocks(), 9U);
}

TEST_F(HostChunksTest, what_is_warm_stays_until_what_takes_its_place_is_warm_and_goes_then) {
  host_chunk_blocks = 8;
  make(sizes(2, 4));
  ASSERT_TRUE(resize(12).has_value());
  ASSERT_TRUE(resize(8).has_value());  // the chunk that is coming has enough slots
  EXPECT_EQ(cache->host_memory().usable, 4U);
  EXPECT_EQ(cache->host_memory().going, 0U);
  settle();
  EXPECT_EQ(cache->host_memory().usable, 8U);
  EXPECT_EQ(mapped_blocks(), 8U);
}

TEST_F(HostChunksTest, growth_that_an_observer_refuses_calls_off_the_rest) {
  host_chunk_blocks = 4;
  make(sizes(2, 4));
  class : public HostChunkObserver {
   public:
    [[nodiscard]] Result<void> chunk_added(const HostChunk&) override {
      if (++added_ == 2) return Errc::io_failed;
      return {};
    }
    void chunk_removing(const HostChunk&) override {}

   private:
    int added_ = 0;
  } second_refused;
  ASSERT_TRUE(arena->observe(second_refused).has_value());
  ASSERT_TRUE(resize(16).has_value());
  settle();
  EXPECT_EQ(cache->host_memory().usable, 4U);
  EXPECT_TRUE(cache->host_memory().warm());
  EXPECT_EQ(mapped_blocks(), 4U);
  EXPECT_FALSE(cache->host_memory().failure.empty());
  arena->unobserve(second_refused);
}

TEST_F(HostChunksTest, growth_that_does_not_fit_leaves_the_tier_as_it_is_and_says_why) {
  host_chunk_blocks = 4;
  MemoryLimits now;
  now.available = GiB;
  host_limits = [&now] { return now; };
  make(sizes(2, 4));
  run_prefixes(1, 3);
  now.available = Bytes{block_bytes} * 6;
  EXPECT_EQ(resize(20).error(), Errc::no_room);
  EXPECT_TRUE(cache->host_memory().failure.empty());
  now.available = GiB;
  ASSERT_TRUE(resize(20).has_value());
  now.available = Bytes{block_bytes} * 6;  // another process takes the rest before the memory is touched
  settle();
  EXPECT_EQ(cache->host_memory().wanted, 4U);
  EXPECT_TRUE(cache->host_memory().warm());
  EXPECT_NE(cache->host_memory().failure.find("the largest size that fits is 384B"), std::string::npos)
      << cache->host_memory().failure;
  EXPECT_EQ(resident(Tier::host), 4U);
  ASSERT_TRUE(resize(10).has_value());
  settle();
  EXPECT_EQ(cache->host_memory().usable, 10U);
  EXPECT_TRUE(cache->host_memory().failure.empty());
}

TEST_F(HostChunksTest, more_slots_than_its_chunks_can_have_numbers_for_are_refused) {
  host_chunk_blocks = 1;
  make(sizes(2, 4));
  EXPECT_EQ(resize(1U << 27U).error(), Errc::never_fits);
  EXPECT_EQ(cache->host_memory().wanted, 4U);
  ASSERT_TRUE(resize(5).has_value());
}

TEST_F(HostChunksTest, under_write_back_what_leaves_with_its_chunk_is_stored) {
  host_chunk_blocks = 4;
  ManagerConfig config = with_storage(sizes(2, 8), WritePolicy::write_back);
  make(config);
  run_prefixes(1, 5);
  ASSERT_EQ(resident(Tier::host), 8U);
  ASSERT_TRUE(resize(0).has_value());
  EXPECT_EQ(mapped_blocks(), 12U);  // until they are unmapped
  settle();
  EXPECT_EQ(resident(Tier::host), 0U);
  EXPECT_EQ(mapped_blocks(), 4U);  // staging only
  for (std::uint32_t number = 1; number <= 5; ++number) EXPECT_EQ(cache->match(prefix(number)).total(), 2U);
}

TEST_F(HostChunksTest, what_is_mapped_stays_within_a_128th_of_what_is_wanted_as_it_grows_in_small_steps) {
  host_chunk_blocks = 64;
  make(sizes(2, 512));
  for (std::uint32_t blocks = 513; blocks <= 1024; ++blocks) {
    ASSERT_TRUE(cache->resize(Tier::host, Blocks{blocks}).has_value());
    while (arena_worker->step()) {
    }
    poll();
    ASSERT_EQ(cache->host_memory().usable, blocks);
    ASSERT_LE(mapped_blocks(), blocks + blocks / 128 + 1);
  }
  EXPECT_LE(arena->chunks_end(), 8U + 128U);
  cache->manager().check_invariants();
}

// ---- a CacheSystem with its own threads

CacheSystemOptions small_system() {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = KiB * 64, .device_blocks = 8, .host_blocks = 600}};
  return options;
}

TEST(CacheSystemMemory, is_refused_with_the_largest_size_that_fits) {
  CacheSystemOptions options = small_system();
  options.memory_limits = [] {
    MemoryLimits limits;
    limits.cgroup_max = MiB * 96;
    limits.cgroup_current = MiB * 16;
    return limits;
  };
  const std::string text = refusal_of<std::runtime_error>([&] { const CacheSystem stack{options}; });
  EXPECT_NE(text.find("37.5MiB do not fit: the control group allows 96MiB, of which 16MiB are used"), std::string::npos) << text;
  EXPECT_NE(text.find("the largest size that fits is 16MiB"), std::string::npos) << text;
  options.pools[0].host_blocks = 256;
  const CacheSystem stack{options};
}

TEST(CacheSystemMemory, can_serve_before_it_is_warm_and_is_warm_soon) {
  CacheSystemOptions options = small_system();
  options.storage = MemoryStorage{MiB};
  options.host_warm_up = HostWarmUp::while_serving;
  CacheSystem stack{options};
  Cache& cache = stack.cache();
  const auto keys = keys_of({1, 2});
  Lease lease = cache.acquire(request_for(1, keys)).value();
  EXPECT_TRUE(cache.state(lease) == RequestState::ready);
  lease.reset();
  EventFdWaker never;
  while (!cache.host_memory().warm()) {
    (void)cache.poll();
    never.wait(1);
  }
  EXPECT_EQ(cache.host_memory().usable, 600U);
  EXPECT_EQ(cache.host_memory().mapped, options.pools[0].block_bytes * 664);
  ASSERT_TRUE(cache.resize(Tier::host, 1200).has_value());
  while (!cache.host_memory().warm()) {
    (void)cache.poll();
    never.wait(1);
  }
  ASSERT_TRUE(cache.resize(Tier::host, 100).has_value());
  while (cache.host_memory().mapped > options.pools[0].block_bytes * 300) {
    (void)cache.poll();
    never.wait(1);
  }
  cache.manager().check_invariants();
}

/// The configured size is the total: mapped memory stays within 2 % of it, as long as the tier has at least a fifth of its first
/// size.
TEST(CacheSystemMemory, stays_within_two_percent_of_what_is_configured_when_it_shrinks) {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = KiB * 128, .device_blocks = 4, .host_blocks = 4096}};
  CacheSystem stack{options};
  for (const std::uint32_t blocks : {4095U, 4000U, 3001U, 2047U, 1001U, 820U}) {
    ASSERT_TRUE(stack.cache().resize(Tier::host, Blocks{blocks}).has_value());
    const auto most = Bytes{count(options.pools[0].block_bytes) * blocks / 100 * 102};
    // Chunks are unmapped on another thread, which then tells the control plane.
    for (int patience = 0; patience < 60'000 && stack.cache().host_memory().mapped > most; ++patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      stack.cache().poll();
    }
    EXPECT_LE(stack.cache().host_memory().mapped, most) << blocks;
    EXPECT_GE(stack.cache().host_memory().mapped, options.pools[0].block_bytes * blocks);
  }
}

TEST(CacheSystemMemory, ends_while_it_is_being_warmed) {
  CacheSystemOptions options = small_system();
  options.pools[0].host_blocks = 6000;
  options.host_warm_up = HostWarmUp::while_serving;
  const CacheSystem stack{options};
}

}  // namespace
}  // namespace terrace::test
