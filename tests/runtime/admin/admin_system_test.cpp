// The endpoint of a CacheSystem, as an engine has it: real threads, real sockets, requests that are served meanwhile.

#include "terrace/async_cache.hpp"
#include "terrace/config.hpp"
#include "terrace/options.hpp"
#include "terrace/system.hpp"
#include "tests/patience.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/live/client.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

namespace json = boost::json;

CacheSystemOptions options_with(const std::string& listen) {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = KiB * 4, .device_blocks = 64, .host_blocks = 256}};
  options.ranks[0].device = EmulatedGpu{};
  options.storage = MemoryStorage{.capacity = MiB * 4};
  options.write_policy = WritePolicy::none;
  options.memory_limits = nullptr;
  options.admin.listen = listen;
  options.admin.publish_interval = std::chrono::milliseconds{20};
  options.admin.block_tokens = 16;
  return options;
}

/// An engine that serves one request after the other, until the test ends it.
class Engine {
 public:
  explicit Engine(CacheSystem& system) : cache_{system.cache()} {
    thread_ = std::thread{[this] { serve(); }};
  }
  ~Engine() { end(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void end() {
    if (!thread_.joinable()) return;
    end_ = true;
    thread_.join();
  }
  [[nodiscard]] unsigned served() const { return served_; }
  /// Waits until further requests have been served.
  void serve_more(unsigned requests) const {
    const unsigned wanted = served_ + requests;
    while (served_ < wanted) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }

 private:
  void serve() {
    for (unsigned n = 0; !end_; ++n) {
      const unsigned first = n % 50 * 10;
      const std::vector<BlockKey> keys = keys_of({first + 1, first + 2, first + 3, first + 4});
      Result<Lease> lease = cache_.acquire(request_for(n + 1, keys));
      while (lease && !end_ && cache_.state(*lease) == RequestState::waiting) cache_.poll();
      if (lease && cache_.state(*lease) == RequestState::ready) {
        (void)cache_.commit(*lease, keys, Fence{});
        ++served_;
      }
      if (lease) cache_.release(std::move(*lease), Fence{});
      cache_.poll();
    }
  }

  Cache& cache_;
  std::atomic<bool> end_{false};
  std::atomic<unsigned> served_{0};
  std::thread thread_;
};

class AdminSystem : public ::testing::Test {
 protected:
  [[nodiscard]] std::string listen() const { return "unix:" + (directory.path() / "s").string(); }
  TemporaryDirectory directory;
};

TEST_F(AdminSystem, a_client_clears_pauses_and_resumes_a_serving_cache) {
  CacheSystem system{options_with(listen())};
  EXPECT_EQ(system.admin_address(), listen());
  Engine engine{system};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  EXPECT_EQ(client.get("/healthz").at("status").as_string(), "ok");
  while (client.get("/v1/status").at("requests").at("asked").to_number<std::uint64_t>() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});  // until the next snapshot
  }
  EXPECT_TRUE(client.post("/v1/clear").at("cleared").as_bool());
  engine.serve_more(10);
  EXPECT_TRUE(client.post("/v1/pause").at("transfers_paused").as_bool());
  EXPECT_TRUE(client.get("/v1/status").at("transfers_paused").as_bool());
  EXPECT_EQ(client.get("/healthz").at("status").as_string(), "degraded");
  EXPECT_FALSE(client.post("/v1/unpause").at("transfers_paused").as_bool());
  engine.serve_more(100);
  (void)client.post("/v1/clear", {{"wait", true}});
  EXPECT_NE(client.get("/v1/status").at("cache").as_string(), "normal");
  for (bool resumed = false; !resumed;) {
    try {
      resumed = client.post("/v1/resume").at("status").as_string() == "normal";
    } catch (const std::runtime_error&) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});  // some of the blocks are still in use
    }
  }
  engine.serve_more(100);
}

TEST_F(AdminSystem, a_job_brings_everything_to_the_shared_store) {
  CacheSystemOptions options = options_with(listen());
  options.shared =
      SharedStorage{.url = "memory:", .prefix = directory.path().filename().string(), .write_policy = WritePolicy::none};
  CacheSystem system{options};
  Engine engine{system};
  engine.serve_more(100);
  engine.end();
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  std::thread loop{[&] {
    Cache& cache = system.cache();
    while (cache.write_backs().empty() || !cache.write_backs().front().ended()) (void)cache.poll();
  }};
  json::object job = client.post("/v1/jobs", {{"target", "shared"}});
  loop.join();
  EXPECT_EQ(job.at("target").as_string(), "shared");
  const WriteBackProgress ended = system.cache().write_backs().front();
  EXPECT_GT(ended.of(WriteBackOutcome::stored), 100U);
  EXPECT_EQ(ended.of(WriteBackOutcome::stored), system.shared()->stat().writes);
}

