// `terrace config`, and `terrace replay --config`.
#include "tests/tools/cli/program.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace terrace::test {
namespace {

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream{path} << text; }
std::string read(const std::filesystem::path& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

TEST(ConfigCommand, init_writes_a_file_that_check_accepts_and_that_changes_nothing) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "terrace.toml").string();
  EXPECT_EQ(run(program({"config", "init", file})).status, 0);
  const Ended checked = run(program({"config", "check", file}));
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_EQ(checked.out, file + ": correct\n");
  const Ended with_file = run(program({"config", "show", "--config", file}));
  EXPECT_EQ(with_file.status, 0) << with_file.err;
  EXPECT_EQ(with_file.out, run(program({"config", "show"})).out);
}

TEST(ConfigCommand, init_never_overwrites_unless_it_is_told_to) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "terrace.toml").string();
  write(file, "mine");
  const Ended refused = run(program({"config", "init", file}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.err, "terrace config: " + file + ": exists; --force replaces it\n");
  EXPECT_EQ(read(file), "mine");
  EXPECT_EQ(run(program({"config", "init", file, "--force"})).status, 0);
  EXPECT_EQ(read(file), run(program({"config", "init", "-"})).out);
  // Nothing else is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{directory.path()}, {}), 1);
  const std::string pipe = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Ended kept = run(program({"config", "init", pipe, "--force"}));
  EXPECT_EQ(kept.status, 2);
  EXPECT_NE(kept.err.find(pipe + ": is no ordinary file"), std::string::npos) << kept.err;
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(ConfigCommand, check_says_line_and_nearest_name) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "t.toml").string();
  write(file, "[[pool]]\nhost-blokcs = 3\n");
  const Ended wrong = run(program({"config", "check", file}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(wrong.err,
            "terrace config: " + file + ":2: there is no option \"host-blokcs\" in [[pool]]; did you mean host-blocks?\n");
  const Ended missing = run(program({"config", "check", file + ".not"}));
  expect_refusal(missing);
}

TEST(ConfigCommand, check_and_doctor_refuse_an_endpoint_that_a_start_refuses) {
  const TemporaryDirectory directory;
  const std::string file = directory.write("t.toml", "[admin]\nlisten = \"tcp:127.0.0.1:0\"\n").string();
  for (const Words& words : {Words{"config", "check", file}, {"doctor", "--config", file}, {"replay", "--config", file}}) {
    const Ended refused = run(program(words));
    EXPECT_EQ(refused.status, 2) << words.front();
    EXPECT_NE(refused.err.find("t.toml:2: admin.listen over TCP needs admin.token-file"), std::string::npos) << refused.err;
  }
  const std::string remote = directory.write("r.toml", "[admin]\nlisten = \"tcp:0.0.0.0:80\"\n").string();
  EXPECT_EQ(run(program({"config", "check", remote})).status, 2);
}

TEST(ReplayConfig, that_is_a_pipe_is_read_if_somebody_writes_to_it) {
  const TemporaryDirectory directory;
  const std::string pipe = (directory.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const Words& words : {Words{"config", "check", pipe},
                             {"replay", "--config", pipe},
                             {"replay", "--requests", "1", "--admin", "unix:", "--admin-token-file", pipe},
                             {"top", "--socket", "unix:x", "--token-file", pipe}}) {
    const Ended refused = run(program(words));
    EXPECT_NE(refused.status, 0) << words.front();
    EXPECT_NE(refused.err.find("nobody writes to this pipe"), std::string::npos) << refused.err;
  }
  // Passwords and secrets are read from a file, the password again for each connection.
  const Ended refused =
      run(program({"replay", "--requests", "1", "--shared", "redis://localhost:1", "--shared-secret-file", pipe}));
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.err.find("no ordinary file"), std::string::npos) << refused.err;
  const Ended shown = run_in_shell("echo 'policy = \"lru\"' | \"$@\"", program({"config", "show", "--config", "/dev/stdin"}));
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_NE(shown.out.find("/dev/stdin:1"), std::string::npos) << shown.out;
}

