// Requests by layer: what is reported to them, when, and what happens if a load fails after that.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "tests/runtime/fixture.hpp"

#include <cstddef>

namespace terrace::test {
namespace {

/// Blocks of four layers. A piece of a load is one layer of four blocks, and one piece is under way at a time.
class Layers : public CacheFixture {
 protected:
  Layers() {
    layers = 4;
    scheduler_config.pieces.bytes = Bytes{block_bytes};
    scheduler_config.pieces.in_flight = 1;
  }

  [[nodiscard]] static std::byte mark(const BlockKey& key, std::size_t at) {
    return key.bytes[at % key.bytes.size()] ^ static_cast<std::byte>(at);
  }
  /// Acquires, writes the content that belongs to the keys, commits and releases.
  void compute(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    ASSERT_TRUE(ready_when_settled(id));
    const Fence written = device->launch([keys, slots = table(id)](BlockAccess& access) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto block = access.write_target(slots[i], {});
        for (std::size_t at = 0; at < block.size(); ++at) block[at] = mark(keys[i], at);
      }
    });
    ASSERT_TRUE(cache->commit(leases.at(id), keys, written).has_value());
    release(id);
    settle();
  }
  /// Eight blocks on the device. The copies of `down` are only in the host.
  void make_with_below(const std::vector<BlockKey>& down, std::uint32_t host_blocks = 16) {
    make(sizes(8, host_blocks));
    compute(101, down);
    compute(102, keys_of({91, 92, 93, 94, 95, 96, 97, 98}));
    ASSERT_EQ(cache->match(down).found[Source::host], down.size());
  }
  void acquire_by_layer(std::uint64_t id, const std::vector<BlockKey>& keys, std::uint32_t extra = 0,
                        TimePoint deadline = never) {
    AcquireRequest wanted = request(id, keys, extra);
    wanted.by_layer = true;
    wanted.deadline = deadline;
    leases[id] = cache->acquire(wanted).value();
  }
  /// How many leading layers of all blocks are on the device now.
  [[nodiscard]] std::uint32_t arrived(std::uint64_t id, const std::vector<BlockKey>& keys) const {
    const auto slots = table(id);
    for (std::uint32_t at = 0; at < block_bytes; ++at) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (device->peek({}, slots[i])[at] != mark(keys[i], at)) return at / (static_cast<std::uint32_t>(block_bytes) / layers);
      }
    }
    return layers;
  }
  /// Does one step on the device and polls. Calls `look` for each event.
  template <class Look>
  void step(Look look) {
    const auto options = device->step_options();
    if (!options.empty()) device->step(options.front());
    const std::size_t before = events.size();
    poll();
    for (std::size_t i = before; i < events.size(); ++i) look(events[i]);
  }
  void step() {
    step([](const RequestEvent&) {});
  }
  /// Steps until the request is ready.
  template <class Look>
  void await_ready(std::uint64_t id, Look look) {
    for (int i = 0; i < 1000 && !ready(id); ++i) step(look);
    ASSERT_TRUE(ready(id));
  }
  /// Steps until this many layers were reported to the request.
  void await_layers(std::uint64_t id, std::uint32_t count) {
    bool enough = false;
    for (int i = 0; i < 1000 && !enough; ++i) {
      step([&](const RequestEvent& event) { enough |= event.id == RequestId{id} && event.layers >= count; });
    }
    ASSERT_TRUE(enough);
  }
  [[nodiscard]] std::vector<std::uint32_t> told(std::uint64_t id) const {
    std::vector<std::uint32_t> all;
    for (const RequestEvent& event : events) {
      if (event.id == RequestId{id}) all.push_back(event.layers);
    }
    return all;
  }
  [[nodiscard]] ErrorCode last_error(std::uint64_t id) const {
    ErrorCode error;
    for (const RequestEvent& event : events) {
      if (event.id == RequestId{id}) error = event.error;
    }
    return error;
  }
  [[nodiscard]] Fence fence(SlotId slot) const { return cache->manager().residency().slots_of(Tier::device).fence(slot); }
  [[nodiscard]] std::uint64_t held() const { return cache->manager().device_ledger().held; }
};

