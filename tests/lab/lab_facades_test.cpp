#include "tests/lab/lab_words.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

std::string text_of(const boost::json::value& row, const char* field) { return std::string{row.at(field).as_string()}; }

void expect_positive(const boost::json::value& row, const Words& fields) {
  for (const std::string& field : fields) EXPECT_GT(row.at(field).to_number<double>(), 0) << field;
}

/// "question hit" of all rows.
std::multiset<std::string> questions_in(const boost::json::value& report) {
  std::multiset<std::string> questions;
  for (const boost::json::value& row : report.at("questions").as_array()) {
    questions.insert(text_of(row, "question") + (row.at("hit").as_bool() ? " hit" : " miss"));
    expect_positive(row, {"ns_a_key", "set_ns_a_key"});
  }
  return questions;
}

TEST(CliBenchOffload, reports_every_move_question_and_refusal_on_each_device) {
  for (const std::string device : {"instant", "emulated"}) {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "r.json").string();
    const Ended ended = run(lab({"offload"}, {"--device", device, "--block-bytes", "4KiB,16KiB", "--area", "1MiB",
                                              "--small-blocks", "64", "--rounds", "2", "--report", file}));
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    const boost::json::value report = report_in(directory);
    EXPECT_EQ(report.at("device").as_string(), device);
    EXPECT_EQ(report.at("rounds"), 2);
    EXPECT_EQ(report.at("order_blocks"), 32);

    std::set<std::string> moves;
    const std::map<int, int> blocks{{64, 64}, {4 << 10, 256}, {16 << 10, 64}};
    for (const boost::json::value& row : report.at("moves").as_array()) {
      const int block_bytes = row.at("block_bytes").to_number<int>();
      const std::string way = text_of(row, "way");
      moves.insert(std::to_string(block_bytes) + " " + text_of(row, "key_order") + " " + way);
      EXPECT_EQ(row.at("blocks").to_number<int>(), blocks.at(block_bytes));
      expect_positive(row, {"gb_per_s", "memcpy_gb_per_s", "ratio", "ns_a_block", "memcpy_ns_a_block"});
      const auto from_storage = row.at("from_storage").to_number<double>();
      if (way == "load from storage") EXPECT_GE(from_storage, 0.5) << "the host tier has a quarter of the blocks";
      else EXPECT_EQ(from_storage, 0);
    }
    std::set<std::string> expected;
    for (const std::string order : {" flat ", " prefix "}) {
      for (const std::string size : {"64", "4096", "16384"}) {
        for (const std::string way : {"store", "load"}) expected.insert(size + order + way);
        if (size != "64") expected.insert(size + order + "load from storage");
      }
    }
    EXPECT_EQ(moves, expected);

    EXPECT_EQ(questions_in(report), (std::multiset<std::string>{"look_up hit", "look_up hit", "look_up miss", "look_up miss",
                                                                "leading hit", "leading hit", "leading miss", "leading miss"}));
    ASSERT_EQ(report.at("refused").as_array().size(), 2U);
    for (const boost::json::value& row : report.at("refused").as_array()) expect_positive(row, {"ns_an_order"});
    EXPECT_EQ(ended.out.find("nan"), std::string::npos) << ended.out;
    EXPECT_NE(ended.out.find("load from storage"), std::string::npos) << ended.out;
    EXPECT_NE(ended.out.find("refused at the bound"), std::string::npos) << ended.out;
  }
}

TEST(CliBenchTierStore, reports_puts_and_gets_beside_plain_io_and_questions) {
  for (const char* const io : {"auto", "threads"}) {
    const TemporaryDirectory directory;
    const TemporaryDirectory disk;
    const std::string file = (directory.path() / "r.json").string();
    const Ended ended =
        run(lab({"tier-store"}, {"--directory", disk.path().string(), "--size", "4MiB", "--sizes", "4KiB,64KiB", "--depths",
                                 "1,3", "--moved", "256KiB", "--rounds", "2", "--io", io, "--report", file}));
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    const boost::json::value report = report_in(directory);
    EXPECT_EQ(report.at("rounds"), 2);
    EXPECT_EQ(report.at("size"), 4 << 20);
    if (io == std::string{"threads"}) {
      EXPECT_NE(text_of(report, "io").find("threads"), std::string::npos);
    }
    std::set<std::string> rows;
    for (const boost::json::value& row : report.at("tier_store").as_array()) {
      rows.insert(std::to_string(row.at("block_bytes").to_number<int>()) + " " +
                  std::to_string(row.at("depth").to_number<int>()) + " " + text_of(row, "way"));
      expect_positive(row, {"store_gb_per_s", "store_ratio", "store_cpu_us", "plain_gb_per_s", "plain_cpu_us"});
    }
    EXPECT_EQ(rows, (std::set<std::string>{"4096 1 get", "4096 1 put", "4096 3 get", "4096 3 put", "65536 1 get", "65536 1 put",
                                           "65536 3 get", "65536 3 put"}));
    EXPECT_EQ(questions_in(report), (std::multiset<std::string>{"contains hit", "contains hit", "contains miss", "contains miss",
                                                                "leading hit", "leading hit", "leading miss", "leading miss"}));
    EXPECT_TRUE(std::filesystem::is_empty(disk.path())) << "left as it was";
  }
}