TEST(ConfigCommand, show_says_where_each_value_comes_from) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "t.toml").string();
  write(file, "policy = \"lru\"\n[[pool]]\nhost-blocks = 1\ndevice-blocks = 2\nblock-bytes = \"4KiB\"\n");
  const Ended shown = run(program({"config", "show", "--json", "--config", file, "--host-blocks", "3"}),
                          {{"TERRACE_HOST_BLOCKS", "4"}, {"TERRACE_DEVICE_BLOCKS", "5"}, {"TERRACE_PORT_8080_TCP", "tcp://x"}});
  ASSERT_EQ(shown.status, 0) << shown.err;
  const boost::json::object all = boost::json::parse(shown.out).as_object();
  const boost::json::object& options = all.at("options").as_object();
  const auto expect = [&](const char* name, const char* value, const char* level, const std::string& source) {
    const boost::json::object& option = options.at(name).as_object();
    EXPECT_EQ(option.at("value").as_string(), value) << name;
    EXPECT_EQ(option.at("level").as_string(), level) << name;
    EXPECT_EQ(option.at("source").as_string(), source.c_str()) << name;
  };
  expect("policy", "lru", "file", file + ":1");
  expect("pool[0].host-blocks", "3", "flag", "--host-blocks");
  expect("pool[0].device-blocks", "5", "environment", "TERRACE_DEVICE_BLOCKS");
  expect("pool[0].block-bytes", "4KiB", "file", file + ":5");
  expect("inclusion", "lazy-exclusive", "default", "default");
  EXPECT_TRUE(options.at("storage.capacity").as_object().at("value").is_null());
  bool ignored = false;
  for (const auto& name : all.at("ignored_variables").as_array()) ignored |= name.as_string() == "TERRACE_PORT_8080_TCP";
  EXPECT_TRUE(ignored);
}

TEST(ConfigCommand, show_refuses_a_misspelt_variable) {
  const Ended ended = run(program({"config", "show"}), {{"TERRACE_HOST_BLOKCS", "4"}});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err, "terrace config: TERRACE_HOST_BLOKCS: there is no such option; did you mean TERRACE_HOST_BLOCKS?\n");
}

TEST(ReplayConfig, is_read_from_a_file_and_from_the_environment) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "t.toml").string();
  const std::string report = (directory.path() / "r.json").string();
  write(file, "policy = \"lru\"\n[[pool]]\nblock-bytes = \"4KiB\"\nhost-blocks = 100\ndevice-blocks = 300\n");
  const Ended ended =
      run(replay_words({"--config", file, "--requests", "50", "--report", report}), {{"TERRACE_HOST_BLOCKS", "77"}});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const boost::json::object config = boost::json::parse(read(report)).as_object().at("config").as_object();
  EXPECT_EQ(config.at("host_blocks").to_number<int>(), 77);
  EXPECT_EQ(config.at("device_blocks").to_number<int>(), 300);
  EXPECT_EQ(config.at("block_bytes").to_number<int>(), 4096);
  EXPECT_EQ(config.at("policy").as_string(), "lru");
}

constexpr const char* two_groups = R"([[pool]]
block-bytes = "4KiB"
layers = 4
device-blocks = 300
[[pool]]
block-bytes = "8KiB"
device-blocks = 300
null-block = true
[[group]]
block-tokens = 64
[[group]]
kind = "sliding-window"
block-tokens = 128
span-tokens = 512
pool = 1
)";

TEST(ReplayConfig, may_describe_several_groups_and_pools) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "t.toml").string();
  const std::string report = (directory.path() / "r.json").string();
  write(file, two_groups);
  const Ended ended = run(program({"replay", "--config", file, "--requests", "100", "--report", report}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("pool 1   299 blocks"), std::string::npos) << ended.out;
  const boost::json::object all = boost::json::parse(read(report)).as_object();
  const boost::json::object& config = all.at("config").as_object();
  EXPECT_EQ(config.at("groups").as_array().size(), 2U);
  EXPECT_EQ(config.at("layers").to_number<int>(), 4);
  const boost::json::object& verify = all.at("verify").as_object();
  EXPECT_EQ(verify.at("mismatches").to_number<int>(), 0);
  EXPECT_GT(verify.at("group_blocks").to_number<int>(), 0);
}

TEST(ReplayConfig, with_groups_that_the_block_tokens_do_not_fit_is_bad_input) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "t.toml").string();
  write(file, two_groups);
  for (const std::string tokens : {"1", "63", "65", "128", "96", "1048576"}) {
    const Ended ended = run(program({"replay", "--config", file, "--block-tokens", tokens, "--requests", "10"}));
    EXPECT_EQ(ended.status, 2) << tokens;
    EXPECT_EQ(ended.err, "terrace replay: [[group]] (" + file +
                             ":12): the hash unit is 64 tokens, so --block-tokens must be 64, not " + tokens + "\n");
  }
}

TEST(ReplayConfig, that_is_wrong_is_bad_input) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "t.toml").string();
  write(file, "\npolicy = 3\n");
  const Ended ended = run(replay_words({"--config", file}));
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err, "terrace replay: " + file + ":2: policy: a text is needed, not a whole number\n");
}

}  // namespace
}  // namespace terrace::test
