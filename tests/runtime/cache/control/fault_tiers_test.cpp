// Faults of docs/reliability.md: a tier fails while everything else continues, or it comes back with the blocks of another model.
// The tests check what is served and what is reported.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "storage/file/file_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/content_fixture.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "transfer/host/host_arena.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <system_error>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A cache with a resilient file store on a disk that the test breaks.
class FailingTier : public ContentFixture {
 protected:
  static constexpr Bytes stored_bytes = KiB * 4;

  [[nodiscard]] static FileStoreConfig stored() {
    FileStoreConfig config;
    config.directory = "/store";
    config.name.clear();
    config.block_bytes = stored_bytes;
    config.capacity = capacity_for(64, stored_bytes);
    return config;
  }
  void make_over_disk() {
    cache.reset();
    transfers.reset();
    device.reset();
    guard.reset();
    file.reset();
    file = std::make_unique<FileStore>(stored(), io);
    guard = std::make_unique<ResilientStore>(*file, clock, ResilienceOptions{});
    big_arena = std::make_unique<HostArena>(8, stored_bytes);
    device = std::make_unique<SimulatedDevice>(4, *big_arena);
    transfers = std::make_unique<TransferEngine>(TransferSchedulerConfig{}, *device, clock, waker);
    ManagerConfig config = with_storage(sizes(4), WritePolicy::write_through);
    config.pools[0].staging_blocks = 8;
    config.policy = lru_policy;
    cache = std::make_unique<Cache>(config, CacheParts{*transfers, {{big_arena.get(), guard.get()}}, clock});
  }
  void TearDown() override {
    leases.clear();
    work();
    EXPECT_EQ(mismatches, 0U) << "of " << compared;
    if (cache) cache->manager().check_invariants();
    cache.reset();
  }
  void work() {
    for (int i = 0; i < 50; ++i) {
      device->run();
      while (io.queued() > 0) io.step(0);
      poll();
    }
  }
  /// A whole request. Returns how many of its blocks were hits.
  std::uint32_t serve_over_disk(std::uint64_t id, const std::vector<BlockKey>& keys) {
    if (!acquire(id, keys).has_value()) return 0;
    for (int i = 0; i < 20 && !ready(id); ++i) {
      work();
      if (!ready(id)) clock.advance(milliseconds{25});  // retries wait for this time
    }
    EXPECT_TRUE(ready(id));
    const RequestStats found = stats(id);
    const auto compare_and_write = [this, keys, slots = table(id), hits = hits(id)](BlockAccess& access) {
      std::vector<std::byte> scratch(count(stored_bytes));
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (i < hits) {
          ++compared;
          mismatches += !test::holds(access.read(slots[i], scratch), content_of(keys[i]));
          continue;
        }
        test::fill(access.write_target(slots[i], scratch), content_of(keys[i]));
        access.written(slots[i], scratch);
      }
    };
    const Fence done = device->launch(compare_and_write);
    EXPECT_TRUE(cache->commit(leases.at(id), keys, done).has_value());
    end(id, done);
    work();
    return found.found[Source::device] + found.found[Source::storage];
  }

  SimulatedIo io;
  std::unique_ptr<FileStore> file;
  std::unique_ptr<ResilientStore> guard;
  std::unique_ptr<HostArena> big_arena;
};

// ---- F57: a tier fails while metrics and health look good

TEST_F(FailingTier, of_storage_is_a_miss_and_counted_and_said_until_it_is_well_again) {
  make_over_disk();
  const auto one = keys_of({1, 2, 3, 4});
  const auto other = keys_of({5, 6, 7, 8});
  std::uint64_t id = 1;
  EXPECT_EQ(serve_over_disk(id++, one), 0U);
  EXPECT_EQ(serve_over_disk(id++, other), 0U);
  EXPECT_EQ(serve_over_disk(id++, one), 4U) << "from storage";
  EXPECT_EQ(guard->health().state, StoreState::well);

  io.files().break_directory("/store");
  for (int round = 0; round < 6; ++round) {
    const std::uint64_t failures = cache->manager().stats().load_failures;
    EXPECT_EQ(serve_over_disk(id++, round % 2 == 0 ? other : one), 0U) << "served, by computing it";
    EXPECT_GT(cache->manager().stats().load_failures + cache->manager().stats().store_failed, failures);
  }
  const StoreHealth broken = guard->health();
  EXPECT_NE(broken.state, StoreState::well);
  EXPECT_NE(broken.reason.find("the tier is not used"), std::string::npos) << broken.reason;
  EXPECT_GT(broken.failed[static_cast<std::size_t>(ErrorClass::transient)], 4U);
  EXPECT_GT(broken.declined, 0U) << "nobody waits for a disk that is gone";

  io.files().mend_directory("/store");
  for (int round = 0; round < 8; ++round) {
    clock.advance(seconds{30});
    (void)serve_over_disk(id++, round % 2 == 0 ? other : one);
  }
  EXPECT_EQ(guard->health().state, StoreState::well);
  EXPECT_EQ(serve_over_disk(id++, other), 4U);
}

