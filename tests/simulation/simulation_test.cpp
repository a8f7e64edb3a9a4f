#include "tests/seed.hpp"
#include "tests/simulation/run_worlds.hpp"
#include "tests/simulation/world.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace terrace {
namespace {

constexpr int steps = 1000;

// The default run takes the first of all seeds. They are enough to see each event.
constexpr std::uint64_t few_seeds = 600;
constexpr std::uint64_t few_layered_seeds = 250;
constexpr std::uint64_t few_stored_seeds = 250;
constexpr std::uint64_t few_drained_seeds = 600;

TEST(Simulation, serves_only_right_blocks_and_keeps_its_books_whatever_the_order) {
  const std::uint64_t first = test::seed_from_env_or(1);
  const std::uint64_t count = test::seeds_from_env_or(few_seeds, 3000);
  test::World::Seen total;
  ManagerStats stats;
  PrefetchTotals prefetches;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    test::World world{seed, test::random_options(seed)};
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed) + " " + world.describe());
    if (std::getenv("TERRACE_VERBOSE") != nullptr) std::fprintf(stderr, "seed %lu %s\n", seed, world.describe().c_str());
    test::run_world(world, steps);
    ASSERT_EQ(world.seen().mismatches, 0U);
    test::add_counts(total, world.seen());
    test::add_counts(stats, world.stats());
    test::add_counts(prefetches, world.prefetch_totals());
  }
  std::printf("device %lu host %lu storage %lu miss %lu; failed %lu no room %lu; rescued %lu joined %lu duplicates %lu "
              "load failures %lu late %lu replans %lu; not stored: failed %lu gone %lu no room %lu orphaned %lu; "
              "evicted from storage %lu\n",
              total.found[Source::device], total.found[Source::host], total.found[Source::storage], total.miss, total.failed,
              total.no_room, stats.evictions_cancelled, stats.joined, stats.duplicates, stats.load_failures, stats.loads_late,
              stats.replans, stats.store_failed, stats.store_gone, stats.store_no_room, stats.store_orphaned,
              stats.stored_evicted);
  // If these events never happen in a world, it proves nothing about them.
  if (count < few_seeds) return;
  for (const Tier tier : all_tiers) EXPECT_GT(total.found[to_source(tier)], 0U) << to_string(tier);
  EXPECT_GT(total.failed, 0U);
  EXPECT_GT(total.no_room, 0U);
  EXPECT_GT(total.clears, 0U);
  EXPECT_GT(total.pins, 0U);
  EXPECT_GT(total.drops, 0U);
  EXPECT_GT(total.resizes, 0U);
  EXPECT_GT(total.storage_grown, 0U);
  EXPECT_GT(total.storage_shrunk, 0U);
  EXPECT_GT(total.growth_stopped, 0U);
  EXPECT_GT(total.directories_lost, 0U);
  EXPECT_GT(total.chunks_added, 0U);
  EXPECT_GT(total.chunks_removed, 0U);
  EXPECT_GT(total.growths_failed, 0U);
  EXPECT_GT(total.retained, 0U);
  EXPECT_GT(total.quotas, 0U);
  EXPECT_GT(total.settings, 0U);
  EXPECT_GT(total.jobs, 0U);
  EXPECT_GT(total.durable, 0U);
  EXPECT_GT(total.lost, 0U);
  for (const std::uint64_t blocks : total.job_blocks) EXPECT_GT(blocks, 0U);
  EXPECT_GT(total.grouped_hits, 0U);
  EXPECT_GT(total.unserved, 0U);
  EXPECT_GT(total.given_up, 0U);
  EXPECT_GT(total.layers_told, 0U);
  EXPECT_GT(total.layers_seen, 0U);
  EXPECT_GT(total.dropped, 0U);
  EXPECT_GT(total.quarantined, 0U);
  EXPECT_GT(total.retried, 0U);
  EXPECT_GT(total.breakers_opened, 0U);
  EXPECT_GT(total.links_stopped, 0U);
  EXPECT_GT(total.declined, 0U);
  EXPECT_GT(total.corrupt, 0U);
  EXPECT_GT(stats.evictions_cancelled, 0U);
  EXPECT_GT(stats.joined, 0U);
  EXPECT_GT(stats.duplicates, 0U);
  EXPECT_GT(stats.load_failures, 0U);
  EXPECT_GT(stats.loads_late, 0U);
  EXPECT_GT(stats.replans, 0U);
  EXPECT_GT(stats.ahead_device, 0U);
  EXPECT_GT(stats.ahead_host, 0U);
  EXPECT_GT(stats.backed_up, 0U);
  EXPECT_GT(stats.store_failed, 0U);
  EXPECT_GT(stats.store_gone, 0U);
  EXPECT_GT(stats.store_no_room, 0U);
  EXPECT_GT(stats.store_orphaned, 0U);
  EXPECT_GT(stats.stored_evicted, 0U);
  EXPECT_GT(prefetches.refused, 0U);
  EXPECT_GT(prefetches.cut, 0U);
  EXPECT_GT(prefetches.cancelled, 0U);
  EXPECT_GT(prefetches.joined, 0U);
  EXPECT_GT(prefetches.from_storage, 0U);
  EXPECT_GT(prefetches.failed, 0U);
}

