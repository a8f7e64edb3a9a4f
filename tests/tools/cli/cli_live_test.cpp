// `terrace top`, `why`, `set`, `job`, `clear`, `update`, `pause` and `resume` on a replay that serves.
#include "base/descriptor.hpp"
#include "tests/patience.hpp"
#include "tests/tools/cli/program.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

/// A replay with an endpoint. It has served two requests and waits for the next one, for a long time.
class LiveCommands : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    serve({"0", "0", "1e12"});
    ASSERT_TRUE(served->wait_for("2 requests  hits"));
    while (status().at("requests").as_object().at("requests").to_number<int>() < 2) {
    }
  }
  /// Starts a replay with a request at each of these times, in milliseconds.
  void serve(const std::vector<std::string>& timestamps, const Words& more = {}) {
    std::string lines;
    for (const std::string& timestamp : timestamps) {
      lines += R"({"timestamp": )" + timestamp +
               R"(, "input_length": 2048, "output_length": 1, "hash_ids": [1, 2, 3, 4]})"
               "\n";
    }
    const std::string trace = directory.write("t.jsonl", lines).string();
    const std::string storage = "file:" + (directory.path() / "storage").string();
    Words words{
        trace,  "--speed",          "1",   "--mode",    GetParam(),        "--block-bytes",      "4KiB", "--device-blocks",
        "64",   "--host-blocks",    "128", "--storage", storage,           "--storage-capacity", "4MiB", "--write-policy",
        "none", "--admin-interval", "1ms", "--admin",   "unix:" + socket()};
    words.insert(words.end(), more.begin(), more.end());
    served = std::make_unique<OnTerminal>(replay_words(words));
    ASSERT_TRUE(served->wait_for("operators reach this run at"));
  }
  void TearDown() override {
    if (!served) return;
    served->signal(SIGINT);
    EXPECT_EQ(served->wait().status, 130);
    EXPECT_EQ(run(with_socket({"top", "--once"})).status, 3) << "the process has ended";
  }

  [[nodiscard]] std::string socket() const { return (directory.path() / "s").string(); }
  [[nodiscard]] Words with_socket(Words words) const {
    words.insert(words.end(), {"--socket", socket()});
    return program(words);
  }
  /// From a snapshot, which may be a millisecond old.
  [[nodiscard]] boost::json::object status() const {
    return boost::json::parse(run(with_socket({"top", "--once", "--json"})).out).as_object();
  }

  TemporaryDirectory directory;
  std::unique_ptr<OnTerminal> served;
};
INSTANTIATE_TEST_SUITE_P(Modes, LiveCommands, testing::Values("confined", "loop"), [](const auto& row) { return row.param; });

TEST_P(LiveCommands, top_shows_one_screen_of_80_columns) {
  const Ended screen = run(with_socket({"top", "--once"}));
  EXPECT_EQ(screen.status, 0) << screen.err;
  EXPECT_LE(width(screen.out), 80U) << screen.out;
  for (const char* shown : {"TIER", "device", "host", "storage", "REQUESTS", "2 ready", "MOVING", "STORAGE"}) {
    EXPECT_NE(screen.out.find(shown), std::string::npos) << shown << "\n" << screen.out;
  }
  EXPECT_EQ(status().at("requests").as_object().at("asked").to_number<int>(), 4096);
}

TEST_P(LiveCommands, set_changes_sizes_and_settings) {
  const Ended set = run(with_socket({"set", "host-blocks", "50", "device-blocks", "32", "storage-capacity", "2MiB",
                                     "write-policy", "write-back", "host.high-watermark", "20%"}));
  EXPECT_EQ(set.status, 0) << set.err;
  EXPECT_EQ(set.out,
            "host: 50 blocks (200KiB)\ndevice: 32 blocks (128KiB)\nstorage: 512 blocks (2MiB)\nwrite-policy: write-back\n"
            "host.high-watermark: 0.2\n");
  const boost::json::object now = status();
  const boost::json::value& pool = now.at("pools").as_array().front();
  EXPECT_EQ(pool.at("host").at("blocks").to_number<int>(), 50);
  EXPECT_EQ(pool.at("device").at("blocks").to_number<int>(), 32);
  EXPECT_EQ(pool.at("storage").at("capacity_blocks").to_number<int>(), 512);
  EXPECT_EQ(now.at("settings").at("write-policy").as_string(), "write-back");
}

