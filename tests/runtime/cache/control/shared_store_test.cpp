// Blocks that requests get from a store that several machines share.

#include "storage/shared/memory_shared_store.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/shared_fixture.hpp"

#include <chrono>
#include <memory>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

/// One of several caches of a test.
class Instance final : public ContentFixture {
 public:
  Instance(std::shared_ptr<SharedMemoryEngine> engine, ManagerConfig config) : store_{std::move(engine), clock} {
    shared = &store_;
    make(std::move(config));
    settle();
  }
  ~Instance() override { ContentFixture::TearDown(); }
  void TestBody() override {}

  using ContentFixture::cache;
  using ContentFixture::clock;
  using ContentFixture::compared;
  using ContentFixture::mismatches;
  using ContentFixture::serve;
  using ContentFixture::settle;
  using ContentFixture::stats;

  /// A request for the keys. Returns what it found where.
  RequestStats request(std::uint64_t id, const std::vector<BlockKey>& keys) {
    EXPECT_TRUE(acquire(id, keys).has_value());
    EXPECT_TRUE(ready_when_settled(id));
    const RequestStats found = stats(id);
    use(id, keys);
    settle();
    return found;
  }

 private:
  MemorySharedStore store_;
};

TEST(SharedInstances, serve_every_block_that_another_wrote) {
  for (const InclusionPolicy inclusion : {InclusionPolicy::lazy_exclusive, InclusionPolicy::non_inclusive,
                                          InclusionPolicy::exclusive, InclusionPolicy::inclusive}) {
    for (const std::uint32_t host_blocks : {0U, 16U}) {
      SCOPED_TRACE(std::string{to_string(inclusion)} + ", host blocks: " + std::to_string(host_blocks));
      const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
      ManagerConfig config = with_shared(sizes(16, host_blocks, inclusion), WritePolicy::write_through);
      Instance writer{engine, config};
      config.shared.writes = WritePolicy::none;
      Instance reader{engine, config};
      std::uint64_t id = 0;
      for (std::uint32_t first = 100; first < 1000; first += 100) EXPECT_EQ(writer.request(++id, keys_from(first, 10)).miss, 10U);
      for (std::uint32_t first = 100; first < 1000; first += 100) {
        const RequestStats found = reader.request(++id, keys_from(first, 10));
        EXPECT_EQ(found.found[Source::shared], 10U);
        EXPECT_EQ(found.miss, 0U);
        EXPECT_TRUE(found.looked);
      }
      EXPECT_EQ(reader.mismatches, 0U);
      EXPECT_EQ(reader.compared, 90U);
      EXPECT_EQ(reader.cache->moved().shared_reads.blocks, 90U);
      EXPECT_EQ(writer.cache->moved().shared_writes.blocks, 90U);
      // A copy in memory of its own is nearer.
      const RequestStats again = reader.request(++id, keys_from(900, 10));
      EXPECT_EQ(again.found[Source::device], 10U);
      EXPECT_FALSE(again.looked);
    }
  }
}

TEST(SharedInstances, read_what_one_that_caches_nothing_has_computed) {
  const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
  ManagerConfig config = with_shared(sizes(32, 16), WritePolicy::selective);
  config.pools[0].staging_blocks = 8;
  ManagerConfig decodes = config;
  decodes.caching = false;
  decodes.store_uncached = true;
  Instance decoder{engine, decodes};
  Instance prefill{engine, config};
  const auto keys = keys_from(100, 20);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    EXPECT_EQ(decoder.request(id, keys).miss, keys.size()) << "it reads nothing, not even what it has written";
  }
  EXPECT_EQ(decoder.cache->shared_totals().look_ups, 0U);
  EXPECT_EQ(decoder.cache->shared_totals().written, keys.size());
  EXPECT_EQ(prefill.request(1, keys).found[Source::shared], keys.size());
  EXPECT_EQ(prefill.mismatches, 0U);
  EXPECT_EQ(prefill.compared, keys.size());
}

