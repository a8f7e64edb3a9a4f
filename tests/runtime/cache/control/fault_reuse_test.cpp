// Faults of docs/reliability.md: a slot is reused, or its copy is taken, before a transfer of it has ended. The cache runs on a
// device that moves only when the test says so, and every hit is compared with its key.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "tests/runtime/content_fixture.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_port.hpp"

#include <set>

namespace terrace::test {
namespace {

using enum Direction;

/// Forwards transfers, and checks that no two transfers under way use one slot in conflict.
class PlanWatch final : public TransferPort {
 public:
  explicit PlanWatch(TransferPort& port) : port_{port} {}

  void submit(Transfer transfer) override {
    const bool out = transfer.direction == swap_out;
    std::set<std::uint32_t>& written = out ? arena_written_ : device_written_;
    const std::set<std::uint32_t>& written_at_source = out ? device_written_ : arena_written_;
    for (const SlotRun& run : transfer.runs) {
      for (std::uint32_t i = 0; i < run.count; ++i) {
        EXPECT_TRUE(written.insert(run.destination.value() + i).second) << "two sources for one slot";
        EXPECT_FALSE(written_at_source.contains(run.source.value() + i)) << "a source that is still being written";
      }
    }
    blocks_max = std::max(blocks_max, block_count(transfer.runs));
    under_way_.emplace(transfer.id, transfer);
    port_.submit(std::move(transfer));
  }
  void raise(TransferId id, Urgency urgency) override { port_.raise(id, urgency); }
  void postpone(TransferId id, TimePoint deadline) override { port_.postpone(id, deadline); }
  void cancel(TransferId id) override { port_.cancel(id); }
  void limit(Urgency urgency, BytesPerSecond per_second) override { port_.limit(urgency, per_second); }
  std::size_t poll(std::vector<TransferEvent>& out) override {
    const std::size_t before = out.size();
    port_.poll(out);
    for (std::size_t n = before; n < out.size(); ++n) {
      const auto ended = under_way_.find(out[n].id);
      if (ended == under_way_.end() || out[n].kind == TransferEvent::Kind::layers) continue;
      for (const SlotRun& run : ended->second.runs) {
        for (std::uint32_t i = 0; i < run.count; ++i) {
          (ended->second.direction == swap_out ? arena_written_ : device_written_).erase(run.destination.value() + i);
        }
      }
      under_way_.erase(ended);
    }
    return out.size() - before;
  }
  [[nodiscard]] TimePoint next_deadline() const override { return port_.next_deadline(); }
  [[nodiscard]] Fence reached() const override { return port_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return port_.after_all_work(); }

  std::uint32_t blocks_max = 0;  ///< the most blocks of one transfer

 private:
  TransferPort& port_;
  std::map<TransferId, Transfer> under_way_;
  std::set<std::uint32_t> arena_written_;
  std::set<std::uint32_t> device_written_;
};

class SlotReuse : public ContentFixture {
 protected:
  /// Moves one part of a block, and then stops again.
  void move_a_part(Direction direction, SimulatedDevice::Part part) {
    device->stuck(direction, false);
    device->step(part);
    device->stuck(direction, true);
  }
};

// ---- F02: a slot is freed and taken again between the decision to copy it and the copy

TEST_F(SlotReuse, waits_for_a_copy_that_was_decided_before_the_block_was_given_up) {
  make(sizes(4, 8));
  serve(1, keys_of({1, 2}));
  serve(2, keys_of({5, 6}));
  device->stuck(swap_out, true);
  ASSERT_TRUE(acquire(3, keys_of({8, 9, 10})).has_value());  // three blocks must be copied to the host
  poll();
  end(3, {});  // the request that needed them has ended, and the slots can be used again
  EXPECT_EQ(cache->drop(keys_of({1, 2})).value(), 0U) << "its copy has been decided";
  ASSERT_TRUE(acquire(4, keys_of({11, 12, 13, 14})).has_value());
  for (int parts = 0; parts < 3; ++parts) {
    poll();
    ASSERT_FALSE(ready(4)) << "a slot was handed out under the copy";
    EXPECT_EQ(free_on_device(), 0U);
    move_a_part(swap_out, SimulatedDevice::Part::swap_out);
  }
  device->stuck(swap_out, false);
  ASSERT_TRUE(ready_when_settled(4));
  use(4, keys_of({11, 12, 13, 14}));
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  expect_hit(5, keys_of({1, 2}));
  expect_hit(6, keys_of({5, 6}));
  EXPECT_EQ(compared, 4U);
}

TEST_F(SlotReuse, waits_for_a_copy_that_was_decided_before_the_cache_was_cleared) {
  make(sizes(4, 8));
  serve(1, keys_of({1, 2, 3, 4}));
  device->stuck(swap_out, true);
  ASSERT_TRUE(acquire(2, keys_of({8, 9})).has_value());
  poll();
  cache->clear({});
  poll();
  EXPECT_EQ(events.back().error, Errc::cleared);
  end(2, {});
  EXPECT_EQ(free_on_device(), 2U) << "the two that nothing reads";
  ASSERT_TRUE(acquire(3, keys_of({11, 12, 13})).has_value());
  for (int parts = 0; parts < 3; ++parts) {
    poll();
    ASSERT_FALSE(ready(3)) << "a slot was handed out under the copy";
    move_a_part(swap_out, SimulatedDevice::Part::swap_out);
  }
  device->stuck(swap_out, false);
  ASSERT_TRUE(ready_when_settled(3));
  use(3, keys_of({11, 12, 13}));
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4})).total(), 0U);
  expect_hit(4, keys_of({11, 12, 13}));
}