TEST_P(LiveCommands, set_refuses_what_does_not_fit_and_what_is_wrong) {
  const Ended too_large = run(with_socket({"set", "host-capacity", "900TiB"}));
  expect_refusal(too_large, 3);
  EXPECT_NE(too_large.err.find("the largest size that fits is"), std::string::npos) << too_large.err;
  const std::vector<std::pair<Words, std::string>> wrong{
      {{"set", "host-capacty", "1GiB"}, "did you mean host-capacity?"},
      {{"set", "host-capacity"}, "host-capacity: its value is missing"},
      {{"set", "host-capacity", "8GB"}, "8GB"},
      {{"set", "write-policy", "sometimes"}, "write-policy"},
      {{"set", "host-blocks", "5", "--pool", "7"}, "there is no pool 7"},
      {{"job", "watch", "7"}, "there is no such job"},
      {{"job", "start", "--to", "shared"}, "this cache has no shared store"},
      {{"job", "start", "--scope", "some"}, "one of all, request, prefix, tenant, idle"},
  };
  for (const auto& [words, sentence] : wrong) {
    const Ended refused = run(with_socket(words));
    EXPECT_EQ(refused.status, 2) << sentence;
    EXPECT_TRUE(is_one_line(refused.err)) << refused.err;
    EXPECT_NE(refused.err.find(sentence), std::string::npos) << refused.err;
  }
  EXPECT_EQ(status().at("pools").as_array().front().at("host").at("blocks").to_number<int>(), 128);
}

TEST_P(LiveCommands, storage_that_cannot_grow_says_why_and_grows_when_it_can) {
  rlimit before{};
  ASSERT_EQ(::prlimit(served->pid(), RLIMIT_FSIZE, nullptr, &before), 0);
  const rlimit no_growth{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::prlimit(served->pid(), RLIMIT_FSIZE, &no_growth, nullptr), 0);
  const Ended stopped = run(with_socket({"set", "storage-capacity", "64MiB"}));
  expect_refusal(stopped, 3);
  EXPECT_NE(stopped.err.find("the storage tier stopped at "), std::string::npos) << stopped.err;
  EXPECT_NE(run(with_socket({"top", "--once"})).out.find("storage stopped growing at "), std::string::npos);

  ASSERT_EQ(::prlimit(served->pid(), RLIMIT_FSIZE, &before, nullptr), 0);
  const Ended grown = run(with_socket({"set", "storage-capacity", "64MiB"}));
  EXPECT_EQ(grown.status, 0) << grown.err;
  EXPECT_EQ(run(with_socket({"top", "--once"})).out.find("storage stopped growing"), std::string::npos);
}

TEST_P(LiveCommands, clear_pause_and_resume) {
  ASSERT_EQ(run(with_socket({"job", "start", "--watch"})).status, 0);
  const Ended kept = run(with_socket({"clear", "--keep-storage"}));
  EXPECT_EQ(kept.status, 0) << kept.err;
  EXPECT_EQ(kept.out, "cleared\n");
  const auto stored = [&] { return status().at("pools").at(0).at("storage").at("blocks").to_number<int>(); };
  EXPECT_EQ(stored(), 4);
  const Ended paused = run(with_socket({"pause"}));
  EXPECT_EQ(paused.status, 0) << paused.err;
  EXPECT_TRUE(status().at("transfers_paused").as_bool());
  const Ended waits = run(with_socket({"clear"}));
  EXPECT_EQ(waits.status, 3) << "what is stored cannot be removed now";
  EXPECT_NE(waits.err.find("transfers are paused"), std::string::npos) << waits.err;
  EXPECT_EQ(run(with_socket({"resume"})).out, "resumed\n");
  EXPECT_EQ(run(with_socket({"resume"})).out, "nothing was paused\n");
  const Ended cleared = run(with_socket({"clear", "--until-resumed"}));
  EXPECT_EQ(cleared.status, 0) << cleared.err;
  EXPECT_EQ(cleared.out, "cleared; nothing is served until terrace resume\n");
  EXPECT_EQ(stored(), 0);
  EXPECT_EQ(status().at("cache").as_string(), "cleared");
  EXPECT_NE(run(with_socket({"top", "--once"})).out.find("the cache is cleared, and serves nothing"), std::string::npos);
  EXPECT_EQ(run(with_socket({"resume"})).status, 0);
  EXPECT_EQ(status().at("cache").as_string(), "normal");
  EXPECT_EQ(run(with_socket({"update", "2"})).status, 2) << "there is no shared store";
}

