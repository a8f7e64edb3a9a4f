// `terrace store`, run as a program, on stores that replays have left and on a store that a replay is using.
#include "storage/format/format.hpp"
#include "tests/paths.hpp"
#include "tests/patience.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>

namespace terrace::test {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

Words store_words(const Words& words) {
  Words all{paths.program, "store"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

/// A directory with a store, as a replay of two long prompts leaves it.
class CliStore : public testing::Test {
 protected:
  void SetUp() override {
    const Ended ended = run(replay_words(replay_of(trace("0"))));
    ASSERT_EQ(ended.status, 0) << ended.err;
  }
  /// Two prompts of 20 blocks, of which they share 10; then a prompt of one block, at the time `last`.
  std::string trace(const std::string& last) {
    const auto line = [](const std::string& timestamp, int first, int own, int blocks) {
      std::string ids = std::to_string(first);
      for (int i = 1; i < blocks; ++i) ids.append(",").append(std::to_string(i < 10 ? first + i : own + i));
      return R"({"timestamp": )" + timestamp + R"(, "input_length": )" + std::to_string(512 * blocks) +
             R"(, "output_length": 1, "hash_ids": [)" + ids + "]}\n";
    };
    return directory_.write("t.jsonl", line("0", 100, 200, 20) + line("0", 100, 300, 20) + line(last, 900, 900, 1)).string();
  }
  [[nodiscard]] Words replay_of(const std::string& trace) const {
    return {trace,  "--block-bytes",      "4KiB", "--storage", storage_, "--storage-name",
            "mine", "--storage-capacity", "1MiB", "--speed",   "1000"};
  }

  Ended store(const std::string& command, const Words& rest = {}) const {
    Words words{command, store_};
    words.insert(words.end(), rest.begin(), rest.end());
    return run(store_words(words));
  }
  /// The JSON of a command, which must end with this status.
  json::value object(const std::string& command, const Words& rest = {}, int status = 0) const {
    Words words = rest;
    words.emplace_back("--json");
    const Ended ended = store(command, words);
    EXPECT_EQ(ended.status, status) << ended.err;
    json::error_code error;
    json::value value = json::parse(ended.out, error);
    EXPECT_FALSE(error) << ended.out;
    return value;
  }
  static int number(const json::value& value, const char* pointer) { return value.at_pointer(pointer).to_number<int>(); }
  static std::string text(const json::value& value, const char* name) { return std::string{value.at(name).as_string()}; }
  [[nodiscard]] json::array blocks() const { return object("list").at("blocks").as_array(); }

  /// Flips a bit in the data of the block. Returns where the data are.
  std::string damage(const std::string& key) const {
    const json::value shown = object("show", {key});
    const std::string file = text(shown, "file");
    const auto at = static_cast<std::streamoff>(shown.at("offset").to_number<std::uint64_t>() + 1000);
    std::fstream data{file, std::ios::in | std::ios::out | std::ios::binary};
    data.seekg(at);
    const int byte = data.get();
    data.seekp(at);
    data.put(static_cast<char>(byte ^ 16));
    data.close();
    EXPECT_TRUE(data.good());
    return file + " at offset " + std::to_string(shown.at("offset").to_number<std::uint64_t>());
  }
  void expect_refused(const Ended& ended, const std::string& part) const {
    expect_refusal(ended);
    EXPECT_TRUE(ended.err.starts_with("terrace store: ")) << ended.err;
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
    EXPECT_EQ(ended.out, "");
  }

  TemporaryDirectory directory_;
  std::string storage_ = "file:" + directory_.path().string();
  std::string store_ = (directory_.path() / "mine").string();
};

TEST_F(CliStore, explains_itself_with_examples) {
  const Ended all = run(store_words({"--help"}));
  EXPECT_EQ(all.status, 0);
  EXPECT_NE(all.out.find("Exit status"), std::string::npos);
  for (const char* const command : {"stat", "list", "show", "verify", "remove"}) {
    EXPECT_NE(all.out.find(command), std::string::npos);
    const Ended help = run(store_words({command, "--help"}));
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("Example"), std::string::npos) << command;
    EXPECT_NE(help.out.find("--json"), std::string::npos) << command;
  }
}

TEST_F(CliStore, stat_tells_format_use_and_owner) {
  const Ended ended = store("stat");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  for (const char* const part : {"version 1", "4KiB", "31 with blocks", "in use       no", "namespaces   1"}) {
    EXPECT_NE(ended.out.find(part), std::string::npos) << part << " is missing in\n" << ended.out;
  }
  const json::value stat = object("stat");
  EXPECT_EQ(number(stat, "/version"), 1);
  EXPECT_EQ(number(stat, "/block_bytes"), 4096);
  EXPECT_EQ(text(stat, "fingerprint").size(), 64U);
  EXPECT_EQ(number(stat, "/slots/blocks"), 31);
  EXPECT_EQ(number(stat, "/slots/free") + 31, number(stat, "/slots/total"));
  EXPECT_EQ(number(stat, "/slots/orphans"), 0);
  EXPECT_EQ(number(stat, "/slots/damaged"), 0);
  EXPECT_EQ(number(stat, "/namespaces/0/blocks"), 31);
  EXPECT_TRUE(stat.at("owner").is_null());
}

TEST_F(CliStore, stat_tells_whose_the_store_is_and_whether_it_may_go) {
  const std::string out = store("stat").out;
  for (const char* const part : {"used by      terrace replay; opened 20", "deletable    yes: ", "last write   20"}) {
    EXPECT_NE(out.find(part), std::string::npos) << part << " is missing in\n" << out;
  }
  Words again = replay_of(trace("0"));
  again.insert(again.end(), {"--storage-label", "engine 1, model A"});
  ASSERT_EQ(run(replay_words(again)).status, 0);
  const json::value stat = object("stat");
  std::set<std::string> labels;  // their order says which was opened last, in whole seconds
  for (const json::value& label : stat.at("labels").as_array()) labels.insert(text(label, "label"));
  EXPECT_EQ(labels, (std::set<std::string>{"engine 1, model A", "terrace replay"}));
  EXPECT_TRUE(stat.at("deletable").as_bool());
}

TEST_F(CliStore, list_of_a_folder_has_a_line_for_each_store_below_it) {
  const std::string folder = directory_.path().string();
  const Ended ended = run(store_words({"list", folder}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(std::ranges::count(ended.out, '\n'), 1) << ended.out;
  for (const std::string& part : {store_ + "  31 blocks, ", std::string{"not in use; used by: terrace replay"}}) {
    EXPECT_NE(ended.out.find(part), std::string::npos) << ended.out;
  }
  std::filesystem::create_directories(directory_.path() / "broken");
  for (const char* const name : {"catalog", "lock"}) directory_.write(std::string{"broken/"} + name, "x");
  const Ended both = run(store_words({"list", folder, "--json"}));
  ASSERT_EQ(both.status, 0) << both.err;
  const json::value stores = json::parse(both.out).at("stores");
  ASSERT_EQ(stores.as_array().size(), 2U) << both.out;
  EXPECT_NE(text(stores.at(0), "error").find("broken"), std::string::npos);
  EXPECT_EQ(number(stores.at(1), "/blocks"), 31);
  EXPECT_TRUE(stores.at(1).at("owner").is_null());
}

TEST_F(CliStore, list_names_parents_before_children) {
  const json::array all = blocks();
  ASSERT_EQ(all.size(), 31U);
  int depth = 0;
  for (const json::value& block : all) {
    EXPECT_GE(number(block, "/depth"), depth);
    depth = number(block, "/depth");
    EXPECT_EQ(text(block, "key").size(), 64U);
    EXPECT_FALSE(block.at("orphan").as_bool());
  }
  EXPECT_EQ(depth, 19);
  const json::value few = object("list", {"--limit", "3"});
  EXPECT_EQ(few.at("blocks").as_array().size(), 3U);
  EXPECT_EQ(number(few, "/matching"), 31);
  const std::string tenant = text(all[0], "namespace");
  EXPECT_EQ(object("list", {"--namespace", tenant.substr(0, 5)}).at("blocks").as_array().size(), 31U);
  std::string other = tenant;
  other[0] = other[0] == '0' ? '1' : '0';
  EXPECT_EQ(object("list", {"--namespace", other}).at("blocks").as_array().size(), 0U);

  const Ended ended = store("list", {"--limit", "2"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.out.find("\n" + text(all[1], "key").substr(0, 24) + " "), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("... and 29 more"), std::string::npos);
}

TEST_F(CliStore, show_tells_all_about_a_block_and_its_prefix) {
  const json::array all = blocks();
  const std::string key = text(all.back(), "key");
  for (const std::string& digits : {key, key.substr(0, 16)}) {
    const json::value shown = object("show", {digits});
    EXPECT_EQ(text(shown, "key"), key);
    EXPECT_EQ(text(shown, "data"), "verified");
    const json::array& path = shown.at("path").as_array();
    ASSERT_EQ(path.size(), 20U);
    EXPECT_EQ(std::string{path.back().as_string()}, key);
    EXPECT_EQ(std::string{path.front().as_string()}, text(object("show", {std::string{path.front().as_string()}}), "key"));
    EXPECT_EQ(number(shown, "/length"), 4096);
    EXPECT_EQ(number(shown, "/children"), 0);
  }
  // This is the block at which the two prompts branch.
  EXPECT_EQ(number(object("show", {std::string{object("show", {key}).at("path").at(9).as_string()}}), "/children"), 2);
  std::string upper = key;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(text(object("show", {upper}), "key"), key);

  expect_refused(store("show", {std::string(64, '0')}), "no block in ");
  expect_refused(store("show", {"xyz"}), "xyz: not a key");
  expect_refused(store("show", {key + "0"}), "not a key");
  // At least two of 31 keys begin with the same digit.
  bool ambiguous = false;
  for (const char digit : std::string{"0123456789abcdef"}) {
    const Ended ended = store("show", {std::string(1, digit)});
    ambiguous = ambiguous || ended.err.find("give more digits") != std::string::npos;
  }
  EXPECT_TRUE(ambiguous);
}

TEST_F(CliStore, verify_reads_all_data) {
  const Ended ended = store("verify");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_NE(ended.out.find("verified   31 of 31 blocks"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("GB/s"), std::string::npos);
  const json::value found = object("verify", {"--threads", "1"});
  EXPECT_EQ(number(found, "/verified"), 31);
  EXPECT_EQ(number(found, "/bytes"), 31 * 4096);
  EXPECT_EQ(found.at("wrong").as_array().size(), 0U);
  EXPECT_FALSE(found.at("interrupted").as_bool());
}

TEST_F(CliStore, verify_finds_a_flipped_bit_and_names_its_block) {
  const std::string key = text(blocks()[12], "key");
  const std::string place = damage(key);
  const Ended ended = store("verify");
  expect_refusal(ended, 1);
  EXPECT_EQ(ended.err,
            "terrace store: 1 blocks and 0 records are wrong; first: " + key + ", " + place + ": does not match its checksum\n");
  EXPECT_NE(ended.out.find(key), std::string::npos);
  EXPECT_NE(ended.out.find("verified   30 of 31 blocks"), std::string::npos) << ended.out;
  const json::value found = object("verify", {}, 1);
  EXPECT_EQ(number(found, "/verified"), 30);
  EXPECT_EQ(text(found.at("wrong").at(0), "key"), key);
  EXPECT_EQ(text(found.at("wrong").at(0), "what"), "does not match its checksum");

  const Ended shown = store("show", {key});
  EXPECT_EQ(shown.status, 1);
  EXPECT_EQ(shown.err, "terrace store: block " + key + " does not match its checksum\n");
}

TEST_F(CliStore, verify_finds_a_damaged_record) {
  const int slot = number(blocks()[12], "/slot");
  std::fstream catalog{store_ + "/catalog", std::ios::in | std::ios::out | std::ios::binary};
  catalog.seekp(static_cast<std::streamoff>(catalog_page_bytes + static_cast<unsigned>(slot) * record_bytes + 5));
  catalog.put('!').put('?');
  catalog.close();
  const Ended ended = store("verify");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.err, "terrace store: 1 records are damaged; first: slot " + std::to_string(slot) +
                           ": record does not match its checksum\n");
  EXPECT_EQ(number(object("stat"), "/slots/damaged"), 1);
  EXPECT_GT(number(object("stat"), "/slots/orphans"), 0) << "what stood on it";
  const Ended stat = store("stat");
  EXPECT_NE(stat.out.find("damaged      1 block: never served, and computed again when asked for; look at the disk, and read all "
                          "with `terrace store verify " +
                          store_ + "`\n"),
            std::string::npos)
      << stat.out;
}

TEST_F(CliStore, verify_tells_data_that_cannot_be_read) {
  // Root can read every file. A directory in place of the file cannot be read by anybody.
  fs::rename(store_ + "/blocks-0000", store_ + "/elsewhere");
  fs::create_directory(store_ + "/blocks-0000");
  const Ended ended = store("verify");
  expect_refusal(ended, 1);
  EXPECT_NE(ended.err.find("data file ends before the block"), std::string::npos) << ended.err;
}

TEST_F(CliStore, verify_is_interrupted_in_good_order_and_shows_how_far_it_was) {
  for (const int signal : {SIGINT, SIGTERM}) {
    // One block per second: half a minute.
    OnTerminal program{store_words({"verify", store_, "--bandwidth", "4KiB"})};
    ASSERT_TRUE(program.wait_for(" of 31 blocks"));
    program.signal(signal);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.status, 130) << ended.err;
    EXPECT_NE(ended.err.find("\r\x1b[Kterrace store: interrupted after "), std::string::npos) << ended.err;
  }
}

TEST_F(CliStore, remove_takes_a_block_and_what_stands_on_it) {
  const json::array all = blocks();
  const json::value leaf = object("show", {text(all.back(), "key")});
  const std::string fork{leaf.at("path").at(9).as_string()};
  const std::string one{leaf.at("path").at(15).as_string()};
  const json::value removed = object("remove", {one});
  EXPECT_EQ(removed.at("removed").as_array().size(), 5U);
  EXPECT_EQ(number(removed, "/blocks"), 26);
  EXPECT_EQ(number(object("stat"), "/slots/blocks"), 26);
  const Ended ended = store("remove", {fork, std::string{leaf.at("path").at(12).as_string()}});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out, "16 blocks removed, 10 left\n");
  EXPECT_EQ(number(object("verify"), "/verified"), 10);

  expect_refused(store("remove", {one}), "no block in ");
  expect_refused(store("remove"), "nothing to remove");
  expect_refused(store("remove", {"--all"}), "confirm it with --yes");
  expect_refused(store("remove", {"--all", "--yes", one}), "give keys or --all, not both");
  expect_refused(store("remove", {one, "--yes"}), "only with --all");
  EXPECT_EQ(number(object("stat"), "/slots/blocks"), 10);
  const Ended cleared = store("remove", {"--all", "--yes"});
  EXPECT_EQ(cleared.status, 0);
  EXPECT_EQ(cleared.out, "10 blocks removed, 0 left\n");
  EXPECT_EQ(number(object("stat"), "/slots/blocks"), 0);
}

TEST_F(CliStore, remove_takes_nothing_where_one_key_is_wrong) {
  expect_refused(store("remove", {text(blocks()[0], "key"), std::string(64, 'f')}), "no block in ");
  EXPECT_EQ(number(object("stat"), "/slots/blocks"), 31);
}

TEST_F(CliStore, works_beside_a_running_replay_and_keeps_its_hands_off) {
  fs::remove_all(store_);
  OnTerminal replay{replay_words({trace("1e12"), "--block-bytes", "4KiB", "--storage", storage_, "--storage-name", "mine",
                                  "--storage-capacity", "1MiB", "--speed", "1"})};
  ASSERT_TRUE(replay.wait_for("requests  hits"));
  // Its records are written after the data.
  json::value stat;
  ASSERT_TRUE(comes_true([&] {
    stat = object("stat");
    return number(stat, "/slots/blocks") >= 30;
  }));
  ASSERT_EQ(number(stat, "/slots/blocks"), 30);
  const std::string pid = std::to_string(stat.at_pointer("/owner/pid").to_number<int>());
  EXPECT_EQ(std::string{stat.at_pointer("/owner/program").as_string()}, "terrace replay");
  EXPECT_NE(store("stat").out.find("in use       by process " + pid + " (terrace replay on "), std::string::npos);
  EXPECT_EQ(number(object("verify"), "/verified"), 30);
  const std::string key = text(blocks()[5], "key");
  EXPECT_EQ(store("show", {key}).status, 0);

  expect_refused(store("remove", {key}), ": stop it, or give another directory\n");
  expect_refused(store("remove", {"--all", "--yes"}), "is in use by process " + pid + " (terrace replay on ");
  const Ended second = run(replay_words(replay_of(trace("0"))));
  EXPECT_EQ(second.status, 2);
  EXPECT_NE(second.err.find("is in use by process " + pid + " (terrace replay on "), std::string::npos) << second.err;

  replay.signal(SIGINT);
  EXPECT_EQ(replay.wait().status, 130);
  EXPECT_TRUE(object("stat").at("owner").is_null());
  EXPECT_EQ(number(object("verify"), "/verified"), 30);
}

TEST_F(CliStore, of_a_killed_owner_is_free_and_readable) {
  OnTerminal replay{replay_words({trace("1e12"), "--block-bytes", "4KiB", "--storage", storage_, "--storage-name", "mine",
                                  "--storage-capacity", "1MiB", "--speed", "1"})};
  ASSERT_TRUE(replay.wait_for("requests  hits"));
  EXPECT_FALSE(object("stat").at("owner").is_null());
  replay.signal(SIGKILL);
  EXPECT_EQ(replay.wait().status, 128 + SIGKILL);
  EXPECT_TRUE(object("stat").at("owner").is_null());
  EXPECT_EQ(store("verify").status, 0);
  EXPECT_EQ(store("remove", {"--all", "--yes"}).status, 0);
}

TEST_F(CliStore, refuses_what_is_no_store) {
  const std::string absent = (directory_.path() / "absent").string();
  const std::string file = directory_.write("file", "x").string();
  const std::string foreign = (directory_.path() / "foreign").string();
  fs::create_directory(foreign);
  for (const std::string command : {"stat", "list", "show", "verify", "remove"}) {
    const Words rest = command == "show" || command == "remove" ? Words{"ab"} : Words{};
    const auto with = [&](const std::string& directory) {
      Words words{command, directory};
      words.insert(words.end(), rest.begin(), rest.end());
      return run(store_words(words));
    };
    expect_refused(with(absent), "cannot look into the store " + absent);
    expect_refused(with(file), file + " is no file store: it is no directory");
    expect_refused(with(foreign), foreign + " is no file store: it has no catalog\n");
    if (command == "list") continue;  // of a folder it lists the stores
    expect_refused(with(directory_.path().string()), "it has no catalog; but mine in it is one\n");
  }
  EXPECT_FALSE(fs::exists(absent));
  EXPECT_TRUE(fs::is_empty(foreign));
  fs::remove(store_ + "/catalog");
  fs::create_directory(store_ + "/catalog");
  expect_refused(store("stat"), "cannot read " + store_ + "/catalog");
}

TEST_F(CliStore, refuses_a_directory_that_it_may_not_read) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  fs::permissions(store_ + "/catalog", fs::perms::none);
  expect_refused(store("stat"), "cannot read " + store_ + "/catalog");
}

TEST_F(CliStore, refuses_arguments_that_make_no_sense) {
  const std::string key = text(blocks()[0], "key");
  for (const Words& words : {Words{},
                             {"frobnicate", store_},
                             {"stat"},
                             {"stat", store_, "more"},
                             {"list", store_, "--limit", "x"},
                             {"list", store_, "--namespace", "xyz"},
                             {"show", store_},
                             {"show", store_, key, key},
                             {"verify", store_, "--threads", "0"},
                             {"verify", store_, "--threads", "1000"},
                             {"verify", store_, "--bandwidth", "0"},
                             {"verify", store_, "--bandwidth", "fast"},
                             {"stat", store_, "--yes"}}) {
    expect_refused(run(store_words(words)), "");
  }
}

// ---- a striped store, run as a program: replays over it, `terrace store`, and a missing directory

class CliStripes : public testing::Test {
 protected:
  Ended replay(const Words& more = {}) const {
    Words words = small({"--storage", "file:" + (directory_.path() / "a").string(), "--storage-capacity", "64MiB",
                         "--storage-stripe", (directory_.path() / "b").string(), "--storage-stripe",
                         (directory_.path() / "c").string(), "--storage-stripe-size", "64KiB", "--report", report_});
    words.insert(words.end(), more.begin(), more.end());
    return run(replay_words(words));
  }
  Ended store(Words words) const {
    words.insert(words.begin(), {paths.program, "store"});
    words.push_back((directory_.path() / "a").string());
    return run(words);
  }
  [[nodiscard]] json::value report() const { return report_in(directory_); }

  TemporaryDirectory directory_;
  std::string report_ = (directory_.path() / "r.json").string();
};

TEST_F(CliStripes, a_replay_finds_again_what_the_last_one_stored_over_three_directories) {
  const Ended first = replay();
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_NE(first.out.find(" and 2 more"), std::string::npos) << first.out;
  const int misses = report().at_pointer("/blocks/miss").to_number<int>();
  ASSERT_EQ(replay().status, 0);
  EXPECT_LT(report().at_pointer("/blocks/miss").to_number<int>(), misses);
  EXPECT_EQ(report().at_pointer("/verify/mismatches").to_number<int>(), 0);
  EXPECT_EQ(report().at_pointer("/store/directories").to_number<int>(), 3);
  EXPECT_EQ(report().at_pointer("/config/storage/stripes").as_array().size(), 2U);

  EXPECT_EQ(store({"verify"}).status, 0);
  const Ended stat = store({"stat"});
  EXPECT_NE(stat.out.find("striped      over 3 directories, 64KiB side by side"), std::string::npos) << stat.out;
  EXPECT_NE(stat.out.find((directory_.path() / "c").string()), std::string::npos) << stat.out;
  const Ended removed = store({"remove", "--all", "--yes"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_NE(removed.out.find(", 0 left"), std::string::npos) << removed.out;
}

TEST_F(CliStripes, stat_tells_whose_the_store_is) {
  ASSERT_EQ(replay({"--storage-label", "engine 1, model A"}).status, 0);
  ASSERT_EQ(replay({"--storage-label", "engine 1, model B"}).status, 0);
  const Ended stat = store({"stat"});
  for (const char* const part :
       {"engine 1, model A; opened 20", "engine 1, model B; opened 20", "striped      over 3", "deletable    yes: "}) {
    EXPECT_NE(stat.out.find(part), std::string::npos) << part << " is missing in\n" << stat.out;
  }
  const json::value object = json::parse(store({"stat", "--json"}).out);
  EXPECT_EQ(object.at("labels").as_array().size(), 2U);
}

TEST_F(CliStripes, a_directory_that_is_not_mounted_is_named_once_and_all_commands_count_alike) {
  ASSERT_EQ(replay().status, 0);
  const auto in = [](const Ended& ended) { return json::parse(ended.out); };
  const auto count = [](const json::value& value, const char* at) { return value.at_pointer(at).to_number<int>(); };
  for (const bool mounted : {true, false}) {
    if (!mounted) fs::rename(directory_.path() / "b", directory_.path() / "hidden");
    const json::value stat = in(store({"stat", "--json"}));
    const Ended verified = store({"verify", "--json"});
    const Ended listed = store({"list", "--json"});
    const int blocks = count(stat, "/slots/blocks");
    EXPECT_GT(blocks, 0);
    EXPECT_EQ(count(stat, "/slots/damaged"), 0);
    EXPECT_EQ(count(stat, "/slots/orphans"), 0);
    EXPECT_EQ(count(in(verified), "/blocks"), blocks);
    EXPECT_EQ(count(in(listed), "/matching"), blocks);
    EXPECT_EQ(count(in(verified), "/missing"), count(stat, "/slots/missing"));
    EXPECT_EQ(count(in(verified), "/verified"), blocks - count(stat, "/slots/missing"));
    EXPECT_EQ(verified.status, mounted ? 0 : 1);
    EXPECT_EQ(listed.status, 0);
    EXPECT_EQ(count(stat, "/slots/missing") > 0, !mounted);
    EXPECT_EQ(stat.at("missing_directories").as_array().size(), mounted ? 0U : 1U);
  }
  const std::string said = "1 of 3 directories of the store is missing, with ";
  const Ended verified = store({"verify"});
  expect_refusal(verified, 1);
  EXPECT_NE(verified.err.find(said), std::string::npos) << verified.err;
  EXPECT_LT(std::count(verified.out.begin(), verified.out.end(), '\n'), 8) << verified.out;
  EXPECT_NE(store({"stat"}).out.find(said), std::string::npos);
  EXPECT_TRUE(is_one_line(store({"list"}).err));
}

TEST_F(CliStripes, a_directory_that_is_gone_is_refused_and_then_left_out) {
  ASSERT_EQ(replay().status, 0);
  fs::remove_all(directory_.path() / "b");
  const Ended refused = replay();
  expect_refusal(refused);
  EXPECT_NE(refused.err.find("mount its disk"), std::string::npos) << refused.err;
  const Ended removed = store({"remove", "--all", "--yes"});
  EXPECT_NE(removed.status, 0) << "what is on that disk would be given up unasked";
  EXPECT_TRUE(is_one_line(removed.err)) << removed.err;

  const Ended accepted = replay({"--storage-accept-lost"});
  EXPECT_EQ(accepted.status, 0) << accepted.err;
  EXPECT_NE(accepted.out.find("degraded: 1 of the directories"), std::string::npos) << accepted.out;
  EXPECT_EQ(report().at_pointer("/store/directories_lost").to_number<int>(), 1);
  EXPECT_EQ(report().at_pointer("/storage_health/lost_directories/0").as_string(), (directory_.path() / "b" / "store").string());
  EXPECT_EQ(report().at_pointer("/verify/mismatches").to_number<int>(), 0);
}

}  // namespace
}  // namespace terrace::test