TEST(SharedInstances, that_compute_the_same_blocks_write_few_of_them_twice) {
  const auto engine = std::make_shared<SharedMemoryEngine>(MiB);
  ManagerConfig config = with_shared(sizes(128, 64), WritePolicy::write_through);
  config.pools[0].staging_blocks = 32;
  Instance a{engine, config};
  Instance b{engine, config};
  // Neither reads what the other wrote: both compute all, the second a little later.
  const auto compute = [](Instance& instance, std::uint64_t id, std::uint32_t first) {
    AcquireRequest wanted = request_for(id, keys_from(first, 20));
    const std::vector<BlockKey> keys = keys_from(first, 20);
    wanted.keys = keys;
    wanted.farthest_source = Source::storage;
    Lease lease = instance.cache->acquire(wanted).value();
    instance.settle();
    (void)instance.cache->commit(lease, keys, Fence{}).value();
    instance.cache->release(std::move(lease), Fence{});
  };
  for (std::uint32_t turn = 0; turn < 50; ++turn) {
    compute(a, 1 + turn, 1000 + 100 * turn);
    compute(b, 1 + turn, 1000 + 100 * turn);
    a.settle();
    b.settle();
  }
  const std::uint64_t blocks = 50 * 20;
  const std::uint64_t written = a.cache->moved().shared_writes.blocks + b.cache->moved().shared_writes.blocks;
  EXPECT_GE(written, blocks);
  EXPECT_LE(static_cast<double>(written), 1.05 * static_cast<double>(blocks));
  EXPECT_GT(b.cache->shared_totals().present, blocks * 9 / 10);
}

class SharedStoreTest : public SharedFixture {
 protected:
  /// A request for the keys, which the store has. It reads all of them, and the store answers no read.
  void begin_reads(const std::vector<BlockKey>& keys) {
    put(keys);
    ASSERT_TRUE(acquire(1, keys).has_value());
    cache->end_step();
    store_of_others.answers = false;
    store_of_others.answer_probes();
    poll();
    ASSERT_EQ(store_of_others.reads.size(), keys.size());
    store_of_others.keeps_cancelled = true;
  }
};

TEST_F(SharedStoreTest, is_asked_when_blocks_are_missing_and_the_request_holds_nothing_meanwhile) {
  make_shared(with_shared(sizes(8, 8)));
  store_of_others.answers = false;
  const auto keys = keys_of({1, 2, 3, 4});
  put(keys);
  ASSERT_TRUE(acquire(1, keys, 1).has_value());
  EXPECT_EQ(state(1), RequestState::waiting);
  EXPECT_EQ(store_of_others.calls, 0U) << "acquire() calls nothing that may be a system call";
  EXPECT_EQ(held_on_device(), 0U);
  EXPECT_EQ(cache->usage(Tier::device).promised, 0U);
  EXPECT_EQ(cache->next_deadline(), clock.now()) << "there is something to do";
  cache->end_step();
  ASSERT_EQ(store_of_others.probes.size(), 1U);
  EXPECT_EQ(store_of_others.probes[0].keys, keys);
  store_of_others.answers = true;
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_EQ(stats(1).found[Source::shared], 4U);
  EXPECT_EQ(table(1).size(), 5U);
  (void)compare(1, keys, 4);
  settle();
  EXPECT_EQ(compared, 4U);
}

