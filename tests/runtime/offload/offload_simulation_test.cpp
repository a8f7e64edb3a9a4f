#include "tests/runtime/offload/offload_world.hpp"
#include "tests/seed.hpp"
#include "tests/simulation/run_worlds.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

namespace terrace {
namespace {

using Seen = test::OffloadWorld::Seen;

constexpr int steps = 1200;

/// One of the counts of what happened in the worlds of a test. Worlds in which nothing happens would prove nothing, so many
/// worlds together must have more than `least` for each of them.
template <class Totals>
struct Counted {
  const char* name;
  std::uint64_t Totals::*count;
  double least = -1;  ///< -1: it may be 0
};

constexpr Counted<Seen> counted[] = {
    {"loaded", &Seen::loaded, 10},
    {"loaded alone", &Seen::loaded_alone, 1. / 2},
    {"companions", &Seen::companions, 1.},
    {"from storage", &Seen::from_storage, 1. / 2},
    {"stored", &Seen::stored, 20},
    {"late", &Seen::late, 1},
    {"cancelled", &Seen::cancelled, 1},
    {"missed", &Seen::missed, 1},
    {"full", &Seen::full, 1. / 4},
    {"orphans", &Seen::orphans, 1. / 4},
    {"in memory", &Seen::in_memory, 1},
    {"layers", &Seen::layers, 1. / 4},
    {"unconfirmed", &Seen::unconfirmed, 1. / 4},
    {"crashes", &Seen::crashes, 1. / 10},
    {"durable", &Seen::durable, 1. / 10},
    {"hits compared", &Seen::hits_compared, 1. / 4},
    {"joined", &Seen::joined, 0},
    {"refused", &Seen::refused, 1. / 4},
    {"errors of storage", &Seen::storage_errors, 0},
    {"awaited loads", &Seen::awaited_loads, 1. / 4},
    {"awaited stores", &Seen::awaited_stores, 1. / 4},
    {"not ready", &Seen::not_ready, 1. / 4},
    {"brought", &Seen::brought},
    {"reserved", &Seen::reserved},
    {"given back", &Seen::given_back},
    {"pinned slots", &Seen::pinned_slots},
};
constexpr Counted<Seen> counted_with_shared[] = {
    {"loaded", &Seen::loaded},
    {"from the shared store", &Seen::from_shared, 1},
    {"found there", &Seen::found_shared, 1},
    {"looking", &Seen::looking, 1},
};
constexpr Counted<SharedTotals> counted_of_shared[] = {
    {"look-ups late", &SharedTotals::look_ups_late, 1. / 10},
    {"joined", &SharedTotals::look_ups_joined},
    {"skipped", &SharedTotals::look_ups_skipped, 1. / 10},
    {"reads gone", &SharedTotals::read_gone, 1. / 10},
    {"corrupt", &SharedTotals::read_corrupt, 1. / 10},
    {"late", &SharedTotals::read_late, 1. / 10},
    {"failed", &SharedTotals::read_failed, 1. / 10},
    {"written", &SharedTotals::written, 1},
    {"present", &SharedTotals::present, 1},
};

template <class Totals>
void judge(const Totals& total, std::span<const Counted<Totals>> counts, std::uint64_t worlds) {
  for (const Counted<Totals>& each : counts) {
    std::printf("%s %lu\n", each.name, total.*each.count);
    if (worlds < 100) continue;
    EXPECT_GT(static_cast<double>(total.*each.count), each.least * static_cast<double>(worlds)) << each.name;
  }
}

/// Runs a world for each seed, and calls `see` with it afterwards.
template <class See>
void run_worlds(std::uint64_t count, int steps_of_each, test::OffloadWorldOptions (*options)(std::uint64_t seed),
                const See& see) {
  const std::uint64_t first = test::seed_from_env_or(1);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    if (std::getenv("TERRACE_VERBOSE") != nullptr) std::fprintf(stderr, "seed %lu\n", seed);
    test::OffloadWorld world{seed, options(seed)};
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    test::run_world(world, steps_of_each);
    see(world);
  }
}

TEST(OffloadSimulation, moves_only_right_blocks_and_touches_no_slot_after_its_result) {
  const std::uint64_t count = test::seeds_from_env_or(300, 300);
  Seen total;
  run_worlds(count, steps, test::random_offload_options,
             [&](const test::OffloadWorld& world) { test::add_counts(total, world.seen()); });
  judge<Seen>(total, counted, count);
}

TEST(OffloadSimulation, the_same_seed_ends_in_the_same_state) {
  test::expect_same_ends(5, steps, [](std::uint64_t seed) {
    return test::OffloadWorld{seed, test::random_offload_options(seed)};
  });
}

TEST(OffloadSimulation, serves_only_right_blocks_whatever_a_shared_store_does) {
  const std::uint64_t count = test::seeds_from_env_or(100, 300);
  Seen total;
  SharedTotals shared;
  run_worlds(count, 2 * steps, test::shared_offload_options, [&](const test::OffloadWorld& world) {
    test::add_counts(total, world.seen());
    test::add_counts(shared, world.shared_totals());
  });
  judge<Seen>(total, counted_with_shared, count);
  judge<SharedTotals>(shared, counted_of_shared, count);
}

TEST(OffloadSimulation, ends_in_the_same_state_for_the_same_seed_with_a_shared_store) {
  test::expect_same_ends(10, steps, [](std::uint64_t seed) {
    return test::OffloadWorld{seed, test::shared_offload_options(seed)};
  });
}

}  // namespace
}  // namespace terrace
