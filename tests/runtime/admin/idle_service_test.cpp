// Who works on a cache while its engine makes no call: the turns without threads, the service with a thread, and an idle engine
// with an endpoint for operators.

#include "runtime/engine/idle/idle_service.hpp"

#include "runtime/engine/idle/turns.hpp"
#include "terrace/async_cache.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/options.hpp"
#include "terrace/system.hpp"
#include "terrace/turn.hpp"
#include "tests/patience.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/live/client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

// ---- turns, without threads --------------------------------------------------------------------------------------------------

TEST(Turns, a_slice_begins_only_if_the_owner_is_away_and_has_made_no_call_since) {
  const ManualClock clock;
  Turns turns{clock};
  const std::uint64_t seen = turns.taken();
  ASSERT_TRUE(turns.try_slice(seen));
  EXPECT_TRUE(turns.held());
  turns.end_slice();
  EXPECT_FALSE(turns.held());
  ASSERT_TRUE(turns.try_slice(seen));
  turns.end_slice();
  { const Turn turn{turns}; }
  EXPECT_FALSE(turns.try_slice(seen));
  EXPECT_FALSE(turns.held());
  EXPECT_TRUE(turns.try_slice(turns.taken()));
  turns.end_slice();
  EXPECT_EQ(turns.slices().number, 3U);
  EXPECT_EQ(turns.waits().number, 0U);
}

TEST(Turns, may_be_nested_and_moved) {
  const ManualClock clock;
  Turns turns{clock};
  {
    Turn outer{turns};
    { const Turn inner{turns}; }
    EXPECT_TRUE(turns.held());
    const Turn moved = std::move(outer);
    EXPECT_TRUE(turns.held());
  }
  EXPECT_FALSE(turns.held());
  const Turn nobodys;
}

TEST(Turns, no_slice_begins_in_a_pause) {
  ManualClock clock;
  Turns turns{clock};
  {
    const Turn turn{turns};
    turns.pause_service(clock.now() + 10s);
  }
  EXPECT_FALSE(turns.try_slice(turns.taken()));
  clock.advance(10s);
  ASSERT_TRUE(turns.try_slice(turns.taken()));
  turns.end_slice();
}

TEST(Turns, no_slice_begins_in_a_turn) {
  const ManualClock clock;
  Turns turns{clock};
  const Turn turn{turns};
  bool begun = true;
  std::thread{[&] { begun = turns.try_slice(turns.taken()); }}.join();
  EXPECT_FALSE(begun);
}

TEST(Turns, the_owner_waits_for_the_end_of_one_slice_and_that_is_counted) {
  const SteadyClock clock;
  Turns turns{clock};
  ASSERT_TRUE(turns.try_slice(turns.taken()));
  std::thread owner{[&] {
    const Turn turn{turns};
    EXPECT_EQ(turns.waits().number, 1U);
    EXPECT_FALSE(turns.wanted());
  }};
  EXPECT_TRUE(comes_true([&] { return turns.wanted(); }));
  turns.end_slice();
  owner.join();
}

// ---- the service -------------------------------------------------------------------------------------------------------------

TEST(IdleService, works_while_the_owner_is_away_and_never_in_a_turn) {
  const SteadyClock clock;
  NullWaker owner;
  IdleService service{clock, owner};
  std::atomic<unsigned> slices{0};
  std::atomic<bool> in_turn{false};
  std::atomic<bool> disturbed{false};
  service.start({.slice =
                     [&](TimePoint) {
                       if (in_turn) disturbed = true;
                       ++slices;
                       return true;
                     },
                 .next_deadline = [] { return never; }});
  EXPECT_TRUE(comes_true([&] { return slices > 100; }));
  for (unsigned turn = 0; turn < 20; ++turn) {
    {
      const Turn mine{service.turns()};
      in_turn = true;
      const unsigned before = slices;
      std::this_thread::sleep_for(1ms);
      EXPECT_EQ(slices, before);
      in_turn = false;
    }
  }
  const unsigned before = slices;
  EXPECT_TRUE(comes_true([&] { return slices > before; })) << "it comes back when the owner is away again";
  EXPECT_FALSE(disturbed);
}

TEST(IdleService, sleeps_until_it_is_woken_or_a_deadline_has_come) {
  const SteadyClock clock;
  NullWaker owner;
  IdleService service{clock, owner};
  std::atomic<unsigned> slices{0};
  std::atomic<TimePoint> next{never};
  service.start({.slice =
                     [&](TimePoint) {
                       ++slices;
                       return false;
                     },
                 .next_deadline = [&] { return next.load(); }});
  EXPECT_TRUE(comes_true([&] { return slices == 1; }));
  next = clock.now() + 5ms;
  service.wake();
  EXPECT_TRUE(comes_true([&] { return slices > 2; })) << "at the deadline";
  next = never;
  EXPECT_TRUE(comes_true([&] {
    const unsigned before = slices;
    std::this_thread::sleep_for(20ms);
    return slices == before;
  }));
  const unsigned before = slices;
  service.wake();
  EXPECT_TRUE(comes_true([&] { return slices > before; }));
  std::this_thread::sleep_for(100ms);
  EXPECT_LT(slices, before + 50) << "a wake-up is for one slice, and not for as many as there is time for";
}

