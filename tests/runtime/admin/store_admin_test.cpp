// The endpoint of a TierStore: its commands and snapshots without threads, and as an engine has it, with a socket.

#include "runtime/admin/mailbox.hpp"
#include "runtime/store/admin_subject.hpp"
#include "terrace/tier_store.hpp"
#include "terrace/waker.hpp"
#include "tests/patience.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/store/gated_stores.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/live/client.hpp"
#include "tools/live/command_line.hpp"
#include "tools/usage_error.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

constexpr Bytes block = KiB * 4;

/// Memory of four blocks.
class Rows {
 public:
  Rows() : memory_{std::make_unique<Memory>()} {}
  [[nodiscard]] HostRows rows() const { return {memory_->data(), 4, block, block}; }

 private:
  struct alignas(4096) Memory : std::array<std::byte, 4 * 4096> {};
  std::unique_ptr<Memory> memory_;
};

const std::array<std::uint32_t, 2> first_rows{0, 1};

// ---- without threads -----------------------------------------------------------------------------------------------------

class StoreAdmin : public ::testing::Test {
 protected:
  static constexpr Duration interval = 1s;

  StoreAdmin() {
    region = batches.regions().add(memory.rows(), block, nullptr).value();
    const auto complete = [this](AdminSnapshot& snapshot) {
      AdminSnapshot::Pool& pool = snapshot.pools.emplace_back();
      pool.store = store.stat();
      snapshot.io = "memory";
    };
    publisher.begin(admin_subject(batches, observer, complete), clock.now());
  }
  void poll() {
    std::vector<BatchResult> results;
    batches.poll(results);
    publisher.on_polled(clock.now());
  }
  void put(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(batches.submit_put({.id = BatchId{id}, .keys = keys, .region = region, .rows = first_rows}));
    poll();
  }
  /// Posts the command, polls once, and returns the reply; nothing if there is none.
  std::optional<admin::Reply> order(admin::Command command) {
    std::optional<admin::Reply> reply;
    EXPECT_TRUE(mailbox.post(std::move(command), [&](admin::Reply got) { reply = std::move(got); }).has_value());
    poll();
    return reply;
  }
  [[nodiscard]] const AdminSnapshot& seen() const { return *mailbox.latest(); }

  NullWaker waker;
  ManualClock clock;
  GatedStore store{32, block};
  TierBatches batches{store, nullptr, nullptr, clock, waker, {}};
  Rows memory;
  HostRegionId region{};
  admin::Mailbox mailbox{waker};
  admin::Observer observer{mailbox, clock};
  admin::Publisher publisher{mailbox, interval};
};

TEST_F(StoreAdmin, publishes_at_once_and_then_every_interval) {
  EXPECT_EQ(seen().number, 1U);
  EXPECT_EQ(publisher.next_deadline(), clock.now() + interval);
  poll();
  EXPECT_EQ(seen().number, 1U);
  clock.advance(interval);
  poll();
  EXPECT_EQ(seen().number, 2U);
  EXPECT_EQ(seen().made, clock.now());
  EXPECT_EQ(publisher.next_deadline(), clock.now() + interval);
}

TEST_F(StoreAdmin, tells_the_counts_of_the_store_and_whether_work_is_under_way) {
  store.held = true;
  put(1, keys_of({1, 2}));
  clock.advance(interval);
  poll();
  ASSERT_TRUE(seen().tier_store.has_value());
  EXPECT_EQ(seen().tier_store->puts, 2U);
  EXPECT_EQ(seen().tier_store->under_way, 2U);
  EXPECT_TRUE(seen().work.under_way);
  store.held = false;
  clock.advance(interval);
  poll();
  EXPECT_EQ(seen().tier_store->stored, 2U);
  EXPECT_EQ(seen().pools.at(0).store->blocks, 2U);
  EXPECT_EQ(seen().io, "memory");
  EXPECT_FALSE(seen().work.under_way);
}