TEST_F(AdminSystem, a_cache_with_a_shared_store_tells_what_it_asked_for_and_what_it_wrote_there) {
  CacheSystemOptions options = options_with(listen());
  options.shared.emplace();
  options.shared->url = "memory:admin_system_test";
  options.shared->write_policy = WritePolicy::write_through;
  CacheSystem system{options};
  Engine engine{system};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  json::value shared;
  const auto tells_all = [&] {
    shared = client.get("/v1/status").at("shared");
    return shared.at("cache").at("asked").to_number<std::uint64_t>() > 0 &&
           shared.at("store").at("writes").to_number<std::uint64_t>() > 0;
  };
  EXPECT_TRUE(comes_true(tells_all)) << json::serialize(shared);
  EXPECT_EQ(shared.at("state").as_string(), "well");
  EXPECT_EQ(client.get("/healthz").at("status").as_string(), "ok");
}

TEST_F(AdminSystem, a_client_clears_everything_and_names_the_new_weights) {
  CacheSystemOptions options = options_with(listen());
  options.write_policy = WritePolicy::write_through;
  options.shared =
      SharedStorage{.url = "memory:", .prefix = directory.path().filename().string(), .write_policy = WritePolicy::write_through};
  options.shared->weights_revision = "1";
  CacheSystem system{options};
  Engine engine{system};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  const auto shared = [&](const char* count) {
    return client.get("/v1/status").at("shared").at("cache").at(count).to_number<std::uint64_t>();
  };
  while (shared("written") == 0) engine.serve_more(1);
  EXPECT_TRUE(client.post("/v1/clear").at("shared_off").as_bool());
  const json::object off = client.get("/healthz");
  EXPECT_EQ(off.at("status").as_string(), "degraded");
  EXPECT_NE(json::serialize(off).find("the shared store is not used since the cache was cleared"), std::string::npos);
  EXPECT_TRUE(client.get("/v1/status").at("shared").at("off").as_bool());
  EXPECT_NE(client.ask("GET", "/metrics").text.find("terrace_shared_off 1"), std::string::npos);
  const std::uint64_t written = shared("written");
  const std::uint64_t asked = shared("asked");
  engine.serve_more(100);
  EXPECT_EQ(shared("asked"), asked);

  EXPECT_EQ(client.ask("POST", "/v1/update").status, 400U);
  (void)client.post("/v1/pause");
  EXPECT_EQ(client.ask("POST", "/v1/update", R"({"weights-revision": "2"})").status, 409U);
  (void)client.post("/v1/unpause");
  EXPECT_FALSE(client.post("/v1/update", {{"weights-revision", "2"}}).at("shared_off").as_bool());
  EXPECT_EQ(client.get("/healthz").at("status").as_string(), "ok");
  while (shared("written") == written) engine.serve_more(1);
  EXPECT_EQ(shared("there"), 0U) << "what is there under revision 1 is not asked for";
}

TEST_F(AdminSystem, an_update_needs_a_shared_store) {
  CacheSystem system{options_with(listen())};
  Engine engine{system};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  EXPECT_EQ(client.ask("POST", "/v1/update", R"({"weights-revision": "2"})").status, 400U);
}

TEST_F(AdminSystem, requests_are_recorded_and_traced_while_they_are_served) {
  CacheSystem system{options_with(listen())};
  Engine engine{system};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  EXPECT_EQ(client.ask("GET", "/v1/trace").status, 404U);
  for (const std::string kind : {"trace", "record"}) (void)client.post("/v1/" + kind, {{"time", "1h"}});
  EXPECT_EQ(client.ask("GET", "/v1/record").status, 409U);
  engine.serve_more(50);
  for (const std::string kind : {"trace", "record"}) (void)client.post("/v1/" + kind, {{"time", "0s"}});
  const std::string recorded = client.ask("GET", "/v1/record").text;
  EXPECT_GE(std::ranges::count(recorded, '\n'), 49) << recorded;
  const json::value first = json::parse(recorded.substr(0, recorded.find('\n')));
  EXPECT_EQ(first.at("input_length").to_number<std::size_t>(), 16 * first.at("hash_ids").as_array().size());
  EXPECT_GT(first.at("hash_ids").as_array().size(), 0U);
  EXPECT_GE(json::parse(client.ask("GET", "/v1/trace").text).at("traceEvents").as_array().size(), 200U);
  EXPECT_GT(client.get("/v1/status").at("reuse").at("asked_blocks").to_number<double>(), 0);
}