TEST_P(LiveCommands, a_job_is_started_watched_and_listed) {
  const Ended job = run(with_socket({"job", "start", "--watch", "--json"}));
  EXPECT_EQ(job.status, 0) << job.err;
  const boost::json::value result = boost::json::parse(job.out);
  EXPECT_EQ(result.at("state").as_string(), "done");
  EXPECT_EQ(result.at("blocks").at("stored").to_number<int>(), 4);
  EXPECT_EQ(result.at("durable_bytes").to_number<int>(), 4 * 4096);
  EXPECT_NE(run(with_socket({"job", "list"})).out.find("job 1 (all) is done: 4 stored"), std::string::npos);
  const Ended results = run(with_socket({"job", "results", "1"}));
  EXPECT_EQ(std::ranges::count(results.out, '\n'), 4) << results.out;
  EXPECT_EQ(run(with_socket({"job", "cancel", "1"})).status, 3);
}

TEST_P(LiveCommands, why_tells_what_happened_in_the_last_minutes) {
  const auto history = [&] { return boost::json::parse(run(with_socket({"why", "--json"})).out).at("minutes").as_array(); };
  ASSERT_TRUE(comes_true([&] { return !history().empty(); })) << "changes are told from the first look on";
  ASSERT_EQ(run(with_socket({"set", "write-policy", "write-back"})).status, 0);
  Ended why;
  ASSERT_TRUE(comes_true([&] {
    why = run(with_socket({"why"}));
    return why.out.find("write-policy: write-back, before none") != std::string::npos;
  })) << why.out;
  EXPECT_EQ(why.status, 0) << why.err;
  EXPECT_NE(why.out.find("command /v1/settings: done"), std::string::npos) << why.out;
  EXPECT_NE(why.out.find("requests did not wait"), std::string::npos) << why.out;
  EXPECT_LE(width(why.out), 80U) << why.out;
  EXPECT_TRUE(history().front().at("waits").as_object().contains("at_once"));
  EXPECT_EQ(run(with_socket({"why", "--at", "00:00", "--json"})).status, 0);
  for (const char* const wrong : {"14", "24:00", "12:60", "1:2:3", "ab:cd"}) {
    const Ended refused = run(with_socket({"why", "--at", wrong}));
    EXPECT_EQ(refused.status, 2) << wrong;
    EXPECT_NE(refused.err.find("is not a time of the day"), std::string::npos) << refused.err;
  }
}

TEST_P(LiveCommands, a_trace_and_a_recording_are_captured_and_written) {
  const std::string trace = (directory.path() / "trace.json").string();
  const Ended traced = run(with_socket({"trace", "--time", "50ms", "--out", trace}));
  EXPECT_EQ(traced.status, 0) << traced.err;
  EXPECT_NE(traced.out.find("spans"), std::string::npos);
  EXPECT_GT(boost::json::parse(read_file(trace)).at("traceEvents").as_array().size(), 2U);
  const Ended again = run(with_socket({"trace", "--time", "50ms", "--out", trace}));
  EXPECT_EQ(again.status, 2);
  EXPECT_NE(again.err.find("exists; give another file"), std::string::npos) << again.err;
  const Ended recorded = run(with_socket({"record", "--time", "50ms"}));
  EXPECT_EQ(recorded.status, 0) << recorded.err;
  EXPECT_EQ(recorded.out, "") << "no request came";
  EXPECT_EQ(run(with_socket({"record", "--time", "0s"})).status, 2);
  EXPECT_EQ(run(with_socket({"record", "--time", "2h"})).status, 2);
}

TEST_P(LiveCommands, ctrl_c_ends_a_capture_early_and_keeps_it) {
  const std::string trace = (directory.path() / "trace.json").string();
  OnTerminal tracing{with_socket({"trace", "--time", "1h", "--out", trace})};
  ASSERT_TRUE(tracing.wait_for("spans"));
  const Ended second = run(with_socket({"trace", "--time", "1s"}));
  EXPECT_EQ(second.status, 3);
  EXPECT_NE(second.err.find("another trace goes on"), std::string::npos) << second.err;
  tracing.signal(SIGINT);
  EXPECT_EQ(tracing.wait().status, 0);
  EXPECT_NO_THROW((void)boost::json::parse(read_file(trace)));
}

