// Faults of docs/reliability.md: a lower tier has no slot for an evicted block, or a tier is smaller than one prompt.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/content_fixture.hpp"

#include <algorithm>

namespace terrace::test {
namespace {

class NoRoomBelow : public ContentFixture {
 protected:
  const std::vector<BlockKey> pinned = keys_of({91, 92});

  /// A host tier of two blocks, which are both pinned: no other block can have a slot there.
  void make_with_full_host(ManagerConfig config) {
    config.pinned_blocks_max = 2;
    make(config);
    serve(1, pinned);
    std::vector<std::uint32_t> others;
    for (std::uint32_t n = 0; n < config.pools[0].device_blocks; ++n) others.push_back(70 + n);
    serve(2, keys_of(others));
    ASSERT_EQ(cache->match(pinned).found[Source::host], 2U);
    ASSERT_TRUE(cache->pin(pinned).has_value());
  }
};

// ---- F09: the host has no slot for a block that is evicted from the device

TEST_F(NoRoomBelow, loses_what_leaves_the_device_and_every_later_look_up_says_so) {
  make_with_full_host(sizes(4, 2));
  cache->record_events();
  const auto lost = keys_of({5, 6});
  serve(3, lost);
  const std::uint64_t before = cache->manager().stats().dropped_lost;
  std::vector<KvEvent> told;
  cache->take_events(told);
  serve(4, keys_of({11, 12, 13, 14}));
  EXPECT_EQ(cache->manager().stats().dropped_lost, before + 4) << "the two, and the last two of before";
  EXPECT_EQ(cache->match(lost).total(), 0U);
  cache->take_events(told);
  for (const BlockKey& key : lost) {
    EXPECT_TRUE(std::ranges::any_of(told, [&](const KvEvent& event) {
      return event.kind == KvEvent::Kind::removed && event.source == Source::device && event.key == key;
    }));
  }
  EXPECT_EQ(cache->moved().swap_out.blocks, 2U) << "the pinned ones alone ever left for the host";
  // The next request for it is a miss and computes it. The pinned blocks have not changed.
  ASSERT_TRUE(acquire(5, lost).has_value());
  settle();
  ASSERT_TRUE(ready(5));
  EXPECT_EQ(stats(5).miss, 2U);
  use(5, lost);
  settle();
  expect_hit(6, lost);
  expect_hit(7, pinned);
  EXPECT_EQ(compared, 4U);
}

TEST_F(NoRoomBelow, is_found_out_while_a_block_waits_for_it) {
  // The host's slot is being loaded from, so the eviction waits for it. Then it is pinned.
  make(sizes(4, 1, InclusionPolicy::non_inclusive));
  serve(1, keys_of({1}));
  serve(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(cache->match(keys_of({1})).found[Source::host], 1U);
  device->stuck(Direction::swap_in, true);
  ASSERT_TRUE(acquire(3, keys_of({1})).has_value());
  ASSERT_TRUE(acquire(4, keys_of({11, 12})).has_value());
  for (int i = 0; i < 10; ++i) {
    device->run();
    poll();
  }
  ASSERT_TRUE(cache->pin(keys_of({1})).has_value());
  device->stuck(Direction::swap_in, false);
  settle();
  ASSERT_TRUE(ready(3));
  ASSERT_TRUE(ready(4));
  use(3, keys_of({1}));
  use(4, keys_of({11, 12}));
  settle();
  EXPECT_FALSE(cache->has_pending_work());
  EXPECT_EQ(cache->match(keys_of({5, 6, 7, 8})).total(), 1U) << "the others were lost, from the end";
  serve(5, keys_of({5, 6, 7}));
}

// ---- F47: the host tier is full while requests are preempted

TEST_F(NoRoomBelow, ends_every_request_that_is_preempted_meanwhile) {
  make_with_full_host(sizes(6, 2));
  struct Client {
    std::uint64_t id = 0;
    std::vector<BlockKey> keys;  ///< the keys that it will have in the end
    std::size_t computed = 0;
    enum class State { waiting, pending, running, done } state = State::waiting;
  };
  std::vector<Client> clients;
  std::uint64_t next_id = 10;
  for (std::uint32_t n = 0; n < 4; ++n) {
    clients.push_back({0, keys_of({10 * n, 10 * n + 1, 10 * n + 2, 10 * n + 3, 10 * n + 4}), 2, Client::State::waiting});
  }
  std::uint64_t preempted = 0;
  const auto head = [](const Client& client) {
    return std::vector<BlockKey>{client.keys.begin(), client.keys.begin() + static_cast<std::ptrdiff_t>(client.computed)};
  };
  const auto preempt = [&](Client& client) {
    use(client.id, head(client));  // commits its present blocks
    client.state = Client::State::waiting;
    ++preempted;
  };
  // The oldest client goes first. A client that finds no slots preempts the youngest running one.
  for (int step = 0; step < 200; ++step) {
    device->run();
    poll();
    for (Client& client : clients) {
      if (client.state == Client::State::waiting) {
        client.id = next_id++;
        if (acquire(client.id, head(client)).has_value()) client.state = Client::State::pending;
      }
      if (client.state == Client::State::pending && ready(client.id)) {
        (void)compare(client.id, client.keys, hits(client.id));
        (void)compute(client.id, head(client), hits(client.id));
        client.state = Client::State::running;
      } else if (client.state == Client::State::running) {
        if (client.computed == client.keys.size()) {
          use(client.id, client.keys);
          client.state = Client::State::done;
          continue;
        }
        while (!cache->extend(leases.at(client.id), 1).has_value()) {
          const auto youngest = std::find_if(clients.rbegin(), clients.rend(),
                                             [](const Client& other) { return other.state == Client::State::running; });
          ASSERT_NE(youngest, clients.rend());
          preempt(*youngest);
          if (&*youngest == &client) break;
        }
        if (client.state != Client::State::running) continue;
        ++client.computed;
        (void)compute(client.id, head(client), client.computed - 1);
      }
    }
  }
  for (const Client& client : clients) EXPECT_EQ(client.state, Client::State::done);
  EXPECT_GT(preempted, 3U);
  EXPECT_GT(cache->manager().stats().dropped_lost, 4U) << "what a preempted request had computed found no room below";
  EXPECT_EQ(cache->moved().swap_out.blocks, 2U);
  settle();
  EXPECT_FALSE(cache->has_pending_work());
  expect_hit(next_id, pinned);
}

// ---- F46: one prompt is larger than a tier

TEST_F(NoRoomBelow, for_a_whole_prompt_costs_its_end_and_nothing_else) {
  // A prompt larger than the device is refused at once, and nothing is moved for it. One larger than host and storage is served.
  make(with_storage(sizes(6, 2), WritePolicy::write_through), 3);
  std::uint64_t id = 1;
  EXPECT_EQ(acquire(id, keys_of({1, 2, 3, 4, 5, 6, 7})).error(), Errc::never_fits);
  EXPECT_EQ(cache->transfers_in_flight(), 0U);
  const auto one = keys_of({1, 2, 3, 4, 5, 6});
  const auto other = keys_of({11, 12, 13, 14, 15, 16});
  for (int round = 0; round < 3; ++round) {
    for (const auto& prompt : {one, other}) {
      serve(++id, prompt);
      EXPECT_FALSE(cache->has_pending_work());
      EXPECT_LE(store->stat().blocks, 3U);
      EXPECT_EQ(store->stat().orphans, 0U);
      EXPECT_LE(resident(Tier::host), 2U);
      cache->manager().check_invariants();
    }
  }
  EXPECT_GT(compared, 0U) << "a beginning was found again";
  // A job for more blocks than storage has slots ends, and reports which blocks found no slot.
  WriteBackOrder all;
  const WriteBackId job = cache->start_write_back(all).value();
  settle();
  const auto progress = cache->write_back(job);
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->state, WriteBackState::done);
}

}  // namespace
}  // namespace terrace::test