TEST_F(AdminSystem, sizes_change_while_requests_are_served) {
  CacheSystem system{options_with(listen())};
  Engine engine{system};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  for (const auto& [tier, blocks] : {std::pair{"host", 32}, std::pair{"host", 2048}, std::pair{"device", 16},
                                     std::pair{"storage", 64}, std::pair{"device", 64}}) {
    EXPECT_EQ(client.post("/v1/resize", {{"tier", tier}, {"blocks", blocks}}).at("blocks").to_number<int>(), blocks);
    engine.serve_more(20);
  }
  (void)client.post("/v1/settings", {{"write-policy", "write-through"}});
  engine.serve_more(100);
  const json::object job = client.post("/v1/jobs", {{"scope", "all"}});
  const std::string path = "/v1/jobs/" + json::serialize(job.at("id"));
  while (client.get(path).at("state").as_string() == "running") std::this_thread::sleep_for(std::chrono::milliseconds{1});
  EXPECT_EQ(client.get(path).at("state").as_string(), "done");
  EXPECT_THROW((void)client.post("/v1/resize", {{"tier", "device"}, {"blocks", 65}}), std::runtime_error);
  engine.end();
  EXPECT_EQ(system.cache().usage(Tier::host).blocks, 2048U);
}

TEST_F(AdminSystem, commands_reach_an_event_loop_that_sleeps) {
  CacheSystem system{options_with(listen())};
  boost::asio::io_context io;
  AsyncCache cache{io.get_executor(), system.cache()};
  std::thread loop{[&] {
    const auto work = boost::asio::make_work_guard(io);
    io.run();
  }};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  EXPECT_EQ(client.post("/v1/resize", {{"tier", "host"}, {"blocks", 100}}).at("blocks").to_number<int>(), 100);
  EXPECT_EQ(client.get("/v1/status").at("pools").as_array()[0].at("host").at("wanted").to_number<int>(), 100);
  std::atomic<bool> stopped{false};
  cache.stop(give_up_at(), [&](auto&&...) {
    stopped = true;
    io.stop();
  });
  loop.join();
  EXPECT_TRUE(stopped);
}

TEST_F(AdminSystem, a_close_ends_the_endpoint) {
  CacheSystem system{options_with(listen())};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  EXPECT_EQ(client.ask("GET", "/healthz").status, 200U);
  EXPECT_TRUE(system.close(give_up_at()).closed);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "s"));
  EXPECT_THROW((void)client.ask("GET", "/healthz"), tools::Unreachable);
}

TEST_F(AdminSystem, wrong_options_are_refused_before_anything_is_set_up) {
  for (const char* listen : {"tcp:127.0.0.1:0", "tcp:0.0.0.0:80", "nonsense", "unix:/no/such/folder/s"}) {
    EXPECT_ANY_THROW(CacheSystem{options_with(listen)}) << listen;
  }
  const CacheSystem first{options_with(listen())};
  EXPECT_THROW(CacheSystem{options_with(listen())}, std::runtime_error) << "the socket of a living process";
}

TEST_F(AdminSystem, the_configuration_is_told_with_its_origins) {
  Config config;
  config.read_text("[storage]\nwhere = \"memory:\"\ncapacity = \"1MiB\"\n[admin]\nlisten = \"" + listen() + "\"\n", "t.toml");
  config.set("--host-blocks", "64");
  CacheSystemOptions options = config.options();
  options.memory_limits = nullptr;
  const CacheSystem system{options};
  const tools::AdminClient client{tools::Target{.socket = listen(), .token_file = {}}};
  const json::object told = client.get("/v1/config");
  bool found = false;
  for (const json::value& value : told.at("start").as_array()) {
    if (value.at("name").as_string() != "storage.capacity") continue;
    found = true;
    EXPECT_EQ(value.at("value").as_string(), "1MiB");
    EXPECT_EQ(value.at("origin").as_string(), "t.toml:3");
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(told.at("now").at("write-policy").as_string(), "write-through");
}

}  // namespace
}  // namespace terrace::test