// ---- F03: the blocks of a preempted request are overwritten while they are stored

TEST_F(SlotReuse, of_a_preempted_request_waits_until_its_blocks_are_stored) {
  make(with_storage(sizes(4), WritePolicy::write_through));
  const auto keys = keys_of({1, 2, 3});
  ASSERT_TRUE(acquire(1, keys, 1).has_value());
  ASSERT_TRUE(ready(1));
  const Fence written = compute(1, keys, 0);
  // Preempted: its compute has not run yet, and no copy has begun.
  ASSERT_TRUE(cache->commit(leases.at(1), keys, written).has_value());
  end(1, written);
  device->stuck(swap_out, true);
  ASSERT_TRUE(acquire(2, keys_of({7, 8, 9, 10})).has_value());  // the request for which it was preempted
  for (int i = 0; i < 4; ++i) {
    poll();
    device->run();  // everything except copies to the host
  }
  EXPECT_FALSE(ready(2)) << "three of its slots are still to be read";
  device->stuck(swap_out, false);
  ASSERT_TRUE(ready_when_settled(2));
  use(2, keys_of({7, 8, 9, 10}));
  settle();
  // It comes back: storage has the content that it computed.
  ASSERT_EQ(cache->match(keys).found[Source::storage], 3U);
  expect_hit(3, keys);
  EXPECT_EQ(compared, 3U);
}

TEST_F(SlotReuse, of_a_preempted_request_waits_for_its_compute) {
  make(with_storage(sizes(3), WritePolicy::write_through));
  const auto keys = keys_of({1, 2, 3});
  ASSERT_TRUE(acquire(1, keys).has_value());
  const Fence written = compute(1, keys, 0);
  ASSERT_TRUE(cache->commit(leases.at(1), keys, written).has_value());
  end(1, written);
  poll();
  for (const SimulatedDevice::Part part : device->step_options()) {
    EXPECT_EQ(part, SimulatedDevice::Part::compute) << "a copy would take what is not written yet";
  }
  settle();
  for (const BlockKey& key : keys) EXPECT_TRUE(holds(store->raw(key), content_of(key)));
  serve(2, keys_of({7, 8, 9}));
  expect_hit(3, keys);
}

// ---- F04: two sources for one host slot in one step

TEST_F(SlotReuse, gives_every_block_of_a_step_a_slot_of_its_own) {
  for (const InclusionPolicy inclusion : {InclusionPolicy::lazy_exclusive, InclusionPolicy::non_inclusive,
                                          InclusionPolicy::exclusive, InclusionPolicy::inclusive}) {
    make(with_storage(sizes(6, 6, inclusion), WritePolicy::write_through));
    PlanWatch planned{*transfers};
    cache = std::make_unique<Cache>(cache->manager().config(), CacheParts{planned, {{arena.get(), store.get()}}, clock});
    // Three prompts are evicted in one step for a longer one, the host tier is full of others, and copies to storage run at the
    // same time.
    std::uint64_t id = 0;
    std::vector<std::vector<BlockKey>> prompts;
    for (std::uint32_t round = 0; round < 3; ++round) {
      const std::uint32_t name = 100 * round;
      for (std::uint32_t n = 0; n < 3; ++n) prompts.push_back(keys_of({name + 10 * n, name + 10 * n + 1}));
      prompts.push_back(keys_of({name + 50, name + 51, name + 52, name + 53, name + 54, name + 55}));
      for (std::size_t n = prompts.size() - 4; n < prompts.size(); ++n) serve(id++, prompts[n]);
    }
    EXPECT_GE(planned.blocks_max, 6U) << "blocks of one step go in one plan";
    for (const auto& prompt : prompts) expect_hit(id++, prompt);
    cache.reset();
    transfers.reset();
    device.reset();
  }
  EXPECT_EQ(compared, 4U * 36U);
}

// ---- F06: a block is stored whose own load has not completed