TEST_F(SharedStoreTest, is_asked_only_for_blocks_after_the_local_hits) {
  make_shared(with_shared(sizes(8, 8)));
  serve(1, keys_of({1, 2}));
  const auto keys = keys_of({1, 2, 3, 4});
  put(keys);
  const std::size_t before = store_of_others.probed;
  serve(2, keys_of({1, 2}));
  EXPECT_EQ(store_of_others.probed, before) << "nothing was missing";
  store_of_others.answers = false;
  ASSERT_TRUE(acquire(3, keys).has_value());
  cache->end_step();
  ASSERT_EQ(store_of_others.probes.size(), 1U);
  EXPECT_EQ(store_of_others.probes[0].keys, (std::vector<BlockKey>{keys[2], keys[3]}));
  EXPECT_EQ(cache->usage(Tier::device).evictable, 0U) << "its local hits are pinned";
  store_of_others.answers = true;
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::device], 2U);
  EXPECT_EQ(stats(3).found[Source::shared], 2U);
}

TEST_F(SharedStoreTest, is_not_asked_where_the_request_forbids_it_or_it_cannot_be_used) {
  make_shared(with_shared(sizes(8)));
  put(keys_of({1, 2, 3, 4}));
  AcquireRequest wanted = request(1, {});
  const auto keys = keys_of({1, 2});
  wanted.keys = keys;
  wanted.farthest_source = Source::storage;
  leases[1] = cache->acquire(wanted).value();
  EXPECT_TRUE(ready(1));
  wanted.id = RequestId{2};
  wanted.farthest_source = Source::shared;
  wanted.hit_units_max = 0;
  leases[2] = cache->acquire(wanted).value();
  EXPECT_TRUE(ready(2));
  store_of_others.usable_now = false;
  ASSERT_TRUE(acquire(3, keys_of({1, 2, 3, 4})).has_value());
  EXPECT_TRUE(ready(3)) << "a store that is down costs nothing";
  EXPECT_EQ(store_of_others.probed, 0U);
}

TEST_F(SharedStoreTest, is_not_asked_for_what_it_just_did_not_have) {
  make_shared(with_shared(sizes(16)));
  const auto keys = keys_of({1, 2});
  ASSERT_TRUE(acquire(1, keys).has_value());
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_EQ(stats(1).miss, 2U);
  EXPECT_TRUE(stats(1).looked);
  ASSERT_TRUE(acquire(2, keys).has_value());
  EXPECT_TRUE(ready(2)) << "it did not wait";
  EXPECT_FALSE(stats(2).looked);
  EXPECT_EQ(totals().look_ups_skipped, 1U);
  clock.advance(1s);
  ASSERT_TRUE(acquire(3, keys).has_value());
  EXPECT_FALSE(ready(3));
  EXPECT_EQ(cache->wait_totals().looking.requests, 1U);
  clock.advance(3ms);
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).waits.looking, 3ms);
}

TEST_F(SharedStoreTest, is_asked_once_by_requests_that_want_the_same) {
  make_shared(with_shared(sizes(16)));
  const auto keys = keys_of({1, 2, 3});
  put(keys);
  ASSERT_TRUE(acquire(1, keys).has_value());
  ASSERT_TRUE(acquire(2, keys).has_value());
  settle();
  ASSERT_TRUE(ready(1) && ready(2));
  EXPECT_EQ(stats(1).found[Source::shared], 3U);
  EXPECT_EQ(stats(2).found[Source::shared], 3U);
  EXPECT_EQ(stats(2).joined, 3U) << "it has joined the load of the first";
  EXPECT_EQ(table(1), table(2));
  EXPECT_EQ(store_of_others.probed, 1U);
  EXPECT_EQ(cache->moved().shared_reads.blocks, 3U);
}

TEST_F(SharedStoreTest, that_does_not_answer_costs_the_deadline_of_the_probe_and_not_more) {
  make_shared(with_shared(sizes(8)));
  store_of_others.answers = false;
  put(keys_of({1, 2}));
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  cache->end_step();
  EXPECT_EQ(cache->next_deadline(), clock.now() + 20ms);
  clock.advance(20ms - 1ns);
  poll();
  EXPECT_EQ(state(1), RequestState::waiting);
  clock.advance(1ns);
  poll();
  EXPECT_TRUE(ready(1));
  EXPECT_EQ(stats(1).miss, 2U);
  EXPECT_EQ(store_of_others.cancelled.size(), 1U);
  EXPECT_EQ(totals().look_ups_late, 1U);
}