TEST_F(StoreAdmin, tells_the_waits_of_gets) {
  put(1, keys_of({1, 2}));
  poll();
  store.held = true;
  const auto keys = keys_of({1, 2});
  ASSERT_TRUE(batches.submit_get({.id = BatchId{7}, .keys = keys, .region = region, .rows = first_rows}));
  clock.advance(2s);
  poll();
  EXPECT_EQ(seen().waits_now.requests, 1U);
  EXPECT_EQ(seen().waits_now.oldest_seconds, 2.0);
  EXPECT_EQ(seen().waits.loads[Source::storage].requests, 0U) << "a put is none";
  store.held = false;
  clock.advance(interval);
  poll();
  EXPECT_EQ(seen().waits_now.requests, 0U);
  EXPECT_EQ(seen().waits.loads[Source::storage].requests, 1U);
  EXPECT_EQ(seen().waits.loads[Source::storage].seconds, 3.0);
  ASSERT_EQ(seen().slowest.size(), 1U);
  EXPECT_EQ(seen().slowest.front().id, RequestId{7});
  const std::array<std::uint32_t, 2> wrong{0, 99};
  EXPECT_FALSE(batches.submit_get({.id = BatchId{8}, .keys = keys, .region = region, .rows = wrong}));
  EXPECT_EQ(batches.waits().waiting(clock.now()).requests, 0U) << "it was refused";
}

TEST_F(StoreAdmin, tells_why_blocks_had_to_be_computed_and_samples_what_the_engine_needed) {
  std::uint64_t id = 0;
  const auto store_all = [&] {
    for (std::uint32_t first = 0; first < 64; first += 2) {
      put(++id, keys_of({first, first + 1}));
      poll();
    }
  };
  store_all();  // the store has room for 32 blocks, and evicts
  store_all();
  ASSERT_TRUE(batches.clear());
  poll();
  store_all();
  clock.advance(interval);
  poll();
  const MissTotals misses = seen().misses;
  for (const MissReason reason : {MissReason::unknown, MissReason::evicted_storage, MissReason::cleared})
    EXPECT_GT(misses[reason], 0U) << to_string(reason);
  EXPECT_EQ(misses[MissReason::damaged], 0U);
  for (std::uint32_t first = 32; first < 64; first += 2) {
    const auto keys = keys_of({first, first + 1});
    for (const BlockKey& key : keys) store.memory().raw(key)[7] ^= std::byte{1};
    ASSERT_TRUE(batches.submit_get({.id = BatchId{++id}, .keys = keys, .region = region, .rows = first_rows}));
    poll();
  }
  store_all();
  clock.advance(interval);
  poll();
  EXPECT_GT(seen().misses[MissReason::damaged], 0U);
  std::size_t samples = 0;
  for (const admin::Observed& portion : mailbox.observed()) samples += portion.samples.size();
  EXPECT_GT(samples, 0U);
}

TEST_F(StoreAdmin, a_clear_gives_up_all_blocks_and_the_next_question_sees_it) {
  put(1, keys_of({1, 2}));
  poll();
  EXPECT_TRUE(batches.contains(keys_of({1}).front()));
  const auto reply = order(admin::Clear{});
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->status, 202U) << reply->body;
  EXPECT_TRUE(boost::json::parse(reply->body).at("cleared").as_bool());
  EXPECT_TRUE(boost::json::parse(reply->body).at("erasing").as_bool());
  EXPECT_TRUE(seen().erasing);
  EXPECT_FALSE(batches.contains(keys_of({1}).front()));
  EXPECT_EQ(seen().pools.at(0).store->blocks, 0U);
}

TEST_F(StoreAdmin, a_clear_that_spares_storage_or_waits_is_refused) {
  put(1, keys_of({1, 2}));
  poll();
  EXPECT_EQ(order(admin::Clear{{.keep_storage = true}})->status, 400U);
  EXPECT_EQ(order(admin::Clear{{.wait = true}})->status, 400U);
  EXPECT_TRUE(batches.contains(keys_of({1}).front()));
}

TEST_F(StoreAdmin, an_update_is_for_a_store_with_a_shared_one) {
  put(1, keys_of({1, 2}));
  poll();
  EXPECT_EQ(order(admin::Update{.weights_revision = "2"})->status, 400U);
  EXPECT_TRUE(batches.contains(keys_of({1}).front()));
}

TEST_F(StoreAdmin, commands_for_a_cache_change_nothing) {
  using namespace admin;
  for (const Command& command : {Command{Resize{.tier = Tier::storage, .blocks = 4}}, Command{Resume{}}, Command{Pause{}},
                                 Command{Change{}}, Command{StartJob{}}, Command{ChangeJob{}}, Command{StartCapture{}}}) {
    const auto reply = order(command);
    EXPECT_EQ(reply->status, 404U);
    EXPECT_EQ(boost::json::parse(reply->body).at("error").as_string(), store_only);
  }
}

