// Several caches over one shared store that evicts, loses, delays, damages, stops and dies. Each compares the content of every
// hit with what belongs to its key, wherever it came from.

#include "tests/seed.hpp"
#include "tests/simulation/run_worlds.hpp"
#include "tests/simulation/world.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace terrace {
namespace {

using namespace std::chrono_literals;

SimulatedSharedFaults random_faults(Random& random) {
  SimulatedSharedFaults faults;
  faults.latency_max = std::chrono::milliseconds{random.between(1, 10)};
  if (random.chance(0.5)) return faults;
  faults.draw(random);
  return faults;
}

/// Two or three worlds, on one clock.
class Worlds {
 public:
  explicit Worlds(std::uint64_t model)
      : random_{model * 31 + 7},
        engine_{model, clock_, static_cast<std::uint32_t>(random_.between(1, 3)), random_faults(random_)} {
    if (random_.chance(0.3)) engine_.set_values_max(random_.between(1, 40));
    const std::uint64_t worlds = random_.between(2, 3);
    for (std::uint64_t n = 0; n < worlds; ++n) {
      const std::uint64_t own = model * 10 + n;
      worlds_.push_back(
          std::make_unique<test::World>(own, test::shared_options(own, model), test::Neighbourhood{clock_, engine_}));
    }
  }

  void step() {
    test::World& world = *worlds_[random_.below(worlds_.size())];
    world.step();
    world.check();
    if (random_.chance(0.003)) disturb();
  }
  void wind_down() {
    engine_.set_faults({});
    engine_.set_full(false);
    engine_.set_all_nodes(SimulatedSharedEngine::NodeState::well);
    for (const auto& world : worlds_) world->wind_down();
  }
  [[nodiscard]] const std::vector<std::unique_ptr<test::World>>& all() const { return worlds_; }
  [[nodiscard]] std::uint64_t digest() const {
    std::uint64_t all = 0;
    for (const auto& world : worlds_) all = all * 31 + world->digest();
    return all;
  }

 private:
  void disturb() {
    using NodeState = SimulatedSharedEngine::NodeState;
    switch (random_.below(6)) {
      case 0: {
        const auto node = static_cast<std::uint32_t>(random_.below(engine_.nodes()));
        const auto data = random_.chance(0.5) ? SimulatedSharedEngine::Data::kept : SimulatedSharedEngine::Data::lost;
        engine_.set_node(node, random_.chance(0.5) ? NodeState::stalled : NodeState::dead, data);
        return;
      }
      case 1:
      case 2:
      case 3: engine_.set_all_nodes(NodeState::well); return;
      case 4: engine_.set_full(random_.chance(0.3)); return;
      default: engine_.evict_one(); return;
    }
  }

  Random random_;
  ManualClock clock_;
  SimulatedSharedEngine engine_;
  std::vector<std::unique_ptr<test::World>> worlds_;
};

constexpr int shared_steps = 5000;
// The default run takes the first of all seeds. They are enough to see each event.
constexpr std::uint64_t few_shared_seeds = 200;

TEST(SharedSimulation, serves_only_right_blocks_to_several_caches_whatever_the_store_does) {
  const std::uint64_t first = test::seed_from_env_or(1);
  const std::uint64_t count = test::seeds_from_env_or(few_shared_seeds, 1000);
  test::World::Seen seen;
  std::uint64_t grouped_shared = 0;
  SharedTotals total;
  PrefetchTotals prefetches;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    if (std::getenv("TERRACE_VERBOSE") != nullptr) std::fprintf(stderr, "seed %lu\n", seed);
    Worlds worlds{seed};
    for (int i = 0; i < shared_steps; ++i) worlds.step();
    worlds.wind_down();
    for (const auto& world : worlds.all()) {
      ASSERT_EQ(world->seen().mismatches, 0U) << world->describe();
      test::add_counts(seen, world->seen());
      if (world->group_count() > 1) grouped_shared += world->seen().found[Source::shared];
      test::add_counts(total, world->shared_totals());
      test::add_counts(prefetches, world->prefetch_totals());
    }
  }
  std::printf(
      "device %lu host %lu storage %lu shared %lu; failed %lu; look-ups %lu: asked %lu there %lu joined %lu late %lu, skipped "
      "%lu; reads: gone "
      "%lu corrupt %lu late %lu failed %lu; written %lu present %lu; dropped: gone %lu failed %lu full %lu budget %lu off "
      "%lu; prefetched %lu, failed %lu, joined %lu; several groups: hits %lu, shared %lu\n",
      seen.found[Source::device], seen.found[Source::host], seen.found[Source::storage], seen.found[Source::shared], seen.failed,
      total.look_ups, total.asked, total.there, total.look_ups_joined, total.look_ups_late, total.look_ups_skipped,
      total.read_gone, total.read_corrupt, total.read_late, total.read_failed, total.written, total.present, total.drop_gone,
      total.drop_failed, total.drop_full, total.drop_budget, total.drop_off, prefetches.from_shared, prefetches.failed,
      prefetches.joined, seen.grouped_hits, grouped_shared);
  // If these events never happen, the worlds prove nothing about them.
  if (count < few_shared_seeds) return;
  for (const Source source : all_sources) EXPECT_GT(seen.found[source], 0U) << to_string(source);
  EXPECT_GT(seen.clears, 0U);
  EXPECT_GT(seen.grouped_hits, 0U);
  EXPECT_GT(grouped_shared, 0U);
  EXPECT_GT(total.look_ups_joined, 0U);
  EXPECT_GT(total.look_ups_skipped, 0U);
  EXPECT_GT(total.look_ups_late, 0U);
  EXPECT_GT(total.read_gone, 0U);
  EXPECT_GT(total.read_corrupt, 0U);
  EXPECT_GT(total.read_late, 0U);
  EXPECT_GT(total.read_failed, 0U);
  EXPECT_GT(total.written, 0U);
  EXPECT_GT(total.present, 0U);
  EXPECT_GT(total.drop_gone, 0U);
  EXPECT_GT(total.drop_failed, 0U);
  EXPECT_GT(total.drop_full, 0U);
  EXPECT_GT(total.drop_budget, 0U);
  EXPECT_GT(total.drop_off, 0U);
  EXPECT_GT(prefetches.joined, 0U);
  EXPECT_GT(prefetches.from_shared, 0U);
  EXPECT_GT(prefetches.failed, 0U);
}

TEST(SharedSimulation, ends_in_the_same_state_for_the_same_seed) {
  test::expect_same_ends(20, shared_steps, [](std::uint64_t seed) { return Worlds{seed}; });
}

}  // namespace
}  // namespace terrace