TEST_F(SharedStoreTest, is_not_waited_for_beyond_the_deadline_of_the_request) {
  make_shared(with_shared(sizes(8)));
  store_of_others.answers = false;
  const auto keys = keys_of({1, 2});
  AcquireRequest wanted = request(1, keys);
  wanted.deadline = clock.now() + 5ms;
  leases[1] = cache->acquire(wanted).value();
  cache->end_step();
  clock.advance(5ms);
  poll();
  EXPECT_TRUE(ready(1)) << "without the answer it needs nothing that it has to wait for";
}

TEST_F(SharedStoreTest, that_has_lost_a_block_costs_a_hit_and_never_the_request) {
  for (const Errc error : {Errc::not_found, Errc::corrupt, Errc::io_failed, Errc::deadline_exceeded}) {
    SCOPED_TRACE(ErrorCode{error}.message());
    static std::uint32_t first = 10;
    first += 10;
    if (!cache) make_shared(with_shared(sizes(8, 8)));
    const auto keys = keys_of({first, 2, 3, 4});
    put(keys);
    store_of_others.read_errors[keys[2]] = error;
    const std::size_t probed = store_of_others.probed;
    ASSERT_TRUE(acquire(first, keys).has_value());
    ASSERT_TRUE(ready_when_settled(first));
    EXPECT_EQ(stats(first).found[Source::shared], 2U) << "up to the gap";
    EXPECT_EQ(stats(first).miss, 2U);
    EXPECT_EQ(store_of_others.probed, probed + 1) << "it does not try again";
    use(first, keys);
    settle();
  }
  const SharedTotals seen = totals();
  EXPECT_EQ(seen.read_gone, 1U);
  EXPECT_EQ(seen.read_corrupt, 1U);
  EXPECT_EQ(seen.read_failed, 1U);
  EXPECT_EQ(seen.read_late, 1U);
}

TEST_F(SharedStoreTest, whose_block_is_late_is_not_waited_for) {
  ManagerConfig config = with_shared(sizes(8, 8));
  config.unit_prefill_seconds = 0.010;
  make_shared(config);
  const auto keys = keys_of({1, 2, 3, 4});
  put(keys);
  ASSERT_TRUE(acquire(1, keys).has_value());
  cache->end_step();
  store_of_others.answers = false;
  store_of_others.answer_probes();
  poll();
  ASSERT_EQ(store_of_others.reads.size(), 4U);
  EXPECT_EQ(store_of_others.reads[0].deadline, clock.now() + 100ms) << "20 ms, and twice what computing takes";
  store_of_others.answer_read();
  store_of_others.keeps_cancelled = true;
  clock.advance(100ms);
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_EQ(stats(1).found.sum(), 1U) << "what had arrived";
  EXPECT_EQ(stats(1).miss, 3U);
  EXPECT_EQ(store_of_others.cancelled.size(), 3U) << "so that their slots are free soon";
  EXPECT_EQ(cache->manager().host_ledger().filling, 3U) << "before that, nobody uses them";
  while (!store_of_others.reads.empty()) store_of_others.answer_read(Errc::cancelled);
  settle();
  EXPECT_EQ(cache->manager().host_ledger().filling, 0U);
}

TEST_F(SharedStoreTest, whose_answer_nobody_waits_for_any_more_changes_nothing) {
  make_shared(with_shared(sizes(8, 8)));
  store_of_others.answers = false;
  const auto keys = keys_of({1, 2, 3});
  put(keys);
  ASSERT_TRUE(acquire(1, keys).has_value());
  cache->end_step();
  release(1);
  poll();
  EXPECT_EQ(store_of_others.cancelled.size(), 1U);
  let_others_answer();
  EXPECT_FALSE(cache->has_pending_work());
  EXPECT_EQ(free_on_device(), 8U);
}

