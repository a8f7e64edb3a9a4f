#include "runtime/events/event_stream.hpp"

#include "base/random.hpp"
#include "tests/runtime/events/subscriber.hpp"
#include "tests/seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace terrace::events {
namespace {

using test::decode_batch;
using test::Subscriber;
using test::WireEvent;

constexpr std::uint32_t block_tokens = 4;

BlockKey key(std::uint32_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}
std::vector<BlockKey> keys(std::uint32_t first, std::uint32_t count) {
  std::vector<BlockKey> keys;
  for (std::uint32_t i = 0; i < count; ++i) keys.push_back(key(first + i));
  return keys;
}
/// The tokens of block n: 100 n, 100 n + 1 and so on.
std::vector<TokenId> tokens(std::uint32_t first, std::uint32_t count) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t j = 0; j < block_tokens; ++j) tokens.push_back(100 * (first + i) + j);
  }
  return tokens;
}

KvEvent stored(std::uint32_t number, Source source, GroupId group = {}) {
  return {.kind = KvEvent::Kind::stored, .source = source, .group = group, .key = key(number)};
}
KvEvent removed(std::uint32_t number, Source source, GroupId group = {}) {
  return {.kind = KvEvent::Kind::removed, .source = source, .group = group, .key = key(number)};
}

struct Published : testing::Test {
  explicit Published(const EventPublisherOptions& options = {.data_parallel_rank = 3}) : stream{options} {}
  ~Published() override { stream.check_invariants(); }

  void describe(std::uint32_t first, std::uint32_t count, std::optional<std::uint32_t> parent = {}, GroupId group = {},
                std::string_view adapter = {}) {
    const auto names = keys(first, count);
    const auto content = tokens(first, count);
    stream.describe({names, content, block_tokens, parent ? std::optional{key(*parent)} : std::nullopt, group, adapter}, 1, out);
  }
  void apply(const std::vector<KvEvent>& events) { stream.apply(events, 1, out); }
  /// The events of all batches since the last call, without the first of all, which says that nothing is cached.
  std::vector<WireEvent> take() {
    stream.flush(1, out);
    std::vector<WireEvent> events;
    for (const Batch& batch : out) {
      for (WireEvent& event : decode_batch(*batch.payload).events) events.push_back(std::move(event));
      if (batch.sequence != 0) continue;
      EXPECT_EQ(events.front(), WireEvent{.type = "AllBlocksCleared"});
      events.erase(events.begin());
    }
    out.clear();
    return events;
  }

  EventStream stream;
  std::vector<Batch> out;
};

WireEvent stored_event(std::uint32_t first, std::uint32_t count, std::string medium, std::optional<std::uint32_t> parent = {}) {
  return {.type = "BlockStored",
          .keys = keys(first, count),
          .parent = parent ? std::optional{key(*parent)} : std::nullopt,
          .tokens = tokens(first, count),
          .block_tokens = block_tokens,
          .medium = std::move(medium)};
}

TEST_F(Published, blocks_of_a_prefix_are_one_event_for_each_tier) {
  describe(1, 3);
  apply({stored(1, Source::device), stored(2, Source::device), stored(3, Source::device), stored(1, Source::host),
         stored(2, Source::storage)});
  EXPECT_EQ(take(), (std::vector{stored_event(1, 3, "GPU"), stored_event(1, 1, "CPU"), stored_event(2, 1, "STORAGE", 1)}));
  apply({removed(3, Source::device), removed(2, Source::device), removed(2, Source::storage)});
  EXPECT_EQ(take(), (std::vector{WireEvent{.type = "BlockRemoved", .keys = {key(3), key(2)}, .medium = "GPU"},
                                 WireEvent{.type = "BlockRemoved", .keys = {key(2)}, .medium = "STORAGE"}}));
}