TEST_F(StoreAdmin, the_end_refuses_the_commands_that_wait) {
  std::optional<admin::Reply> reply;
  ASSERT_TRUE(mailbox.post(admin::Clear{}, [&](admin::Reply got) { reply = std::move(got); }).has_value());
  publisher.end();
  EXPECT_EQ(reply->status, 503U);
  EXPECT_EQ(publisher.next_deadline(), never);
  poll();
}

// ---- with a socket -------------------------------------------------------------------------------------------------------

class StoreEndpoint : public ::testing::Test {
 protected:
  [[nodiscard]] std::string listen() const { return "unix:" + (directory.path() / "s").string(); }
  [[nodiscard]] TierStoreOptions options() const {
    TierStoreOptions options;
    options.directories = {directory.path() / "disk"};
    options.capacity = MiB;
    options.block_bytes = block;
    options.io = IoChoice::threads;
    options.admin.listen = listen();
    options.admin.publish_interval = 20ms;
    return options;
  }
  [[nodiscard]] tools::AdminClient client() const {
    return tools::AdminClient{tools::Target{.socket = listen(), .token_file = {}}};
  }
  /// Orders a put of two blocks.
  Result<void> put(TierStore& store) {
    const HostRegionId region = store.register_region(memory.rows()).value();
    return store.submit_put({.id = BatchId{1}, .keys = keys, .region = region, .rows = first_rows});
  }

  /// Runs `work` on a thread of its own. Meanwhile this thread polls when the store asks for it, as an engine does.
  static void while_polling(TierStore& store, const std::function<void()>& work) {
    std::atomic<bool> done{false};
    std::thread thread{[&] {
      work();
      done = true;
    }};
    std::vector<BatchResult> results;
    while (!done) {
      pollfd descriptor{store.wake_fd(), POLLIN, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(store.next_deadline() - std::chrono::steady_clock::now());
      EXPECT_LE(left, 20ms) << "the next snapshot is due";
      (void)::poll(&descriptor, 1, static_cast<int>(std::max(left, 0ms).count()));
      store.poll(results);
    }
    thread.join();
  }

  TemporaryDirectory directory;
  const std::vector<BlockKey> keys = keys_of({1, 2});
  const Rows memory;
};

TEST_F(StoreEndpoint, another_process_watches_and_clears_a_store_that_serves) {
  TierStore store{options()};
  EXPECT_EQ(store.admin_address(), listen());
  ASSERT_TRUE(put(store).has_value());
  while_polling(store, [&] {
    EXPECT_EQ(client().get("/healthz").at("status").as_string(), "ok");
    while (client().get("/v1/status").at("store").at("stored").to_number<int>() < 2) std::this_thread::sleep_for(1ms);
    const boost::json::object status = client().get("/v1/status");
    EXPECT_EQ(status.at("pools").at(0).at("storage").at("blocks").to_number<int>(), 2);
    EXPECT_EQ(status.at("pools").at(0).at("storage").at("state").as_string(), "well");
    EXPECT_EQ(status.at("io").as_string(), store.io());
    EXPECT_TRUE(client().post("/v1/clear").at("cleared").as_bool());
    while (client().get("/v1/status").at("erasing").as_bool()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(client().get("/v1/status").at("pools").at(0).at("storage").at("blocks").to_number<int>(), 0);
  });
  EXPECT_FALSE(store.contains(keys.front()));
  EXPECT_TRUE(store.close(give_up_at()).closed);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "s"));
  EXPECT_THROW((void)client().ask("GET", "/healthz"), tools::Unreachable);
  EXPECT_EQ(store.admin_address(), "");
}

TEST_F(StoreEndpoint, a_store_that_shares_tells_what_it_wrote_to_the_shared_store) {
  TierStoreOptions given = options();
  given.shared = std::make_shared<GatedSharedStore>();
  TierStore store{given};
  ASSERT_TRUE(put(store).has_value());
  while_polling(store, [&] {
    while (client().get("/v1/status").at("store").at("shared_stored").to_number<int>() < 2) std::this_thread::sleep_for(1ms);
    const boost::json::object status = client().get("/v1/status");
    EXPECT_EQ(status.at("shared").at("state").as_string(), "well");
    EXPECT_FALSE(status.at("shared").as_object().contains("cache"));
    tools::run_top({.target = {.socket = listen(), .token_file = {}}, .once = true});
  });
  EXPECT_TRUE(store.close(give_up_at()).closed);
}