class SharedStoreWithHost : public SharedStoreTest, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_P(SharedStoreWithHost, that_reads_for_a_request_that_is_gone_frees_the_slots_at_its_event) {
  const std::uint32_t host_blocks = GetParam();
  make_shared(with_shared(sizes(8, host_blocks)));
  const auto keys = keys_of({1, 2, 3});
  ASSERT_NO_FATAL_FAILURE(begin_reads(keys));
  release(1);
  poll();
  EXPECT_EQ(store_of_others.cancelled.size(), 3U);
  EXPECT_EQ(free_on_device(), 8U) << "device slots wait for nobody";
  const Ledger arena_now = cache->manager().host_ledger();
  EXPECT_EQ(arena_now.held + arena_now.filling, 3U);
  let_others_answer();
  EXPECT_EQ(cache->manager().host_ledger().held + cache->manager().host_ledger().filling, 0U);
  EXPECT_EQ(resident(Tier::host), host_blocks == 0 ? 0U : 3U) << "what arrives in the host tier all the same is kept";
  cache->manager().check_invariants();
}

INSTANTIATE_TEST_SUITE_P(HostBlocks, SharedStoreWithHost, ::testing::Values(0U, 8U));

TEST_F(SharedStoreTest, is_left_alone_after_a_clear_until_the_weights_are_named) {
  make_shared(with_shared(sizes(8, 8)));
  const auto keys = keys_of({1, 2, 3});
  put(keys);
  store_of_others.answers = false;
  ASSERT_TRUE(acquire(1, keys).has_value());  // looks
  ASSERT_TRUE(acquire(2, keys_of({5})).has_value());
  cache->end_step();
  cache->clear({});
  poll();
  EXPECT_EQ(failure(1), ErrorCode{Errc::cleared});
  leases.clear();
  let_others_answer();
  const std::size_t probed = store_of_others.probed;
  serve(3, keys_of({7, 8}));
  EXPECT_EQ(store_of_others.probed, probed);
  EXPECT_TRUE(store_of_others.fingerprints.empty());
  SharedStore::Fingerprint fingerprint{};
  fingerprint[0] = std::byte{7};
  ASSERT_TRUE(cache->resume_shared(fingerprint).has_value());
  ASSERT_EQ(store_of_others.fingerprints.size(), 1U);
  EXPECT_EQ(store_of_others.fingerprints[0], fingerprint);
  poll();
  ASSERT_TRUE(acquire(4, keys).has_value());
  settle();
  EXPECT_EQ(stats(4).found[Source::shared], 3U);
  leases.clear();
  settle();

  // The caller says that keys still mean the same.
  cache->clear({.keep_shared = true});
  ASSERT_TRUE(acquire(5, keys).has_value());
  settle();
  EXPECT_EQ(stats(5).found[Source::shared], 3U);
}

TEST_F(SharedStoreTest, whose_reads_are_under_way_at_a_clear_serves_nobody_with_them) {
  make_shared(with_shared(sizes(8, 8)));
  const auto keys = keys_of({1, 2, 3});
  ASSERT_NO_FATAL_FAILURE(begin_reads(keys));
  cache->clear({});
  let_others_answer();
  EXPECT_EQ(failure(1), ErrorCode{Errc::cleared});
  leases.clear();
  settle();
  EXPECT_EQ(cache->match(keys).total(), 0U);
  EXPECT_EQ(resident(Tier::host), 0U);
}

TEST_F(SharedStoreTest, may_find_no_room_when_it_has_answered) {
  make_shared(with_shared(sizes(4)));
  store_of_others.answers = false;
  const auto keys = keys_of({1, 2, 3});
  put(keys);
  ASSERT_TRUE(acquire(1, keys).has_value());
  cache->end_step();
  AcquireRequest other = request(2, {}, 3);
  leases[2] = cache->acquire(other).value();
  ASSERT_TRUE(ready(2)) << "the request that looks holds nothing";
  let_others_answer();
  EXPECT_EQ(failure(1), ErrorCode{Errc::no_room});
  leases.erase(1);
  leases.erase(2);
  settle();
  ASSERT_TRUE(acquire(3, keys).has_value());
  settle();
  EXPECT_EQ(stats(3).found[Source::shared], 3U);
}