TEST_F(Published, branches_adapters_and_groups_are_events_of_their_own) {
  describe(1, 2);
  describe(3, 1, 1);  // another block after the first
  describe(4, 1, 3, {}, "poems");
  describe(1, 1, {}, GroupId{7});
  apply({stored(1, Source::device), stored(2, Source::device), stored(3, Source::device), stored(4, Source::device),
         stored(1, Source::device, GroupId{7})});
  WireEvent adapted = stored_event(4, 1, "GPU", 3);
  adapted.adapter = "poems";
  WireEvent grouped = stored_event(1, 1, "GPU");
  grouped.group = 7;
  EXPECT_EQ(take(), (std::vector{stored_event(1, 2, "GPU"), stored_event(3, 1, "GPU", 1), adapted, grouped}));
  apply({removed(1, Source::device, GroupId{7}), removed(1, Source::device)});
  EXPECT_EQ(take(), (std::vector{WireEvent{.type = "BlockRemoved", .keys = {key(1)}, .medium = "GPU", .group = 7},
                                 WireEvent{.type = "BlockRemoved", .keys = {key(1)}, .medium = "GPU"}}));
}

TEST_F(Published, nothing_is_said_of_a_block_whose_tokens_are_not_known_until_they_are) {
  apply({stored(1, Source::host), stored(2, Source::host), stored(3, Source::host), stored(1, Source::storage)});
  apply({removed(3, Source::host)});
  EXPECT_EQ(take(), std::vector<WireEvent>{});
  EXPECT_EQ(stream.stats().without_tokens, 4U);
  describe(1, 3);  // the third is not there any more
  EXPECT_EQ(take(), (std::vector{stored_event(1, 1, "CPU"), stored_event(1, 1, "STORAGE"), stored_event(2, 1, "CPU", 1)}));
  describe(1, 3);
  EXPECT_EQ(take(), std::vector<WireEvent>{});
}

TEST_F(Published, a_copy_that_is_known_is_told_once) {
  describe(1, 1);
  apply({stored(1, Source::storage), stored(1, Source::storage), stored(2, Source::storage), stored(2, Source::storage)});
  EXPECT_EQ(take(), (std::vector{stored_event(1, 1, "STORAGE")}));
  EXPECT_EQ(stream.stats().without_tokens, 1U);
}

TEST_F(Published, copies_in_a_shared_store_and_unknown_copies_are_not_named) {
  describe(1, 1);
  apply({stored(1, Source::shared), removed(1, Source::host), removed(9, Source::device)});
  EXPECT_EQ(take(), std::vector<WireEvent>{});
}

TEST_F(Published, a_clear_is_told_and_what_was_described_stays_known) {
  describe(1, 2);
  apply({stored(1, Source::device),
         stored(2, Source::device),
         {.kind = KvEvent::Kind::cleared},
         removed(1, Source::device),
         stored(1, Source::host)});
  EXPECT_EQ(take(), (std::vector{stored_event(1, 2, "GPU"), WireEvent{.type = "AllBlocksCleared"}, stored_event(1, 1, "CPU")}));
}

TEST_F(Published, lost_changes_are_told_as_a_clear) {
  describe(1, 1);
  apply({stored(1, Source::device)});
  stream.lose_all(1, out);
  EXPECT_EQ(take().back(), WireEvent{.type = "AllBlocksCleared"});
  EXPECT_EQ(stream.stats().published_blocks, 0U);
  EXPECT_EQ(stream.stats().queue_overflows, 1U);
}

TEST_F(Published, a_batch_has_its_time_and_rank_and_numbers_count_up) {
  stream.beat(17.5, out);
  stream.beat(18.5, out);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].sequence, 0U);
  EXPECT_EQ(out[1].sequence, 1U);
  EXPECT_EQ(decode_batch(*out[1].payload).time, 18.5);
  EXPECT_EQ(decode_batch(*out[1].payload).rank, 3U);
}

TEST_F(Published, large_numbers_and_names_are_kept) {
  const std::string adapter(300, 'a');
  const std::vector<TokenId> large{127, 128, 255, 256, 65535, 65536, 0xFFFF'FFFF, 0};
  const auto names = keys(1, 1);
  stream.describe({.keys = names, .tokens = large, .block_tokens = 8, .group = GroupId{300}, .adapter = adapter}, 1, out);
  apply({stored(1, Source::device, GroupId{300})});
  const auto events = take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tokens, large);
  EXPECT_EQ(events[0].adapter, adapter);
  EXPECT_EQ(events[0].group, 300U);
}

