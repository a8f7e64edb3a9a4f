// Which places of a store a pass of the scrub visits, wherever it begins and whatever becomes of the store meanwhile.
#include "base/random.hpp"
#include "storage/resilience/scrub.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;

/// A block takes a millisecond.
constexpr ScrubOptions quick{Bytes{block_size} * 1000, milliseconds{100}};

/// Places with keys or without, as a test sets them. Reads succeed, and those under way have each a buffer of their own.
class Places final : public BlockStore {
 public:
  void read(std::span<const StoreRead> batch) override {
    for (const StoreRead& read : batch) {
      EXPECT_EQ(read.into.size(), block_size);
      EXPECT_TRUE(buffers_.insert(read.into.data()).second) << "another read's";
      ended_.push_back({StoreEvent::Kind::read, read.token, read.key, {}});
      read_.push_back(read.key);
    }
  }
  void write(std::span<const StoreWrite>) override {}
  void remove(std::span<const BlockKey>, std::uint64_t) override {}
  [[nodiscard]] bool contains(const BlockKey&) const override { return false; }
  void touch(std::span<const BlockKey>) override {}
  void flush(std::uint64_t) override {}
  void adopt_all(const Adopt&) override {}
  std::size_t poll(std::vector<StoreEvent>& out) override {
    const std::size_t count = ended_.size();
    out.insert(out.end(), ended_.begin(), ended_.end());
    ended_.clear();
    buffers_.clear();
    return count;
  }
  [[nodiscard]] std::size_t in_flight() const override { return ended_.size(); }
  [[nodiscard]] Bytes block_bytes() const override { return Bytes{block_size}; }
  [[nodiscard]] StoreStat stat() const override { return {}; }
  void for_each(const std::function<void(const StoredBlock&)>&) const override {}
  [[nodiscard]] StoreStep walk(std::uint64_t place, std::uint32_t looks_max) const override {
    const std::uint64_t end = place < at.size() ? std::min<std::uint64_t>(at.size(), place + looks_max) : at.size();
    for (std::uint64_t n = place; n < end; ++n) {
      if (at[n]) return {at[n], n + 1, at.size()};
    }
    return {std::nullopt, end, at.size()};
  }
  void check_invariants() const override {}

  void put(std::size_t place) {
    at[place] = key_of(++last_key_);
    place_of[*at[place]] = place;
  }
  /// Since the last call, in their order.
  std::vector<BlockKey> take_read() { return std::exchange(read_, {}); }

  std::vector<std::optional<BlockKey>> at;
  std::map<BlockKey, std::size_t> place_of;  ///< of every key that there ever was

 private:
  std::vector<StoreEvent> ended_;
  std::set<const std::byte*> buffers_;  ///< of the reads under way
  std::vector<BlockKey> read_;
  std::uint64_t last_key_ = 0;
};