TEST_F(SharedStoreTest, does_not_help_a_request_that_does_not_fit) {
  make_shared(with_shared(sizes(4)));
  const Result<void> larger = acquire(1, keys_of({1, 2, 3, 4, 5}));
  ASSERT_FALSE(larger.has_value());
  EXPECT_EQ(larger.error(), Errc::never_fits);
  leases[2] = cache->acquire(request(2, {}, 4)).value();
  const Result<void> later = acquire(3, keys_of({1}));
  ASSERT_FALSE(later.has_value());
  EXPECT_EQ(later.error(), Errc::no_room);
  EXPECT_EQ(totals().look_ups, 0U);
}

TEST_F(SharedStoreTest, is_asked_only_if_loading_is_faster_than_computing) {
  ManagerConfig config = with_shared(sizes(16, 16));
  config.unit_prefill_seconds = 0.001;
  make_shared(config);
  put(keys_of({1, 2, 3, 4}));
  // The store takes 15 ms for an answer, and so do four blocks.
  store_of_others.answers = false;
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3, 4})).has_value());
  cache->end_step();
  clock.advance(15ms);
  store_of_others.answer_probes();
  poll();
  let_others_answer();
  release(1);
  ASSERT_TRUE(acquire(2, keys_of({5, 6, 7})).has_value());
  EXPECT_TRUE(ready(2)) << "three blocks are computed before it has answered";
  EXPECT_FALSE(stats(2).looked);
}

TEST_F(SharedStoreTest, serves_all_but_the_last_hit_where_a_request_wants_that) {
  make_shared(with_shared(sizes(16, 16)));
  const auto keys = keys_of({1, 2, 3, 4});
  put(keys);
  AcquireRequest wanted = request(1, keys);
  wanted.drop_last_hit = true;
  leases[1] = cache->acquire(wanted).value();
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_EQ(stats(1).found[Source::shared], 3U);
  EXPECT_EQ(stats(1).miss, 1U);
}

TEST_F(SharedStoreTest, fills_the_device_while_requests_wait_for_its_slots) {
  make_shared(with_shared(sizes(4, 8)));
  serve(1, keys_of({1, 2, 3, 4}));
  const auto keys = keys_of({5, 6, 7, 8});
  put(keys);
  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(acquire(2, keys).has_value());
  settle();
  EXPECT_EQ(state(2), RequestState::waiting) << "the old blocks have not left";
  cache->manager().check_invariants();
  device->stuck(Direction::swap_out, false);
  ASSERT_TRUE(ready_when_settled(2));
  EXPECT_EQ(stats(2).found[Source::shared], 4U);
}

TEST(SharedConfigTest, refuses_what_it_cannot_do) {
  const auto refused = [](const ManagerConfig& config) { return refusal_of<std::invalid_argument>([&] { validate(config); }); };
  ManagerConfig config = with_shared(sizes(8));
  config.pools[0].staging_blocks = 1;
  EXPECT_NE(refused(config).find("at least 2 staging"), std::string::npos) << refused(config);
  config.pools[0].staging_blocks = 2;
  EXPECT_EQ(refused(config), "");
  config.shared.writes = WritePolicy::write_back;
  EXPECT_NE(refused(config), "");
  config.shared.writes = WritePolicy::none;
  config.groups = {GroupConfig{.kind = GroupKind::sliding_window, .block_tokens = 16, .span_tokens = 64}};
  config.pools[0].null_block = true;
  EXPECT_EQ(refused(config), "");
}

}  // namespace
}  // namespace terrace::test