const std::vector<BlockKey> prompt = keys_of({1, 2, 3, 4});

/// Lets the device move after each poll, so that a call that waits comes to its end.
class MovesDevice final : public CacheWatch {
 public:
  explicit MovesDevice(const std::unique_ptr<SimulatedDevice>& device) : device_{device} {}
  void on_polled(TimePoint) override { device_->run(); }
  void on_flushed(ErrorCode, PoolId) override {}

 private:
  const std::unique_ptr<SimulatedDevice>& device_;
};

/// Two prompts are in the host, and two requests load them by layer, one after the other.
class LayersOfTwo : public Layers {
 protected:
  void load_both(TimePoint deadline_of_second = never) {
    make(sizes(8, 16));
    compute(101, prompt);
    compute(102, other);
    compute(103, keys_of({91, 92, 93, 94, 95, 96, 97, 98}));
    ASSERT_EQ(cache->match(prompt).found[Source::host], prompt.size());
    ASSERT_EQ(cache->match(other).found[Source::host], other.size());
    acquire_by_layer(1, prompt);
    acquire_by_layer(2, other, 0, deadline_of_second);
  }

  const std::vector<BlockKey> other = keys_of({5, 6, 7, 8});
  MovesDevice moves{device};
};

TEST_F(LayersOfTwo, arrive_while_the_other_is_waited_for_and_are_reported_by_the_next_poll) {
  load_both(clock.now() + std::chrono::seconds{1});
  await_layers(1, 1);
  device->run();  // the second layer has arrived
  clock.advance(std::chrono::seconds{1});
  EXPECT_EQ(cache->wait(leases.at(2)).error(), Errc::deadline_exceeded);
  EXPECT_EQ(told(1), std::vector{1U});
  poll();
  EXPECT_EQ(told(1), (std::vector{1U, 2U}));
  settle();
  EXPECT_EQ(told(1), (std::vector{1U, 2U, 3U, 0U}));
}

TEST_F(LayersOfTwo, are_no_news_once_their_request_is_ready) {
  watch = &moves;
  load_both();
  ASSERT_TRUE(cache->wait(leases.at(2)).has_value());
  EXPECT_TRUE(ready(1));
  poll();
  EXPECT_EQ(told(1), std::vector{0U});
  EXPECT_TRUE(told(2).empty());
}

TEST_F(Layers, are_told_of_as_they_arrive_and_not_before) {
  make_with_below(prompt);
  acquire_by_layer(1, prompt, 1);
  EXPECT_FALSE(ready(1));
  EXPECT_EQ(cache->block_table(leases.at(1)).error(), Errc::not_ready);
  std::vector<SlotId> first_table;
  await_ready(1, [&](const RequestEvent& event) {
    if (event.ends_wait()) return;
    EXPECT_FALSE(ready(1));
    EXPECT_EQ(arrived(1, prompt), event.layers) << "all of these, and no more: what follows has not begun";
    if (first_table.empty()) first_table = table(1);
    EXPECT_EQ(cache->hit_sources(leases.at(1))->size(), 4U);
    EXPECT_EQ(cache->extend(leases.at(1), 1).error(), Errc::not_ready);
    EXPECT_EQ(commit(1, prompt).error(), Errc::not_ready);
    EXPECT_EQ(cache->advance(leases.at(1), 1, {}).error(), Errc::not_ready);
  });
  EXPECT_EQ(told(1), (std::vector<std::uint32_t>{1, 2, 3, 0}));
  EXPECT_FALSE(last_error(1));
  EXPECT_EQ(table(1), first_table);
  EXPECT_EQ(first_table.size(), 5U);
  EXPECT_EQ(arrived(1, prompt), 4U);
  EXPECT_TRUE(commit(1, prompt).has_value());
}

TEST_F(Layers, are_told_of_only_where_asked_for) {
  make_with_below(prompt);
  ASSERT_TRUE(acquire(1, prompt).has_value());
  settle();
  EXPECT_EQ(told(1), std::vector{0U});
  EXPECT_TRUE(ready(1));
}