struct FewBlocks : Published {
  FewBlocks() : Published{{.max_blocks = 3}} {}
};

TEST_F(FewBlocks, a_block_that_is_not_published_makes_room) {
  describe(1, 2);                      // spare: 1, 2
  apply({stored(1, Source::device)});  // spare: 2
  apply({stored(5, Source::host)});    // spare: 2, 5
  describe(6, 1);                      // forgets 2
  apply({stored(2, Source::host)});    // forgets 5
  EXPECT_EQ(take(), (std::vector{stored_event(1, 1, "GPU")}));
  apply({stored(6, Source::host)});
  describe(2, 1);  // it was remembered as being there
  EXPECT_EQ(take(), (std::vector{stored_event(6, 1, "CPU"), stored_event(2, 1, "CPU")}));
}

TEST_F(FewBlocks, published_blocks_stay_and_new_ones_are_left_out) {
  describe(1, 3);
  apply({stored(1, Source::device), stored(2, Source::device), stored(3, Source::device)});
  (void)take();
  describe(4, 2, 3);
  apply({stored(4, Source::device)});
  EXPECT_EQ(take(), std::vector<WireEvent>{});
  EXPECT_EQ(stream.stats().not_remembered, 3U);
  apply({removed(3, Source::device)});
  describe(4, 1, 3);
  apply({stored(4, Source::device)});
  EXPECT_EQ(take(),
            (std::vector{WireEvent{.type = "BlockRemoved", .keys = {key(3)}, .medium = "GPU"}, stored_event(4, 1, "GPU", 3)}));
}

// ---- replay

/// Sends the answer to a subscriber that lacks batches. Returns false if it ends with numbers missing.
bool replay_to(EventStream& stream, Subscriber& subscriber) {
  Replay replay = stream.replay(subscriber.next());
  while (const auto batch = stream.next(replay, 2)) {
    if (!subscriber.take(batch->sequence, *batch->payload)) return false;
  }
  return !replay.was_cut;
}

struct FewBatches : Published {
  FewBatches() : Published{{.buffer_steps = 2}} {}
};

TEST_F(FewBatches, a_subscriber_gets_the_batches_that_it_missed) {
  describe(1, 3);
  Subscriber subscriber;
  for (const std::uint32_t block : {1, 2, 3}) {
    apply({stored(block, Source::host)});
    stream.flush(1, out);
    if (block == 1) {
      EXPECT_TRUE(subscriber.take(out[0].sequence, *out[0].payload));
    }
  }
  EXPECT_FALSE(subscriber.take(out[2].sequence, *out[2].payload));
  EXPECT_TRUE(replay_to(stream, subscriber));
  EXPECT_EQ(subscriber.next(), 3U);
  EXPECT_EQ(subscriber.copies().size(), 3U);
  EXPECT_EQ(stream.stats().replayed_batches, 2U);
  EXPECT_EQ(stream.stats().snapshots, 0U);
}

TEST_F(FewBatches, a_subscriber_that_comes_after_the_buffer_gets_the_present_state) {
  describe(1, 3);
  for (int round = 0; round < 5; ++round) {
    apply({stored(1, Source::host), stored(2, Source::host), stored(2, Source::storage), stored(3, Source::host)});
    stream.flush(1, out);
    apply({removed(3, Source::host)});
    stream.flush(1, out);
  }
  Subscriber late;
  EXPECT_TRUE(replay_to(stream, late));
  EXPECT_EQ(late.next(), 10U);
  EXPECT_EQ(late.ignored(), 0U);
  std::vector<Subscriber::Place> places;
  for (const auto& [place, content] : late.copies()) places.push_back(place);
  EXPECT_EQ(places, (std::vector<Subscriber::Place>{{0, key(1), "CPU"}, {0, key(2), "CPU"}, {0, key(2), "STORAGE"}}));
  EXPECT_EQ(stream.stats().snapshots, 1U);
}

