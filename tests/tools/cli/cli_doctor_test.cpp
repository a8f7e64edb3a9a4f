// `terrace doctor`, its self-test of every tier, and `terrace shared check`.

#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

Ended doctor(const TemporaryDirectory& directory, const std::string& config) {
  return run({paths.program, "doctor", "--config", directory.write("t.toml", config).string()});
}

/// The text without its line breaks and indents.
std::string unwrapped(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  const auto repeated = std::ranges::unique(text, [](char a, char b) { return a == ' ' && b == ' '; });
  text.erase(repeated.begin(), repeated.end());
  return text;
}

std::string files(const TemporaryDirectory& directory) {
  return "[storage]\nwhere = \"file:" + (directory.path() / "kv").string() + "\"\ncapacity = \"64MiB\"\n";
}

constexpr const char* small_blocks = "[[pool]]\nblock-bytes = \"4KiB\"\ndevice-blocks = 100\nhost-blocks = 200\n";

class SelfTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Configurations, SelfTest,
                         testing::Values("", "inclusion = \"exclusive\"\n", "inclusion = \"non-inclusive\"\n",
                                         "inclusion = \"inclusive\"\n", "write-policy = \"none\"\n",
                                         "engine-owns-slots = true\nkey-order = \"flat\"\n", "ranks = 2\n"));

TEST_P(SelfTest, finds_that_every_tier_works_and_leaves_nothing_behind) {
  const TemporaryDirectory directory;
  const Ended ended = doctor(directory, GetParam() + files(directory) + small_blocks);
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  for (const char* tier : {"device   works: ", "host     works: ", "storage  works: "}) {
    EXPECT_NE(ended.out.find(tier), std::string::npos) << ended.out;
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "kv"));
}

TEST(SelfTests, tests_groups_that_share_a_pool) {
  const TemporaryDirectory directory;
  const Ended ended =
      doctor(directory, files(directory) + "[[pool]]\nblock-bytes = \"4KiB\"\nnull-block = true\n" +
                            "[[group]]\nblock-tokens = 32\n[[group]]\nkind = \"sliding-window\"\nblock-tokens = 32\n" +
                            "span-tokens = 64\n");
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
}

TEST(SelfTests, finds_a_tier_that_is_written_and_never_read) {
  const TemporaryDirectory directory;
  const Ended ended = doctor(directory, "loads = \"measured\"\nunit-prefill = \"1ns\"\n" + files(directory) + small_blocks);
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.out.find("host     FAILED: "), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("blocks were written and none was read"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("unit-prefill"), std::string::npos) << ended.out;
  EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
}

TEST(SelfTests, finds_storage_that_nothing_is_written_to) {
  const TemporaryDirectory directory;
  const Ended ended = doctor(directory, "daily-writes = \"1KiB\"\n" + files(directory) + small_blocks);
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.out.find("storage  FAILED: nothing was written: the daily limit"), std::string::npos) << ended.out;
}

TEST(SelfTests, leaves_the_configured_store_alone) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path() / "kv" / "store");
  const std::filesystem::path kept = directory.write("kv/store/data", "of an engine");
  EXPECT_EQ(doctor(directory, files(directory) + small_blocks).status, 0);
  EXPECT_EQ(read_file(kept), "of an engine");
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "kv" / "doctor"));
}

TEST(SelfTests, tells_what_is_damaged_in_the_configured_store) {
  const TemporaryDirectory directory;
  const std::string config = directory.write("r.toml", files(directory) + small_blocks).string();
  ASSERT_EQ(run({paths.program, "replay", "--config", config, "--requests", "50"}).status, 0);
  const std::string store = (directory.path() / "kv" / "store").string();
  Ended ended = doctor(directory, files(directory) + small_blocks);
  EXPECT_NE(unwrapped(ended.out).find("damaged " + store + ": no block"), std::string::npos) << ended.out;
  std::fstream catalog{store + "/catalog", std::ios::in | std::ios::out | std::ios::binary};
  catalog.seekp(4096 + 5);
  catalog.put('!').put('?');
  catalog.close();
  ended = doctor(directory, files(directory) + small_blocks);
  EXPECT_NE(unwrapped(ended.out).find(store +
                                      ": 1 block: never served, and computed again when asked for; look at the disk, and read "
                                      "all with `terrace store verify " +
                                      store + "`"),
            std::string::npos)
      << ended.out;
}

