#include "tests/runtime/offload/offload_world.hpp"
#include "tests/seed.hpp"
#include "tests/simulation/run_worlds.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace terrace {
namespace {

constexpr int steps = 1200;

TEST(OffloadSimulation, moves_only_right_blocks_and_touches_no_slot_after_its_result) {
  const std::uint64_t first = test::seed_from_env_or(1);
  const std::uint64_t count = test::seeds_from_env_or(300, 300);
  test::OffloadWorld::Seen total;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    if (std::getenv("TERRACE_VERBOSE") != nullptr) std::fprintf(stderr, "seed %lu\n", seed);
    test::OffloadWorld world{seed, test::random_offload_options(seed)};
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    test::run_world(world, steps);
    test::add_counts(total, world.seen());
  }
  std::printf(
      "loaded %lu (alone %lu, storage %lu), stored %lu, late %lu, cancelled %lu, missed %lu, full %lu, orphans %lu, memory %lu, "
      "layers %lu, "
      "unconfirmed %lu, crashes %lu, durable %lu, hits %lu, joined %lu, refused %lu, errors %lu, awaited %lu + %lu, not ready "
      "%lu, brought %lu, reserved %lu (given back %lu), pinned slots %lu\n",
      total.loaded, total.loaded_alone, total.from_storage, total.stored, total.late, total.cancelled, total.missed, total.full,
      total.orphans, total.in_memory, total.layers, total.unconfirmed, total.crashes, total.durable, total.hits_compared,
      total.joined, total.refused, total.storage_errors, total.awaited_loads, total.awaited_stores, total.not_ready,
      total.brought, total.reserved, total.given_back, total.pinned_slots);
  if (count < 100) return;
  // Worlds in which nothing happens would prove nothing.
  EXPECT_GT(total.loaded, count * 10);
  EXPECT_GT(total.loaded_alone, count / 2);
  EXPECT_GT(total.from_storage, count / 2);
  EXPECT_GT(total.stored, count * 20);
  EXPECT_GT(total.late, count);
  EXPECT_GT(total.cancelled, count);
  EXPECT_GT(total.missed, count);
  EXPECT_GT(total.full, count / 4);
  EXPECT_GT(total.orphans, count / 4);
  EXPECT_GT(total.in_memory, count);
  EXPECT_GT(total.layers, count / 4);
  EXPECT_GT(total.unconfirmed, count / 4);
  EXPECT_GT(total.crashes, count / 10);
  EXPECT_GT(total.durable, count / 10);
  EXPECT_GT(total.hits_compared, count / 4);
  EXPECT_GT(total.joined, 0U);
  EXPECT_GT(total.refused, count / 4);
  EXPECT_GT(total.storage_errors, 0U);
  EXPECT_GT(total.awaited_loads, count / 4);
  EXPECT_GT(total.awaited_stores, count / 4);
  EXPECT_GT(total.not_ready, count / 4);
}

TEST(OffloadSimulation, the_same_seed_ends_in_the_same_state) {
  test::expect_same_ends(5, steps, [](std::uint64_t seed) {
    return test::OffloadWorld{seed, test::random_offload_options(seed)};
  });
}

TEST(OffloadSimulation, serves_only_right_blocks_whatever_a_shared_store_does) {
  const std::uint64_t first = test::seed_from_env_or(1);
  const std::uint64_t count = test::seeds_from_env_or(100, 300);
  test::OffloadWorld::Seen total;
  SharedTotals shared;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    if (std::getenv("TERRACE_VERBOSE") != nullptr) std::fprintf(stderr, "seed %lu\n", seed);
    test::OffloadWorld world{seed, test::shared_offload_options(seed)};
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    test::run_world(world, 2 * steps);
    test::add_counts(total, world.seen());
    test::add_counts(shared, world.shared_totals());
  }
  std::printf("loaded %lu (shared %lu), found %lu, looking %lu; look-ups: late %lu, joined %lu, skipped %lu; reads: gone %lu, "
              "corrupt %lu, "
              "late %lu, failed %lu; written %lu, present %lu\n",
              total.loaded, total.from_shared, total.found_shared, total.looking, shared.look_ups_late, shared.look_ups_joined,
              shared.look_ups_skipped, shared.read_gone, shared.read_corrupt, shared.read_late, shared.read_failed,
              shared.written, shared.present);
  if (count < 100) return;
  EXPECT_GT(total.from_shared, count);
  EXPECT_GT(total.found_shared, count);
  EXPECT_GT(total.looking, count);
  EXPECT_GT(shared.look_ups_late, count / 10);
  EXPECT_GT(shared.look_ups_skipped, count / 10);
  EXPECT_GT(shared.read_gone, count / 10);
  EXPECT_GT(shared.read_corrupt, count / 10);
  EXPECT_GT(shared.read_late, count / 10);
  EXPECT_GT(shared.read_failed, count / 10);
  EXPECT_GT(shared.written, count);
  EXPECT_GT(shared.present, count);
}

TEST(OffloadSimulation, ends_in_the_same_state_for_the_same_seed_with_a_shared_store) {
  test::expect_same_ends(10, steps, [](std::uint64_t seed) {
    return test::OffloadWorld{seed, test::shared_offload_options(seed)};
  });
}

}  // namespace
}  // namespace terrace