TEST_F(FailingTier, of_which_only_reads_fail_is_said_though_every_write_succeeds) {
  make_over_disk();
  io.files().fail_reads(true);
  StoreHealth worst;
  // Six prompts of one block each, and four slots: each block is read without success, computed, and written again. So one of
  // three operations in a row succeeds.
  for (std::uint32_t n = 0; n < 40; ++n) {
    EXPECT_EQ(serve_over_disk(n + 1, keys_of({n % 6})), 0U);
    if (guard->health().state != StoreState::well) worst = guard->health();
    clock.advance(milliseconds{50});
  }
  EXPECT_NE(worst.state, StoreState::well) << "a tier that only takes is no tier";
  EXPECT_NE(worst.reason.find("reads"), std::string::npos) << worst.reason;
  io.files().fail_reads(false);
  std::uint32_t found = 0;
  for (std::uint32_t n = 0; n < 40; ++n) {
    found += serve_over_disk(100 + n, keys_of({n % 6}));
    clock.advance(seconds{1});
  }
  EXPECT_EQ(guard->health().state, StoreState::well);
  EXPECT_GT(found, 0U);
}

// ---- F49: another model, or other weights, with the same path

TEST_F(FailingTier, with_the_blocks_of_other_weights_serves_none_of_them) {
  RootFields old_weights;
  RootFields new_weights;
  new_weights.weight_epoch = 1;
  const std::array<std::byte, 1> digest{};
  RootFields new_model;
  new_model.model_digest = digest;
  const std::vector<std::uint32_t> names{1, 2, 3, 4};
  const auto old_keys = keys_of(std::span{names}, root_key(old_weights));
  make_over_disk();
  (void)serve_over_disk(1, old_keys);
  ASSERT_EQ(file->stat().blocks, 4U);
  for (const RootFields& fields : {new_weights, new_model}) {
    // Another process, with the same tokens and the same store.
    make_over_disk();
    ASSERT_GE(file->stat().blocks, 4U) << "they are still there";
    const auto keys = keys_of(std::span{names}, root_key(fields));
    EXPECT_EQ(cache->match(keys).total(), 0U);
    EXPECT_EQ(serve_over_disk(1, keys), 0U);
    EXPECT_EQ(serve_over_disk(2, keys), 4U) << "its own";
  }
  EXPECT_EQ(cache->match(old_keys).found[Source::storage], 4U) << "to those who name the old weights";
}

TEST_F(FailingTier, of_another_geometry_is_refused_and_left_as_it_was) {
  make_over_disk();
  (void)serve_over_disk(1, keys_of({1, 2, 3, 4}));
  cache.reset();
  guard.reset();
  file.reset();
  FileStoreConfig other = stored();
  other.fingerprint[0] = std::byte{1};  // another model, data type or layout
  const std::string said = refusal_of<std::system_error>([&] { const FileStore refused{other, io}; });
  EXPECT_NE(said.find("was made for the model and geometry"), std::string::npos) << said;
  make_over_disk();
  EXPECT_EQ(serve_over_disk(1, keys_of({1, 2, 3, 4})), 4U);
}

// ---- faults of docs/reliability.md: a lower tier has no slot for an evicted block, or a tier is smaller than one prompt

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
  ASSERT_TRUE(ready_when_settled(5));
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
  run_and_poll(10);
  ASSERT_TRUE(cache->pin(keys_of({1})).has_value());
  device->stuck(Direction::swap_in, false);
  ASSERT_TRUE(ready_when_settled(3));
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