TEST_F(FewBatches, a_state_of_many_blocks_comes_in_several_batches_with_parents_first) {
  constexpr std::uint32_t blocks = 5000;
  describe(0, blocks);
  std::vector<KvEvent> events;
  for (std::uint32_t block = 0; block < blocks; ++block) events.push_back(stored(block, Source::storage));
  apply(events);
  stream.flush(1, out);
  ASSERT_GE(out.size(), blocks / 256);
  for (const Batch& batch : out) EXPECT_LE(decode_batch(*batch.payload).events.size(), 4096U);
  Subscriber late;
  EXPECT_TRUE(replay_to(stream, late));
  EXPECT_EQ(late.next(), out.size());
  EXPECT_EQ(late.copies().size(), blocks);
  EXPECT_EQ(late.ignored(), 0U);
}

TEST(EventStreamState, begins_with_the_buffer_if_there_are_too_few_numbers_for_it) {
  constexpr std::uint32_t blocks = 5000;  // 5 batches of the state
  EventStream stream{{.buffer_steps = 20}};
  std::vector<Batch> out;
  stream.describe({.keys = keys(0, blocks), .tokens = tokens(0, blocks), .block_tokens = block_tokens}, 1, out);
  std::vector<KvEvent> events;
  for (std::uint32_t block = 0; block < blocks; ++block) events.push_back(stored(block, Source::host));
  stream.apply(events, 1, out);
  stream.flush(1, out);
  ASSERT_EQ(out.size(), 20U);
  for (std::uint64_t lost = 1; lost <= 5; ++lost) {
    stream.beat(1, out);
    Replay replay = stream.replay(0);
    const auto first = stream.next(replay, 1);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->sequence, lost < 5 ? lost : 0);
    EXPECT_EQ(stream.stats().snapshots, lost < 5 ? 0U : 1U);
  }
}

TEST_F(FewBatches, a_number_in_the_future_is_answered_with_nothing) {
  stream.beat(1, out);
  Replay replay = stream.replay(7);
  EXPECT_FALSE(stream.next(replay, 1));
  replay = stream.replay(~std::uint64_t{0});
  EXPECT_FALSE(stream.next(replay, 1));
}

TEST_F(FewBatches, an_answer_that_is_too_slow_is_cut) {
  for (int i = 0; i < 3; ++i) stream.beat(1, out);
  Replay replay = stream.replay(1);
  EXPECT_TRUE(stream.next(replay, 1));
  for (int i = 0; i < 3; ++i) stream.beat(1, out);
  EXPECT_FALSE(stream.next(replay, 1));
  EXPECT_TRUE(replay.was_cut);
  EXPECT_EQ(stream.stats().replays_cut, 1U);
}

TEST(EventStreamMemory, the_buffer_is_bounded_by_bytes) {
  EventStream stream{{.buffer_bytes = Bytes{100}}};
  std::vector<Batch> out;
  for (int i = 0; i < 100; ++i) stream.beat(1, out);
  EXPECT_LE(stream.stats().buffered_batches * out[1].payload->size(), 100U);
  EXPECT_GE(stream.stats().buffered_batches, 2U);
}

// ---- against a model

/// A forest of blocks. As in a cache in prefix order, a block has a copy only while its parent has one.
struct World {
  static constexpr std::uint32_t blocks = 40;

  explicit World(std::uint64_t seed) : random{seed}, stream{{.buffer_steps = 6}} {
    for (std::uint32_t i = 0; i < blocks; ++i) {
      parents[i] = i == 0 || random.chance(0.1) ? blocks : static_cast<std::uint32_t>(random.below(i));
    }
  }