/// Worlds in which most hits are loaded by layer, and transfers fail.
TEST(Simulation, tells_of_no_layer_that_is_not_there) {
  const std::uint64_t first = test::seed_from_env_or(1);
  const std::uint64_t count = test::seeds_from_env_or(few_layered_seeds, 1000);
  test::World::Seen total;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    test::World world{seed, test::layered_options(seed)};
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed) + " " + world.describe());
    test::run_world(world, steps);
    ASSERT_EQ(world.seen().mismatches, 0U);
    test::add_counts(total, world.seen());
  }
  std::printf("told of layers %lu times, %lu blocks looked at then; %lu requests failed after that\n", total.layers_told,
              total.layers_seen, total.failed_late);
  if (count < few_layered_seeds) return;
  EXPECT_GT(total.layers_told, count / 2);
  EXPECT_GT(total.layers_seen, count / 2);
  EXPECT_GT(total.failed_late, count / 100);
}

/// Worlds in which much of what is hit comes from the disk, of several pools, before and after clears and restarts.
TEST(Simulation, serves_only_right_blocks_from_the_disk_through_clears_and_restarts) {
  const std::uint64_t first = test::seed_from_env_or(1);
  const std::uint64_t count = test::seeds_from_env_or(few_stored_seeds, 2000);
  test::World::Seen total;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    test::World world{seed, test::stored_options(seed)};
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed) + " " + world.describe());
    test::run_world(world, 2 * steps);
    ASSERT_EQ(world.seen().mismatches, 0U);
    test::add_counts(total, world.seen());
  }
  const auto& found = total.found;
  std::printf("device %lu host %lu storage %lu miss %lu; clears %lu, restarts %lu\n", found[Source::device], found[Source::host],
              found[Source::storage], total.miss, total.clears, total.restarts);
  if (count < few_stored_seeds) return;
  EXPECT_GE(found[Source::storage] * 5, found.sum());
  EXPECT_GT(total.clears, count / 2);
  EXPECT_GT(total.restarts, count);
}

/// Worlds that are drained now and then.
TEST(Simulation, leaves_no_request_waiting_when_its_work_is_done) {
  const std::uint64_t first = test::seed_from_env_or(1);
  const std::uint64_t count = test::seeds_from_env_or(few_drained_seeds, 3000);
  test::World::Seen total;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    test::World world{seed, test::random_options(seed)};
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed) + " " + world.describe());
    constexpr int drains = 20;
    for (int i = 0; i < drains; ++i) {
      for (int step = 0; step < steps / drains; ++step) world.step();
      world.check();
      world.drain();
      world.check();
    }
    world.wind_down();
    ASSERT_EQ(world.seen().mismatches, 0U);
    test::add_counts(total, world.seen());
  }
  std::printf("%lu requests waited\n", total.drained);
  EXPECT_GE(total.drained, count);
}

TEST(Simulation, ends_in_the_same_state_for_the_same_seed) {
  test::expect_same_ends(40, steps, [](std::uint64_t seed) { return test::World{seed, test::random_options(seed)}; });
}

/// With this seed, copies from the device fail while the host tier shrinks, staging is full, and ancestors are not stored.
TEST(Simulation, a_write_that_the_link_cannot_carry_is_not_asked_for_without_end) {
  test::World world{1253, test::random_options(1253)};
  test::run_world(world, steps);
  EXPECT_EQ(world.seen().mismatches, 0U);
}

TEST(Simulation, differs_between_seeds) {
  const test::WorldOptions options = test::random_options(3);
  test::World a{1, options};
  test::World b{2, options};
  for (int i = 0; i < steps; ++i) {
    a.step();
    b.step();
  }
  EXPECT_NE(a.digest(), b.digest());
  a.wind_down();
  b.wind_down();
}

}  // namespace
}  // namespace terrace