TEST_F(StoreEndpoint, an_idle_store_does_what_operators_order_and_keeps_its_results) {
  TierStore store{options()};
  ASSERT_TRUE(put(store).has_value());
  const auto tells = [this](const char* name, int value) {
    return comes_true([&] { return client().get("/v1/status").at("store").at(name).to_number<int>() == value; });
  };
  EXPECT_TRUE(tells("stored", 2)) << "although nobody has polled";
  EXPECT_TRUE(client().post("/v1/clear").at("cleared").as_bool());
  EXPECT_TRUE(comes_true([&] { return !client().get("/v1/status").at("erasing").as_bool(); }));
  std::vector<BatchResult> results;
  EXPECT_EQ(store.poll(results), 1U);
  EXPECT_EQ(results.at(0).succeeded, 2U);
  EXPECT_FALSE(store.contains(keys.front()));
  EXPECT_GT(store.idle_totals().slices.number, 0U);
  EXPECT_TRUE(store.close(give_up_at()).closed);
}

TEST_F(StoreEndpoint, questions_are_answered_and_commands_withdrawn_while_nobody_polls) {
  TierStoreOptions given = options();
  given.admin.command_deadline = 50ms;
  given.idle_service = false;
  TierStore store{given};
  ASSERT_TRUE(put(store).has_value());
  ASSERT_TRUE(store.drain(give_up_at()));
  EXPECT_EQ(client().ask("GET", "/v1/status").status, 200U);
  EXPECT_EQ(client().ask("POST", "/v1/clear").status, 503U);
  std::vector<BatchResult> results;
  store.poll(results);
  EXPECT_TRUE(store.contains(keys.front()));
}

TEST_F(StoreEndpoint, a_store_that_drains_carries_commands_out) {
  TierStoreOptions given = options();
  const auto gated = std::make_shared<GatedStore>(32, block);
  given.store = gated;
  TierStore store{given};
  gated->held = true;
  ASSERT_TRUE(put(store).has_value());
  std::thread operator_thread{[&] {
    EXPECT_TRUE(client().post("/v1/clear").at("cleared").as_bool());
    EXPECT_EQ(client().get("/v1/status").at("store").at("under_way").to_number<int>(), 2);
    gated->held = false;
  }};
  EXPECT_TRUE(store.drain(give_up_at()));
  operator_thread.join();
}

TEST_F(StoreEndpoint, the_program_shows_a_store_and_says_what_is_for_a_cache) {
  const TierStore store{options()};
  const tools::Target target{.socket = listen(), .token_file = {}};
  tools::run_top({.target = target, .once = true});
  tools::run_live_plan(target, false);
  const auto refusal = [](const auto& run) { return refusal_of<tools::UsageError>(run); };
  tools::CaptureArguments capture;
  tools::JobArguments list;
  tools::JobArguments start;
  start.part = tools::JobArguments::Part::start;
  capture.target = list.target = start.target = target;
  const std::vector<std::string> refusals{refusal([&] { return tools::run_capture(capture); }),
                                          refusal([&] { return tools::run_job(list); }),
                                          refusal([&] { return tools::run_job(start); }), refusal([&] {
                                            return tools::run_set({.target = target, .words = {"storage-blocks", "4"}});
                                          }),
                                          refusal([&] {
                                            return tools::run_set({.target = target, .words = {"policy", "lru"}});
                                          })};
  for (const std::string& sentence : refusals) {
    EXPECT_NE(sentence.find("this process has a store only, and no cache"), std::string::npos) << sentence;
  }
}

TEST_F(StoreEndpoint, ends_with_the_store) {
  {
    const TierStore store{options()};
    EXPECT_TRUE(std::filesystem::exists(directory.path() / "s"));
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "s"));
}

TEST_F(StoreEndpoint, wrong_options_are_refused_and_leave_nothing_behind) {
  for (const char* listen : {"tcp:127.0.0.1:0", "tcp:0.0.0.0:80", "nonsense", "unix:/no/such/folder/s"}) {
    TierStoreOptions wrong = options();
    wrong.admin.listen = listen;
    EXPECT_ANY_THROW(TierStore{wrong}) << listen;
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "disk"));
  TierStoreOptions wrong = options();
  wrong.directories.clear();
  EXPECT_THROW(TierStore{wrong}, std::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "s"));
}

TEST_F(StoreEndpoint, a_store_without_one_has_no_deadline_for_it) {
  TierStoreOptions none = options();
  none.admin = {};
  const TierStore store{none};
  EXPECT_EQ(store.admin_address(), "");
  EXPECT_EQ(store.next_deadline(), never);
}

}  // namespace
}  // namespace terrace::test