TEST(IdleService, ends_also_in_a_turn_of_its_owner) {
  const SteadyClock clock;
  NullWaker owner;
  IdleService service{clock, owner};
  service.start({.slice = [](TimePoint) { return true; }, .next_deadline = [] { return never; }});
  const Turn turn{service.turns()};
  service.stop();
  service.stop();
}

// ---- an idle engine ----------------------------------------------------------------------------------------------------------

class IdleEngine : public ::testing::Test {
 protected:
  [[nodiscard]] CacheSystemOptions options() const {
    CacheSystemOptions options;
    options.pools = {{.block_bytes = KiB * 4, .device_blocks = 16, .host_blocks = 64}};
    options.ranks[0].device = EmulatedGpu{};
    options.storage = MemoryStorage{.capacity = MiB};
    options.write_policy = WritePolicy::none;
    options.memory_limits = nullptr;
    options.engine_owns_slots = true;
    options.idle_service = true;
    options.admin.listen = listen();
    options.admin.publish_interval = 20ms;
    return options;
  }
  [[nodiscard]] std::string listen() const { return "unix:" + (directory.path() / "s").string(); }
  [[nodiscard]] tools::AdminClient client() const {
    return tools::AdminClient{tools::Target{.socket = listen(), .token_file = {}}};
  }
  /// Stores four blocks, and collects what comes of it.
  static void store_four(CacheSystem& system, OffloadCache& offload) {
    const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4});
    const std::vector<SlotId> slots{SlotId{0}, SlotId{1}, SlotId{2}, SlotId{3}};
    {
      const Turn turn = system.take_turn();
      ASSERT_TRUE(offload.store({.id = OffloadJobId{1}, .keys = keys, .slots = slots}));
    }
    ASSERT_TRUE(comes_true([&] {
      const Turn turn = system.take_turn();
      for (const OffloadEvent& event : offload.poll()) {
        if (event.kind == OffloadEvent::Kind::ended) return true;
      }
      return false;
    }));
  }
  static std::uint64_t number(const json::value& at) { return at.to_number<std::uint64_t>(); }

  TemporaryDirectory directory;
};

TEST_F(IdleEngine, does_what_operators_order_without_a_call_of_the_engine) {
  CacheSystem system{options()};
  OffloadCache offload{system.cache()};
  store_four(system, offload);
  const json::object job = client().post("/v1/jobs", {{"scope", "all"}});
  const std::string path = "/v1/jobs/" + std::to_string(number(job.at("id")));
  EXPECT_TRUE(comes_true([&] { return client().get(path).at("state").as_string() == "done"; }));
  EXPECT_EQ(number(client().get(path).at("blocks").at("stored")), 4U);
  (void)client().post("/v1/resize", {{"tier", "host"}, {"blocks", 32}});
  EXPECT_TRUE(comes_true([&] { return number(client().get("/v1/status").at("pools").at(0).at("host").at("blocks")) == 32U; }));
  const Turn turn = system.take_turn();
  EXPECT_EQ(system.cache().durability().durable_blocks, 4U);
  EXPECT_GT(system.idle_totals().slices.number, 0U);
}

TEST_F(IdleEngine, finds_the_events_of_meanwhile_in_its_next_poll) {
  CacheSystem system{options()};
  OffloadCache offload{system.cache()};
  store_four(system, offload);
  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4});
  const std::vector<SlotId> slots{SlotId{4}, SlotId{5}, SlotId{6}, SlotId{7}};
  {
    const Turn turn = system.take_turn();
    ASSERT_TRUE(offload.load({.id = OffloadJobId{2}, .keys = keys, .slots = slots}));
    EXPECT_EQ(offload.blocks_in_flight(), 4U);
  }
  // The endpoint says that the copies have been collected, although nobody has polled.
  EXPECT_TRUE(comes_true([&] { return number(client().get("/v1/status").at("offload").at("loaded_host")) == 4U; }));
  pollfd woken{offload.wake_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&woken, 1, 0), 1) << "an engine that sleeps is woken for its events";
  const Turn turn = system.take_turn();
  std::vector<OffloadEvent::Kind> kinds;
  for (const OffloadEvent& event : offload.poll()) {
    EXPECT_FALSE(event.error);
    kinds.push_back(event.kind);
  }
  using Kind = OffloadEvent::Kind;
  EXPECT_EQ(kinds, (std::vector{Kind::block, Kind::block, Kind::block, Kind::block, Kind::ended}));
}

TEST_F(IdleEngine, closes_while_the_service_works) {
  for (unsigned round = 0; round < 20; ++round) {
    CacheSystem system{options()};
    OffloadCache offload{system.cache()};
    store_four(system, offload);
    if (round % 2 == 1) continue;
    EXPECT_TRUE(system.close(give_up_at()).closed);
  }
}

TEST_F(IdleEngine, is_refused_by_an_async_cache_which_polls_by_itself) {
  CacheSystemOptions wanted = options();
  wanted.engine_owns_slots = false;
  CacheSystem system{wanted};
  boost::asio::io_context io;
  EXPECT_THROW((AsyncCache{io.get_executor(), system.cache()}), std::invalid_argument);
}

TEST_F(IdleEngine, that_forgets_its_turn_is_stopped) {
  CacheSystem system{options()};
  OffloadCache offload{system.cache()};
  EXPECT_DEATH((void)offload.poll(), "turns");
}

}  // namespace
}  // namespace terrace::test