TEST(SelfTests, refuses_a_wrong_configuration) {
  const TemporaryDirectory directory;
  const Ended wrong = doctor(directory, "polcy = \"lru\"\n");
  expect_refusal(wrong);
  const Ended missing = run({paths.program, "doctor", "--config", (directory.path() / "no.toml").string()});
  EXPECT_EQ(missing.status, 2);
  const Ended no_directory = doctor(directory, "[storage]\nwhere = \"file:/no/such/folder/kv\"\ncapacity = \"64MiB\"\n");
  expect_refusal(no_directory);
}

TEST(CliDoctor, says_what_is_here_and_why_what_is_not_is_not) {
  const Ended ended = run({paths.program, "doctor"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_TRUE(ended.out.starts_with("memory   ")) << ended.out;
  for (const char* const line :
       {"cgroup   ", "pages    ", "memlock  ", "io_uring ", "direct   ", "numa     ", "device   emulated: always"}) {
    EXPECT_NE(ended.out.find("\n" + std::string{line}), std::string::npos) << line << " is missing in\n" << ended.out;
  }
  EXPECT_TRUE(ended.out.find("CUDA: ") != std::string::npos || ended.out.find("cuda:0") != std::string::npos) << ended.out;
}

TEST(CliDoctor, compares_a_configuration_with_the_machine) {
  const TemporaryDirectory directory;
  const Ended ended =
      doctor(directory, files(directory) + "[[pool]]\nblock-bytes = \"4KiB\"\ndevice-blocks = 256\nhost-blocks = 768\n");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("; the configuration takes 4MiB\n"), std::string::npos) << ended.out;
  const std::size_t direct = ended.out.find("\ndirect ");
  EXPECT_NE(ended.out.find((directory.path() / "kv").string(), direct), std::string::npos) << ended.out;
  EXPECT_LE(width(ended.out.substr(0, direct)), 80U) << ended.out;
}

TEST(CliDoctor, refuses_a_device_that_is_not_there) {
  for (const Words& words : {Words{"--device", "cuda:999"}, Words{"--device", "gpu"}, Words{"--frobnicate"}}) {
    Words all = program({"doctor"});
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run(all);
    expect_refusal(ended);
    EXPECT_EQ(ended.out, "");
  }
}

TEST(CliDoctor, explains_itself) {
  const Ended help = run({paths.program, "doctor", "--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* const word : {"--device", "--measure", "--report", "Examples:"}) {
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  }
}

// ---- `terrace shared check` where no server is needed. tests/servers/test_shared.py has real ones

TEST(SharedCheck, says_in_one_sentence_what_is_wrong) {
  struct Case {
    Words words;
    int status;
    std::string sentence;
  };
  // Port 1 belongs to a service that no machine has any more.
  const std::vector<Case> cases{{{}, 2, "no shared store is named"},
                                {{"none"}, 2, "no shared store is named"},
                                {{"memory:"}, 2, "there is no server to check"},
                                {{"http://a"}, 2, "there is no \"http\""},
                                {{"redis://user:word@a"}, 2, "it has no password"},
                                {{"redis://a?prefix=x"}, 2, "has an option of its own"},
                                {{"redis://127.0.0.1:1", "--shared-ca-file", "x"}, 2, "rediss://HOST"},
                                {{"redis://127.0.0.1:1", "--shared-secret-file", "/no/file"}, 1, "nobody listens there"},
                                {{"redis://127.0.0.1:1", "--block-bytes", "0B"}, 2, "--block-bytes: 0B is not 1B to 512MiB"},
                                {{"redis://127.0.0.1:1", "--block-bytes", "1GiB"}, 2, "--block-bytes: 1GiB is not 1B to 512MiB"},
                                {{"redis://127.0.0.1:1", "--prefill-tokens-per-second", "0"}, 2, "--prefill-tokens-per-second"},
                                {{"redis://127.0.0.1:1"}, 1, "127.0.0.1:1: nobody listens there"},
                                {{"redis://127.0.0.1:1,127.0.0.1:2?cluster=1"}, 1, "127.0.0.1:1: nobody listens there"}};
  for (const Case& each : cases) {
    Words words{"shared", "check"};
    words.insert(words.end(), each.words.begin(), each.words.end());
    const Ended ended = run(program(words));
    EXPECT_EQ(ended.status, each.status) << ended.err;
    EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
    EXPECT_NE(ended.err.find(each.sentence), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
}

}  // namespace
}  // namespace terrace::test