TEST(CliBenchTierStore, uses_the_current_directory_if_none_is_given_and_leaves_it_as_it_was) {
  const TemporaryDirectory disk;
  Words words =
      lab({"tier-store"}, {"--size", "2MiB", "--sizes", "64KiB", "--depths", "1", "--moved", "256KiB", "--rounds", "1"});
  const Ended ended = run_in_shell("cd '" + disk.path().string() + "' && \"$@\"", words);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(CliBenchTierStore, leaves_nothing_behind_when_interrupted) {
  const TemporaryDirectory disk;
  OnTerminal program{lab({"tier-store"}, {"--directory", disk.path().string(), "--size", "8MiB", "--sizes", "64KiB", "--depths",
                                          "4", "--rounds", "1000000"})};
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::minutes{1};
  while (std::filesystem::is_empty(disk.path()) && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
  program.signal(SIGINT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 130) << ended.err;
  EXPECT_NE(ended.err.find("terrace-lab tier-store: interrupted"), std::string::npos) << ended.err;
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(CliBenchShared, reports_rates_processor_time_and_probes_of_each_size) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended = run(lab({"shared"}, {"--block-bytes", "4KiB,1MiB", "--area", "3MiB", "--bytes-in-flight", "16KiB",
                                           "--rounds", "2", "--report", file}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_LE(width(ended.out), 80U) << ended.out;
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at("store").as_string(), "memory:");
  const boost::json::array& sizes = report.at("sizes").as_array();
  ASSERT_EQ(sizes.size(), 2U);
  EXPECT_EQ(sizes[0].at("blocks"), 768);
  EXPECT_EQ(sizes[0].at("at_once"), 4);
  EXPECT_EQ(sizes[1].at("blocks"), 3);
  EXPECT_EQ(sizes[1].at("at_once"), 1) << "one block is always allowed";
  for (const boost::json::value& row : sizes) {
    expect_positive(row,
                    {"block_bytes", "write_gb_per_s", "read_gb_per_s", "write_cpu_ms_per_gb", "read_cpu_ms_per_gb", "probe_us"});
  }
}

TEST(CliBenchShared, a_store_that_cannot_be_used_is_an_error) {
  const Ended none = run(lab({"shared"}, {"--shared", "redis://127.0.0.1:1"}));
  EXPECT_EQ(none.status, 3);
  EXPECT_NE(none.err.find("the shared store cannot be used: 127.0.0.1:1"), std::string::npos) << none.err;
}

class BadFacadeBench : public testing::TestWithParam<std::pair<Words, std::string>> {};
INSTANTIATE_TEST_SUITE_P(
    All, BadFacadeBench,
    testing::Values(std::pair{Words{"offload", "--rounds", "0"}, "--rounds 0"},
                    std::pair{Words{"offload", "--device", "cuda"}, "there is: instant, emulated"},
                    std::pair{Words{"offload", "--block-bytes", "100"}, "a multiple of 64"},
                    std::pair{Words{"offload", "--block-bytes", "2GiB"}, "1GiB at most"},
                    std::pair{Words{"offload", "--area", "1MiB"}, "must be from 64"},
                    std::pair{Words{"offload", "--area", "4096TiB", "--block-bytes", "1GiB"}, "must be from 64"},
                    std::pair{Words{"offload", "--area", "512TiB", "--block-bytes", "1GiB"}, "of memory"},
                    std::pair{Words{"offload", "--small-blocks", "33"}, "a multiple of 32"},
                    std::pair{Words{"offload", "--small-blocks", "0"}, "a multiple of 32"},
                    std::pair{Words{"shared", "--rounds", "0"}, "--rounds: 0 is not from 1"},
                    std::pair{Words{"shared", "--block-bytes", "128MiB"}, "128MiB is not 1B to 64MiB, of an area of 64MiB"},
                    std::pair{Words{"shared", "--area", "4096TiB"}, "4096TiB is more than 4GiB"},
                    std::pair{Words{"shared", "--shared", "http://a"}, "begins with redis:// or rediss://"},
                    std::pair{Words{"shared", "--shared-secret-file", "/no/file"}, "cannot be read"},
                    std::pair{Words{"tier-store", "--rounds", "0"}, "--rounds 0"},
                    std::pair{Words{"tier-store", "--sizes", "6KiB"}, "a multiple of 4KiB"},
                    std::pair{Words{"tier-store", "--depths", "0"}, "--depths 0"},
                    std::pair{Words{"tier-store", "--size", "64KiB"}, "at least twice the depth"},
                    std::pair{Words{"tier-store", "--size", "4096TiB", "--sizes", "4MiB"}, "are free"},
                    std::pair{Words{"tier-store", "--io", "aio"}, "there is: auto, uring, threads"},
                    std::pair{Words{"tier-store", "--directory", "/no/such/place"}, "No such file or directory"}));

TEST_P(BadFacadeBench, ends_with_2_and_one_line) {
  const auto& [words, part] = GetParam();
  const Ended ended = run(lab(words));
  expect_refusal(ended);
  EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "");
}

}  // namespace
}  // namespace terrace::test