TEST_F(Layers, need_no_event_where_nothing_is_loaded) {
  make_with_below(prompt);
  acquire_by_layer(1, keys_of({91}));
  EXPECT_TRUE(ready(1));
  settle();
  EXPECT_TRUE(told(1).empty());
}

TEST_F(Layers, of_a_pool_that_has_one_arrive_with_the_load) {
  layers = 1;
  make_with_below(prompt);
  acquire_by_layer(1, prompt);
  settle();
  EXPECT_EQ(told(1), std::vector{0U});
  EXPECT_EQ(arrived(1, prompt), 1U);
}

TEST_F(Layers, that_did_not_arrive_fail_the_request_that_was_told_of_others) {
  make_with_below(prompt);
  acquire_by_layer(1, prompt, 2);
  await_layers(1, 2);
  const std::vector<SlotId> slots = table(1);
  const std::uint64_t held_before = held();
  EXPECT_EQ(held_before, 2U);
  device->fail_next(Direction::swap_in);
  settle();
  EXPECT_EQ(told(1), (std::vector<std::uint32_t>{1, 2, 0}));
  EXPECT_EQ(last_error(1), Errc::load_failed);
  EXPECT_FALSE(ready(1));
  EXPECT_EQ(cache->block_table(leases.at(1)).error(), Errc::not_ready);
  EXPECT_EQ(commit(1, prompt).error(), Errc::not_ready);
  EXPECT_EQ(stats(1).miss, 4U);

  // Launched compute may still write the new blocks: nobody else gets them before that has ended.
  EXPECT_EQ(held(), held_before);
  const Fence last_use = device->launch([](BlockAccess&) {});
  cache->release(std::move(leases.at(1)), last_use);
  leases.erase(1);
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(fence(slots[4]), last_use);
  EXPECT_EQ(fence(slots[5]), last_use);

  // The host copies are still valid.
  acquire_by_layer(2, prompt);
  ASSERT_TRUE(ready_when_settled(2));
  EXPECT_EQ(stats(2).found[Source::host], 4U);
  EXPECT_EQ(arrived(2, prompt), 4U);
}

TEST_F(Layers, of_which_the_first_did_not_arrive_leave_the_request_to_be_planned_again) {
  make_with_below(prompt);
  acquire_by_layer(1, prompt);
  while (device->commands(Direction::swap_in) == 0) step();
  device->fail_next(Direction::swap_in);
  EXPECT_TRUE(ready_when_settled(1));
  EXPECT_FALSE(last_error(1));
  EXPECT_EQ(cache->manager().stats().replans, 1U);
  EXPECT_EQ(told(1), (std::vector<std::uint32_t>{1, 2, 3, 0})) << "of the second load";
  EXPECT_EQ(arrived(1, prompt), 4U);
}

TEST_F(Layers, of_a_request_past_its_deadline_were_told_of_in_vain) {
  make_with_below(prompt);
  acquire_by_layer(1, prompt, 1, clock.now() + std::chrono::seconds{1});
  await_layers(1, 1);
  clock.advance(std::chrono::seconds{1});
  settle();
  EXPECT_EQ(last_error(1), Errc::deadline_exceeded);
  EXPECT_EQ(held(), 1U) << "until it is released";
  release(1);
  EXPECT_EQ(held(), 0U);
}

TEST_F(Layers, of_a_cleared_cache_were_told_of_in_vain) {
  make_with_below(prompt);
  acquire_by_layer(1, prompt, 1);
  await_layers(1, 1);
  cache->clear({});
  settle();
  EXPECT_EQ(last_error(1), Errc::cleared);
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(cache->match(prompt).total(), 0U);
  release(1);
  EXPECT_EQ(held(), 0U);
}