  [[nodiscard]] bool has_children(std::uint32_t block) const {
    for (std::uint32_t i = 0; i < blocks; ++i) {
      if (parents[i] == block && tiers[i] != 0) return true;
    }
    return false;
  }
  /// Describes the blocks from the root to this one.
  void describe(std::uint32_t block) {
    std::vector<BlockKey> names;
    std::vector<TokenId> content;
    for (std::uint32_t at = block; at != blocks; at = parents[at]) {
      names.insert(names.begin(), key(at));
      const auto own = tokens(at, 1);
      content.insert(content.begin(), own.begin(), own.end());
      described[at] = true;
    }
    stream.describe({names, content, block_tokens, std::nullopt, {}, {}}, 1, out);
  }
  void step() {
    const auto block = static_cast<std::uint32_t>(random.below(blocks));
    const auto tier = random.below(3);
    const Source source = all_sources[tier];
    const std::uint32_t bit = 1U << tier;
    const std::uint64_t what = random.below(100);
    if (what < 50) {
      if (parents[block] != blocks && tiers[parents[block]] == 0) return;
      tiers[block] |= bit;
      stream.apply(std::array{stored(block, source)}, 1, out);
    } else if (what < 80) {
      if ((tiers[block] & bit) == 0 || (tiers[block] == bit && has_children(block))) return;
      tiers[block] &= ~bit;
      stream.apply(std::array{removed(block, source)}, 1, out);
    } else if (what < 98) {
      describe(block);
    } else {
      tiers.fill(0);
      if (what == 98) stream.apply(std::array{KvEvent{.kind = KvEvent::Kind::cleared}}, 1, out);
      else stream.lose_all(1, out);
    }
    stream.check_invariants();
  }
  /// The state that a subscriber has to know.
  [[nodiscard]] std::map<Subscriber::Place, std::vector<TokenId>> expected() const {
    constexpr std::array media{"GPU", "CPU", "STORAGE"};
    std::map<Subscriber::Place, std::vector<TokenId>> copies;
    for (std::uint32_t block = 0; block < blocks; ++block) {
      for (std::uint32_t tier = 0; tier < 3; ++tier) {
        if (described[block] && (tiers[block] >> tier & 1U) != 0) copies[{0, key(block), media[tier]}] = tokens(block, 1);
      }
    }
    return copies;
  }
  /// Publishes. The subscriber gets most batches.
  void flush(Subscriber& subscriber) {
    stream.flush(1, out);
    for (const Batch& batch : out) {
      if (random.chance(0.8)) (void)subscriber.take(batch.sequence, *batch.payload);
    }
    out.clear();
  }
  /// Replays until the subscriber has everything, while the cache goes on.
  void catch_up(Subscriber& subscriber, Subscriber& live) {
    for (bool goes_on = true; subscriber.next() < stream.stats().batches; goes_on = false) {
      Replay replay = stream.replay(subscriber.next());
      while (const auto batch = stream.next(replay, 1)) {
        ASSERT_TRUE(subscriber.take(batch->sequence, *batch->payload));
        if (goes_on && random.chance(0.3)) {
          step();
          flush(live);
        }
      }
    }
  }

  Random random;
  EventStream stream;
  std::array<std::uint32_t, blocks> parents{};
  std::array<std::uint32_t, blocks> tiers{};
  std::array<bool, blocks> described{};
  std::vector<Batch> out;
};

TEST(EventStreamModel, subscribers_that_lose_batches_or_come_late_know_what_is_cached) {
  const std::uint64_t first = test::seed_from_env_or(1);
  for (std::uint64_t seed = first; seed < first + test::seeds_from_env_or(40, 2000); ++seed) {
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    World world{seed};
    Subscriber live;
    for (int round = 0; round < 60; ++round) {
      for (std::uint64_t steps = world.random.below(8); steps > 0; --steps) world.step();
      world.flush(live);
      Subscriber late;
      world.catch_up(late, live);
      world.catch_up(live, live);
      if (live.next() == late.next()) {
        ASSERT_EQ(late.copies(), world.expected());
      }
      ASSERT_EQ(live.copies(), world.expected());
    }
  }
}

}  // namespace
}  // namespace terrace::events