TEST_P(LiveCommands, plan_shows_what_other_sizes_would_have_brought) {
  Ended plan;
  ASSERT_TRUE(comes_true([&] {
    plan = run(with_socket({"plan"}));
    return plan.out.find("nothing was measured yet") == std::string::npos;
  }));
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_LE(width(plan.out), 80U) << plan.out;
  EXPECT_NE(plan.out.find("samples of 8 blocks"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("host         512KiB        128"), std::string::npos) << plan.out;
  const boost::json::value reuse = boost::json::parse(run(with_socket({"plan", "--json"})).out);
  EXPECT_EQ(reuse.at("tiers").as_array().front().at("lru_hit_ratio").at("same").to_number<double>(), 0.5);
}

/// A replay that serves a request every 20 ms, for long enough.
class LiveService : public LiveCommands {
 protected:
  void SetUp() override {
    std::vector<std::string> timestamps;
    for (int at = 0; at < 600'000; at += 20) timestamps.push_back(std::to_string(at));
    serve(timestamps, {"--shared", "memory:", "--shared-write-policy", "write-through"});
    serve_more(1);
  }
  [[nodiscard]] std::uint64_t count(const char* group, const char* name) const {
    return status().at(group).as_object().at(name).to_number<std::uint64_t>();
  }
  void serve_more(std::uint64_t requests) const {
    const std::uint64_t wanted = count("requests", "requests") + requests;
    while (count("requests", "requests") < wanted) {
    }
  }
  [[nodiscard]] bool is_shared_off() const { return status().at("shared").at("off").as_bool(); }
};
INSTANTIATE_TEST_SUITE_P(Modes, LiveService, testing::Values("confined", "loop"), [](const auto& row) { return row.param; });

TEST_P(LiveService, requests_that_come_during_a_clear_are_served_when_it_is_resumed) {
  ASSERT_EQ(run(with_socket({"clear", "--release-host"})).status, 0);
  while (count("blocks", "refused_paused") == 0) {
  }
  const Ended resumed = run(with_socket({"resume"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  serve_more(3);
}

TEST_P(LiveService, an_update_names_the_weights_and_the_shared_store_is_used_again) {
  const Ended cleared = run(with_socket({"clear"}));
  EXPECT_EQ(cleared.status, 0) << cleared.err;
  EXPECT_NE(cleared.out.find("until terrace update names the weights"), std::string::npos) << cleared.out;
  EXPECT_TRUE(is_shared_off());
  EXPECT_NE(run(with_socket({"top", "--once"})).out.find("SHARED   OFF since a clear"), std::string::npos);
  const Ended updated = run(with_socket({"update", "2"}));
  EXPECT_EQ(updated.status, 0) << updated.err;
  EXPECT_EQ(updated.out, "cleared\n");
  EXPECT_FALSE(is_shared_off());
  serve_more(3);
}

/// With exclusive copies, a reference run takes and gives slots of its own, and waits for each copy.
TEST(LiveReference, goes_on_when_an_operator_clears_and_pauses_the_cache) {
  const TemporaryDirectory directory;
  const std::string socket = (directory.path() / "s").string();
  const auto order = [&](Words words) {
    words.insert(words.end(), {"--socket", socket});
    return run(program(words));
  };
  // Its storage is slow, so that it waits most of the time.
  const std::string storage = "file:" + (directory.path() / "storage").string();
  const std::string listen = "unix:" + socket;
  const Words words{"--reference",
                    "--inclusion",
                    "exclusive",
                    "--requests",
                    "1000000000",
                    "--block-bytes",
                    "64KiB",
                    "--device-blocks",
                    "64",
                    "--host-blocks",
                    "64",
                    "--storage",
                    storage,
                    "--storage-capacity",
                    "64MiB",
                    "--storage-bandwidth",
                    "100MiB/s",
                    "--write-policy",
                    "write-through",
                    "--admin-interval",
                    "1ms",
                    "--admin",
                    listen};
  OnTerminal served{replay_words(words)};
  ASSERT_TRUE(served.wait_for("operators reach this run at"));
  const auto requests = [&] {
    const boost::json::value status = boost::json::parse(order({"top", "--once", "--json"}).out);
    return status.at("requests").at("requests").to_number<std::uint64_t>();
  };
  for (int round = 0; round < 3; ++round) {
    for (const Words& command :
         {Words{"clear"}, Words{"clear", "--until-resumed"}, Words{"resume"}, Words{"pause"}, Words{"resume"}}) {
      const Ended done = order(command);
      ASSERT_EQ(done.status, 0) << command.front() << ": " << done.err;
    }
    const std::uint64_t before = requests();
    ASSERT_TRUE(comes_true([&] { return requests() > before + 2; })) << "round " << round;
  }
  served.signal(SIGINT);
  EXPECT_EQ(served.wait().status, 130);
}

TEST_P(LiveCommands, a_replay_ends_well_although_the_cache_is_cleared_and_can_make_no_checkpoint) {
  served->signal(SIGINT);
  EXPECT_EQ(served->wait().status, 130);
  served.reset();
  serve({"0", "1e12"}, {"--checkpoint", "10s"});
  ASSERT_TRUE(served->wait_for("1 requests  hits"));
  ASSERT_EQ(run(with_socket({"clear", "--until-resumed"})).status, 0);
  served->signal(SIGINT);
  const Ended ended = served->wait();
  served.reset();
  EXPECT_EQ(ended.status, 3);
  EXPECT_NE(ended.err.find("no checkpoint was made: "), std::string::npos) << ended.err;
}

/// A listening socket that accepts nothing.
class Hanging {
 public:
  enum class Full : bool { no, yes };
  /// Full: it has no room left for those who wait.
  explicit Hanging(const std::string& path, Full full = Full::no) {
    std::strncpy(name_.sun_path, path.c_str(), sizeof name_.sun_path - 1);
    (void)::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&name_), sizeof name_);
    (void)::listen(listening_.get(), 1);
    while (full == Full::yes) {
      Descriptor waiting{::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
      if (::connect(waiting.get(), reinterpret_cast<const sockaddr*>(&name_), sizeof name_) != 0) break;
      waiting_.push_back(std::move(waiting));
    }
  }

 private:
  Descriptor listening_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un name_{.sun_family = AF_UNIX, .sun_path = {}};
  std::vector<Descriptor> waiting_;
};

TEST(LiveCommandsAlone, do_not_wait_long_for_a_process_that_accepts_nothing) {
  const TemporaryDirectory directory;
  const std::map<std::string, std::string> environment{{"XDG_RUNTIME_DIR", directory.path().string()}};
  ASSERT_TRUE(std::filesystem::create_directory(directory.path() / "terrace"));
  const Hanging hanging{(directory.path() / "terrace" / "x.sock").string(), Hanging::Full::yes};
  const Ended top = run(program({"top", "--once"}), environment);
  expect_refusal(top, 3);
  EXPECT_NE(top.err.find("x.sock: the process accepts no connection"), std::string::npos) << top.err;
}

TEST(LiveCommandsAlone, trust_no_folder_in_which_others_write) {
  const TemporaryDirectory directory;
  const std::map<std::string, std::string> environment{{"XDG_RUNTIME_DIR", directory.path().string()}};
  const std::string folder = (directory.path() / "terrace").string();
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  const Hanging forged{folder + "/x.sock"};
  const Ended top = run(program({"top", "--once"}), environment);
  EXPECT_EQ(top.status, 2);
  EXPECT_NE(top.err.find("is one in which other users can write: nothing in it is trusted"), std::string::npos) << top.err;
  const Ended start = run(replay_words({"--requests", "1", "--admin", "unix:"}), environment);
  EXPECT_EQ(start.status, 2);
  EXPECT_NE(start.err.find("name a socket in another folder (unix:PATH)"), std::string::npos) << start.err;
}

TEST(LiveCommandsAlone, ask_no_process_of_another_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
  const TemporaryDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 0777), 0);
  const std::string path = (directory.path() / "s").string();
  const pid_t listener = ::fork();
  if (listener == 0) {
    if (::setgid(65533) != 0 || ::setuid(65533) != 0) ::_exit(1);
    const Hanging other{path};
    (void)::chmod(path.c_str(), 0777);
    ::pause();
    ::_exit(0);
  }
  ASSERT_TRUE(comes_true([&] {
    return std::filesystem::exists(path) && (std::filesystem::status(path).permissions() == std::filesystem::perms::all);
  }));
  Words words{"setpriv", "--reuid", "65532", "--regid", "65532", "--clear-groups"};
  for (const std::string& word : program({"top", "--once", "--socket", path})) words.push_back(word);
  const Ended top = run_in_shell("exec \"$@\"", words);
  ::kill(listener, SIGKILL);
  ::waitpid(listener, nullptr, 0);
  EXPECT_EQ(top.status, 2) << top.err;
  EXPECT_NE(top.err.find("belongs to user 65533, so it is not asked"), std::string::npos) << top.err;
}

TEST(LiveCommandsAlone, say_that_nobody_listens) {
  const TemporaryDirectory directory;
  const std::map<std::string, std::string> environment{{"XDG_RUNTIME_DIR", directory.path().string()}};
  const Ended none = run(program({"top", "--once"}), environment);
  expect_refusal(none);
  EXPECT_NE(none.err.find("no process listens in"), std::string::npos) << none.err;
  const Ended gone = run(program({"top", "--once", "--socket", (directory.path() / "no").string()}));
  EXPECT_EQ(gone.status, 3);
  EXPECT_NE(gone.err.find("no process listens there"), std::string::npos) << gone.err;
  EXPECT_EQ(run(program({"top", "--once", "--socket", "tcp:example.org:80"})).status, 2);
}

}  // namespace
}  // namespace terrace::test