class ScrubPlaces : public testing::Test {
 protected:
  void poll(Duration time = milliseconds{1}) {
    clock.advance(time);
    guard.poll(events_);
    guard.check_invariants();
  }
  void end_pass() {
    const std::uint64_t before = scrub.health().passes;
    for (int i = 0; i < 100'000 && scrub.health().passes == before; ++i) poll();
    ASSERT_EQ(scrub.health().passes, before + 1);
  }
  void make(std::size_t places) {
    store.at.resize(places);
    for (std::size_t place = 0; place < places; ++place) store.put(place);
  }
  std::vector<std::size_t> places_read() {
    std::vector<std::size_t> places;
    for (const BlockKey& key : store.take_read()) places.push_back(store.place_of.at(key));
    return places;
  }

  ManualClock clock;
  Scrub scrub{Bytes{block_size}, quick};
  Places store;
  GuardedStore guard{store, clock};
  std::vector<StoreEvent> events_;
};

TEST_F(ScrubPlaces, are_visited_from_where_the_pass_begins_to_the_end_and_from_the_first_to_there) {
  make(5);
  scrub.start(guard, clock.now(), 13);  // modulo 5
  poll();
  EXPECT_EQ(scrub.health().began_at, 3U);
  EXPECT_EQ(scrub.health().place, 1U);
  EXPECT_EQ(scrub.health().places, 5U);
  end_pass();
  EXPECT_EQ(places_read(), (std::vector<std::size_t>{3, 4, 0, 1, 2}));
  EXPECT_EQ(scrub.health().place, 5U);
  end_pass();
  EXPECT_EQ(scrub.health().began_at, 3U);
  EXPECT_EQ(places_read(), (std::vector<std::size_t>{3, 4, 0, 1, 2})) << "later passes begin there as well";
}

TEST_F(ScrubPlaces, that_are_free_are_walked_over_in_bounded_steps_on_both_sides_of_where_it_begins) {
  store.at.resize(1300);
  store.put(899);
  store.put(1299);
  scrub.start(guard, clock.now(), 900);
  std::uint64_t most = 0;
  while (scrub.health().passes == 0) {
    const std::uint64_t before = scrub.health().place;
    poll();
    most = std::max(most, scrub.health().place - before);
  }
  EXPECT_EQ(most, Scrub::looks_max) << "from 0 on, where the next block is beyond";
  EXPECT_EQ(places_read(), (std::vector<std::size_t>{1299, 899}));
  EXPECT_EQ(scrub.health().place, 1300U);
  EXPECT_GE(scrub.health().last_pass_took, Scrub::look_pause);
}

TEST_F(ScrubPlaces, are_all_visited_in_the_end_though_every_pass_is_cut_off_after_a_quarter) {
  make(400);
  Random random{7};
  std::set<std::size_t> visited;
  for (int start = 0; start < 40; ++start) {
    Scrub again{Bytes{block_size}, quick};
    GuardedStore anew{store, clock};
    again.start(anew, clock.now(), random.below(~0ULL));
    while (again.health().place < 100) {
      clock.advance(milliseconds{1});
      anew.poll(events_);
    }
    while (store.in_flight() > 0) anew.poll(events_);
    for (const std::size_t place : places_read()) visited.insert(place);
  }
  EXPECT_EQ(visited.size(), 400U);
}

TEST_F(ScrubPlaces, of_a_store_that_shrinks_below_where_the_pass_began_are_visited_to_its_end) {
  make(100);
  scrub.start(guard, clock.now(), 60);
  while (scrub.health().place < 10) poll();
  store.at.resize(30);
  end_pass();
  std::vector<std::size_t> expected;
  for (std::size_t place = 60; place < 70; ++place) expected.push_back(place);
  for (std::size_t place = 0; place < 30; ++place) expected.push_back(place);
  EXPECT_EQ(places_read(), expected);
  EXPECT_EQ(scrub.health().place, 30U);
  EXPECT_EQ(scrub.health().places, 30U);
  end_pass();
  EXPECT_EQ(scrub.health().began_at, 0U) << "60 modulo 30";
  EXPECT_EQ(places_read().size(), 30U);
}

TEST_F(ScrubPlaces, that_are_new_are_visited_while_the_pass_has_not_turned_and_else_in_the_next) {
  make(20);
  scrub.start(guard, clock.now(), 10);
  while (scrub.health().place < 5) poll();
  store.at.resize(25);
  store.put(24);
  while (scrub.health().place < 17) poll();
  store.at.resize(30);
  store.put(29);
  end_pass();
  const std::vector<std::size_t> visited = places_read();
  EXPECT_EQ(visited.size(), 21U);
  EXPECT_EQ(std::ranges::count(visited, 24U), 1);
  EXPECT_EQ(std::ranges::count(visited, 29U), 0);
  end_pass();
  EXPECT_EQ(std::ranges::count(places_read(), 29U), 1);
}

TEST_F(ScrubPlaces, may_all_be_gone) {
  make(10);
  scrub.start(guard, clock.now(), 7);
  poll();
  store.at.clear();
  end_pass();
  EXPECT_EQ(scrub.health().place, 0U);
  end_pass();
  make(10);
  end_pass();
  EXPECT_EQ(scrub.health().blocks, 1U + 10U);
}

/// Against a plain list of what was there: whatever comes and goes, and however the store grows and shrinks, no place is visited
/// twice in a pass, and every block that is where it was from its start to its end is read.
TEST(ScrubPlacesProperty, that_stay_are_visited_once_a_pass_whatever_the_others_do) {
  const std::uint64_t first_seed = seed_from_env_or(1);
  for (std::uint64_t seed = first_seed; seed < first_seed + 300; ++seed) {
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    Random random{seed};
    ManualClock clock;
    Scrub scrub{Bytes{block_size}, quick};
    Places store;
    GuardedStore guard{store, clock};
    std::vector<StoreEvent> events;
    store.at.resize(random.between(1, 1500));
    const double filled = random.chance(0.3) ? 0.01 : 0.5;
    for (std::size_t place = 0; place < store.at.size(); ++place) {
      if (random.chance(filled)) store.put(place);
    }
    scrub.start(guard, clock.now(), random.below(~0ULL));
    const double changes = random.chance(0.5) ? 0.1 : 0.01;
    for (int pass = 0; pass < 3; ++pass) {
      std::vector<std::optional<BlockKey>> stayed;
      std::set<std::size_t> visited;
      bool begun = false;
      for (const std::uint64_t before = scrub.health().passes; scrub.health().passes == before;) {
        clock.advance(milliseconds{random.below(30)});
        guard.poll(events);
        guard.check_invariants();
        if (!begun && scrub.health().state != ScrubState::resting) {
          begun = true;
          stayed = store.at;
        }
        for (const BlockKey& key : store.take_read()) {
          ASSERT_TRUE(visited.insert(store.place_of.at(key)).second) << store.place_of.at(key);
        }
        ASSERT_LE(scrub.health().place, scrub.health().places);
        if (scrub.health().passes != before || !random.chance(changes)) continue;
        switch (random.below(4)) {
          case 0: store.at.resize(store.at.size() + random.below(200)); break;
          case 1: store.at.resize(store.at.size() - random.below(std::min<std::size_t>(store.at.size(), 200))); break;
          case 2: store.put(random.below(store.at.size())); break;
          default: store.at[random.below(store.at.size())].reset(); break;
        }
        stayed.resize(std::min(stayed.size(), store.at.size()));
        for (std::size_t place = 0; place < stayed.size(); ++place) {
          if (stayed[place] != store.at[place]) stayed[place].reset();
        }
      }
      for (std::size_t place = 0; place < stayed.size(); ++place) {
        ASSERT_TRUE(!stayed[place] || visited.contains(place)) << place;
      }
    }
  }
}

}  // namespace
}  // namespace terrace::test