TEST_F(SlotReuse, stores_a_block_that_is_being_loaded_from_where_its_bytes_are) {
  // The second hit orders a block to storage and loads it. At that time the device has at most half of it.
  ManagerConfig config = with_storage(sizes(4, 8), WritePolicy::selective);
  config.selective_hits = 1;
  make(config);
  const auto keys = keys_of({1, 2});
  serve(1, keys);
  serve(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(cache->match(keys).found[Source::host], 2U);
  ASSERT_EQ(store->stat().blocks, 0U);
  device->stuck(swap_in, true);
  ASSERT_TRUE(acquire(3, keys).has_value());
  run_and_poll(10);
  ASSERT_FALSE(ready(3));
  move_a_part(swap_in, SimulatedDevice::Part::swap_in);
  EXPECT_EQ(store->stat().blocks, 2U);
  for (const BlockKey& key : keys) EXPECT_TRUE(holds(store->raw(key), content_of(key))) << "stored before it was there";
  device->stuck(swap_in, false);
  ASSERT_TRUE(ready_when_settled(3));
  use(3, keys);
}

TEST_F(SlotReuse, stores_no_block_that_only_a_load_has) {
  // Storage evicts a block that is being loaded from it. A write-back job over everything does not find the block in any tier
  // yet.
  make(with_storage(sizes(4), WritePolicy::write_through));
  const auto keys = keys_of({1, 2});
  serve(1, keys);
  serve(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(cache->match(keys).found[Source::storage], 2U);
  device->stuck(swap_in, true);
  ASSERT_TRUE(acquire(3, keys).has_value());
  for (int i = 0; i < 10; ++i) poll();
  ASSERT_EQ(device->commands(swap_in), 1U);
  store->remove(keys, 0);
  poll();
  ASSERT_EQ(store->stat().blocks, 4U);
  WriteBackOrder all;
  all.durable = false;
  const WriteBackId id = cache->start_write_back(all).value();
  for (int i = 0; i < 10; ++i) poll();
  const auto progress = cache->write_back(id);
  ASSERT_TRUE(progress.has_value());
  EXPECT_FALSE(store->contains(keys[0])) << "of bytes that had not arrived";
  EXPECT_FALSE(store->contains(keys[1]));
  device->stuck(swap_in, false);
  ASSERT_TRUE(ready_when_settled(3));
  use(3, keys);
  settle();
  // Now the blocks have arrived.
  ASSERT_TRUE(cache->start_write_back(all).has_value());
  settle();
  for (const BlockKey& key : keys) EXPECT_TRUE(holds(store->raw(key), content_of(key)));
}

// ---- F08: the host evicts a copy that is being loaded

TEST_F(SlotReuse, of_a_host_slot_waits_for_the_load_from_it) {
  make(sizes(4, 2));
  const auto keys = keys_of({1, 2});
  serve(1, keys);
  serve(2, keys_of({5, 6}));
  serve(3, keys_of({7, 8}));
  ASSERT_EQ(cache->match(keys).found[Source::host], 2U);
  device->stuck(swap_in, true);
  ASSERT_TRUE(acquire(4, keys).has_value());  // {5, 6} is evicted and finds no slot in the host
  run_and_poll(10);
  ASSERT_EQ(device->commands(swap_in), 1U);
  move_a_part(swap_in, SimulatedDevice::Part::swap_in);
  // The host tier needs slots again. Only those of the running load could become free, so it waits for the load.
  ASSERT_TRUE(acquire(10, keys_of({20, 30})).has_value());
  run_and_poll(10);
  EXPECT_FALSE(ready(10));
  for (const BlockKey& key : keys) {
    const SlotId slot = cache->find_block(key).value().host.value();
    EXPECT_TRUE(holds(arena->block(slot), content_of(key)));
  }
  device->stuck(swap_in, false);
  ASSERT_TRUE(ready_when_settled(4));
  EXPECT_EQ(hits(4), 2U);
  use(4, keys);
  ASSERT_TRUE(ready(10));
  use(10, keys_of({20, 30}));
}

TEST_F(SlotReuse, of_a_host_slot_waits_for_the_load_though_its_request_has_gone) {
  make(sizes(4, 2));
  const auto keys = keys_of({1, 2});
  serve(1, keys);
  serve(2, keys_of({5, 6}));
  serve(3, keys_of({7, 8}));
  device->stuck(swap_in, true);
  ASSERT_TRUE(acquire(4, keys).has_value());
  run_and_poll(10);
  move_a_part(swap_in, SimulatedDevice::Part::swap_in);
  end(4, {});
  ASSERT_TRUE(acquire(10, keys_of({20, 30})).has_value());
  run_and_poll(10);
  EXPECT_FALSE(ready(10));
  device->stuck(swap_in, false);
  settle();
  EXPECT_EQ(cache->match(keys).found[Source::device], 2U) << "what was under way is cached";
  ASSERT_TRUE(ready(10));
  use(10, keys_of({20, 30}));
  settle();
  expect_hit(12, keys);
  EXPECT_EQ(compared, 2U);
}

}  // namespace
}  // namespace terrace::test