TEST_F(Layers, of_a_request_released_early_keep_transfers_off_what_compute_may_touch) {
  make_with_below(prompt);
  acquire_by_layer(1, prompt, 1);
  await_layers(1, 2);
  const std::vector<SlotId> slots = table(1);
  const Fence last_use = device->launch([](BlockAccess&) {});
  cache->release(std::move(leases.at(1)), last_use);
  leases.erase(1);
  for (const SlotId slot : slots) EXPECT_EQ(fence(slot), last_use);
  settle();
  EXPECT_EQ(told(1), (std::vector<std::uint32_t>{1, 2})) << "it interests nobody any more";
}

TEST_F(Layers, are_told_of_to_those_who_join_too) {
  make_with_below(prompt);
  acquire_by_layer(1, prompt);
  await_layers(1, 2);
  acquire_by_layer(2, prompt);
  ASSERT_TRUE(acquire(3, prompt).has_value());
  settle();
  EXPECT_EQ(told(1), (std::vector<std::uint32_t>{1, 2, 3, 0}));
  EXPECT_EQ(told(2), (std::vector<std::uint32_t>{2, 3, 0})) << "at once what the load has";
  EXPECT_EQ(told(3), std::vector{0U}) << "nobody asked";
  EXPECT_TRUE(ready(1) && ready(2) && ready(3));
}

TEST_F(Layers, of_a_load_that_is_under_way_and_not_by_layer_are_there_all_at_once) {
  make_with_below(prompt);
  ASSERT_TRUE(acquire(1, prompt).has_value());
  while (device->commands(Direction::swap_in) == 0) step();
  acquire_by_layer(2, prompt);
  settle();
  EXPECT_EQ(told(2), std::vector{0U});
  EXPECT_TRUE(ready(2));
}

TEST_F(Layers, are_those_of_all_loads_that_the_request_waits_for) {
  const auto longer = keys_of({1, 2, 3, 4, 5, 6});
  make_with_below(longer);
  acquire_by_layer(1, prompt);
  await_layers(1, 2);
  acquire_by_layer(2, longer);  // joins the load of the first four blocks, and loads two
  EXPECT_EQ(stats(2).joined, 4U);
  await_ready(2, [&](const RequestEvent& event) {
    if (event.id != RequestId{2} || event.ends_wait()) return;
    EXPECT_GE(arrived(2, longer), event.layers);
  });
  // A piece is two layers of two blocks. Only the first half of its own load is reported.
  EXPECT_EQ(told(2), (std::vector<std::uint32_t>{2, 0}));
}

TEST_F(Layers, wait_for_what_storage_has_still_to_read) {
  make(with_storage(sizes(8), WritePolicy::write_through));  // without a host tier
  compute(101, prompt);
  compute(102, keys_of({91, 92, 93, 94, 95, 96, 97, 98}));
  ASSERT_EQ(cache->match(prompt).found[Source::storage], 4U);
  acquire_by_layer(1, prompt);
  await_ready(1, [&](const RequestEvent& event) {
    if (event.ends_wait()) return;
    EXPECT_GE(arrived(1, prompt), event.layers);
  });
  EXPECT_GT(told(1).size(), 1U);
  EXPECT_EQ(arrived(1, prompt), 4U);
}

TEST_F(Layers, of_several_groups_are_told_of_together) {
  ManagerConfig config = sizes(8, 16);
  GroupConfig attention;
  GroupConfig window;
  window.kind = GroupKind::sliding_window;
  window.span_tokens = 3;
  window.pool = PoolId{1};
  config.groups = {attention, window};
  PoolSizes pool;
  pool.null_block = true;
  pool.device_blocks = 9;
  pool.host_blocks = 16;
  config.pools.push_back(pool);
  make(config);
  run(101, prompt);
  run(102, keys_of({91, 92, 93, 94, 95, 96, 97, 98}));
  ASSERT_EQ(cache->match(prompt).found[Source::host], 4U);
  acquire_by_layer(1, prompt);
  await_ready(1, [](const RequestEvent&) {});
  const auto all = told(1);
  ASSERT_GT(all.size(), 1U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end() - 1));
  EXPECT_EQ(cache->block_table(leases.at(1), GroupId{1})->size(), 4U);
}

}  // namespace
}  // namespace terrace::test
