#include "base/random.hpp"
#include "lab/index/index_subject.hpp"
#include "lab/policies/policies.hpp"
#include "radix/eviction/adaptive_policy.hpp"
#include "runtime/cache/types/config.hpp"
#include "storage/io/uring_io.hpp"
#include "tests/lab/lab_words.hpp"
#include "tests/seed.hpp"
#include "tools/replay/engine/key_maker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

TEST(CliBench, of_keys_reports_every_size_of_block) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended = run(
      lab({"keys", "--block-tokens", "16,48", "--prompt-tokens", "200", "--prompts", "3", "--rounds", "2", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at("prompts"), 3);
  const boost::json::array& rows = report.at("keys").as_array();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("block_tokens"), 16);
  EXPECT_EQ(rows[1].at("block_tokens"), 48);
  for (const boost::json::value& row : rows) {
    for (const char* const field : {"digest_ns", "append_ns", "append_ratio"}) {
      EXPECT_GT(row.at(field).to_number<double>(), 0) << field;
    }
  }
}

TEST(CliBench, of_room_shows_each_trace_and_size_with_and_without_free_slots) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "r.json").string();
  std::string lines;
  for (int n = 0; n < 50; ++n) {
    lines += R"({"timestamp": )" + std::to_string(n * 100) + R"(, "input_length": 2048, "output_length": 5, "hash_ids": [)";
    for (int id = 0; id < 4; ++id) lines += std::to_string(n * 4 + id) + (id < 3 ? ", " : "]}\n");
  }
  const std::string trace = directory.write("t.jsonl", lines).string();
  const Ended ended = run(lab({"room", trace, "--device-blocks", "20,40", "--host-blocks", "1000", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  const boost::json::value report = report_in(directory);
  const boost::json::array& rows = report.at("rows").as_array();
  ASSERT_EQ(rows.size(), 4U);
  for (const boost::json::value& row : rows) EXPECT_EQ(row.at("served"), 50);
  EXPECT_EQ(rows[0].at("reserve_max").to_number<double>(), 0);
  EXPECT_GT(rows[0].at("slot_waits").at("requests").as_int64(), 20);
  EXPECT_GT(rows[1].at("reserve_max").to_number<double>(), 0);
  EXPECT_EQ(run(lab({"room", (directory.path() / "none").string()})).status, 2);
  EXPECT_EQ(run(lab({"room", trace, "--report", trace})).status, 2);
}

/// True if a line of `text` begins with `begin`.
bool has_row(const std::string& text, const std::string& begin) { return text.find("\n" + begin) != std::string::npos; }

TEST(CliBench, of_the_index_measures_every_size_beside_the_baselines) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended = run(lab({"index", "--blocks", "600", "--rounds", "2", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  for (const char* const row :
       {"match          600      16", "hit            600      16", "new            600      16", "cycle          600      64",
        "evict          600      16", "tokens         600      16", "bytes          600     128"}) {
    EXPECT_TRUE(has_row(ended.out, row)) << row << '\n' << ended.out;
  }
  std::set<std::string> measured;
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at("rounds"), 2);
  for (const boost::json::value& row : report.at("index").as_array()) {
    const std::string operation{row.at("operation").as_string()};
    measured.insert(operation + "/" + std::to_string(row.at("prompt_blocks").to_number<int>()));
    EXPECT_EQ(row.at("blocks"), 600);
    if (operation == "tokens") continue;
    for (const char* const subject : {"terrace-adaptive", "terrace-lru", "tree", "map", "floor"}) {
      const boost::json::value& figures = row.at(subject);
      EXPECT_GT((operation == "bytes" ? figures : figures.at("p50_ns")).to_number<double>(), 0) << operation << ' ' << subject;
    }
  }
  EXPECT_EQ(measured, (std::set<std::string>{"match/16", "match/128", "hit/16", "new/16", "cycle/16", "cycle/64", "evict/16",
                                             "evict/256", "tokens/16", "bytes/4", "bytes/16", "bytes/128"}));
}

TEST(CliBench, of_the_index_has_every_figure_after_one_round_too) {
  const Ended ended = run(lab({"index", "--blocks", "600", "--rounds", "1"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out.find("nan"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find(" 0.0\n"), std::string::npos) << ended.out;
  for (const char* const row : {"match", "cycle", "tokens"}) EXPECT_TRUE(has_row(ended.out, row)) << ended.out;
}

TEST(CliBench, of_the_index_over_a_trace_reports_every_subject) {
  const TemporaryDirectory directory;
  const std::string line = R"({"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
                           "\n";
  const std::string other = R"({"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1]})"
                            "\n";
  const std::string trace = directory.write("t.jsonl", line + other + line).string();
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended = run(lab({"index", "--trace", trace, "--blocks", "64", "--rounds", "2", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at("blocks").to_number<int>(), 16 + 8 + 16);  // 1,024, 600 and 1,024 tokens in blocks of 64
  for (const char* const subject : {"terrace-adaptive", "terrace-lru", "tree", "map", "floor"}) {
    EXPECT_EQ(report.at(subject).at("hits").to_number<int>(), 8 + 16) << subject;
    EXPECT_GT(report.at(subject).at("mean_us").to_number<double>(), 0) << subject;
  }
}

TEST(CliBench, of_a_step_reports_each_call_with_and_without_a_host_tier) {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    const int id = i % 20;  // 160 blocks: more than the device has, and fewer than both tiers
    lines += R"({"timestamp": )" + std::to_string(i) + R"(, "input_length": 512, "output_length": 1, "hash_ids": [)" +
             std::to_string(id) + "]}\n";
  }
  const std::string trace = directory.write("t.jsonl", lines).string();
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended =
      run(lab({"step", trace, "--device-blocks", "64", "--host-blocks", "0,160", "--rounds", "2", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at("blocks").to_number<int>(), 40 * 8);
  std::set<std::string> measured;
  for (const boost::json::value& row : report.at("steps").as_array()) {
    const std::string call{row.at("call").as_string()};
    const int host_blocks = row.at("host_blocks").to_number<int>();
    measured.insert(std::string{row.at("policy").as_string()} + "/" + std::to_string(host_blocks) + "/" + call);
    EXPECT_GT(row.at("mean_us").to_number<double>(), 0) << call;
    EXPECT_GE(row.at("p99_us").to_number<double>(), row.at("p50_us").to_number<double>()) << call;
    if (host_blocks > 0) EXPECT_EQ(row.at("hits").to_number<int>(), 20 * 8) << call;
    else EXPECT_LT(row.at("hits").to_number<int>(), 20 * 8) << call;
  }
  EXPECT_EQ(measured.size(), 2U * 2U * 5U);
  EXPECT_TRUE(has_row(ended.out, "    160  adaptive   poll")) << ended.out;
}

/// A hot set and a scan: if policies differ, their hits differ, and the run continues.
TEST(CliBench, of_the_index_over_a_trace_measures_the_policy_that_a_subject_is_named_after) {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 1000; ++i) {
    const int id = i % 8 == 0 ? i / 8 % 4 : 1000 + i;
    lines += R"({"timestamp": )" + std::to_string(i) + R"(, "input_length": 512, "output_length": 1, "hash_ids": [)" +
             std::to_string(id) + "]}\n";
  }
  const std::string trace = directory.write("t.jsonl", lines).string();
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended = run(lab({"index", "--trace", trace, "--blocks", "64", "--rounds", "1", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at("terrace-lru").at("hits"), report.at("floor").at("hits"));
  const int lru = report.at("terrace-lru").at("hits").to_number<int>();
  EXPECT_GT(report.at("terrace-adaptive").at("hits").to_number<int>(), lru + 100);
}

TEST(CliBench, of_transfers_reports_every_way_and_layout_beside_plain_copies) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended = run(lab({"transfer", "--block-bytes", "4KiB,64KiB", "--blocks", "33", "--rounds", "2", "--piece-bytes",
                               "128KiB", "--pieces-in-flight", "3", "--layers", "16", "--link", "8GiB", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  const boost::json::value report = report_in(directory);
  EXPECT_EQ(report.at("device"), "emulated");
  EXPECT_EQ(report.at("rounds"), 2);
  EXPECT_EQ(report.at("piece_bytes"), 128 << 10);
  EXPECT_EQ(report.at("pieces_in_flight"), 3);

  std::set<std::string> rows;
  for (const boost::json::value& row : report.at("copies").as_array()) {
    rows.insert(std::to_string(row.at("block_bytes").to_number<int>()) + " " + std::string{row.at("layout").as_string()} + " " +
                std::string{row.at("way").as_string()});
    EXPECT_EQ(row.at("blocks"), 33);
    EXPECT_EQ(row.at("plan_blocks"), 33);
    for (const char* const field : {"gb_per_s", "plain_gb_per_s", "ratio", "store_gb_per_s", "store_ratio", "bare_gb_per_s",
                                    "bare_ratio", "submit_ns", "collect_ns"}) {
      EXPECT_GT(row.at(field).to_number<double>(), 0) << field;
      EXPECT_LT(row.at(field).to_number<double>(), 1e9) << field;
    }
  }
  std::set<std::string> expected;
  for (const char* const size : {"4096 ", "65536 "}) {
    for (const char* const layout : {"contiguous ", "scattered "}) {
      for (const char* const way : {"swap out", "swap in", "both"}) expected.insert(std::string{size} + layout + way);
    }
  }
  EXPECT_EQ(rows, expected);

  const boost::json::array& urgent = report.at("urgent").as_array();
  ASSERT_EQ(urgent.size(), 2U);
  EXPECT_EQ(urgent[0].at("piece_blocks"), 16) << "half of the blocks, where they are less than a piece";
  EXPECT_EQ(urgent[1].at("piece_blocks"), 2);
  for (const boost::json::value& row : urgent) {
    EXPECT_EQ(row.at("samples"), 100);
    for (const char* const lane : {"idle_us", "busy_us"}) {
      const boost::json::value& us = row.at(lane);
      EXPECT_GT(us.at("p50").to_number<double>(), 0) << lane;
      EXPECT_LE(us.at("p50").to_number<double>(), us.at("p99").to_number<double>()) << lane;
      EXPECT_LE(us.at("p99").to_number<double>(), us.at("max").to_number<double>()) << lane;
    }
    const double piece = row.at("piece_us").to_number<double>();
    EXPECT_GT(piece, 0);
    const double ahead = row.at("pieces_ahead").to_number<double>();
    EXPECT_GE(ahead, 1);
    EXPECT_LE(ahead, 3) << "never more than may be under way";
    const double idle = row.at("idle_us").at("p50").to_number<double>();
    EXPECT_NEAR(row.at("bound_us").to_number<double>(), idle + ahead * piece, 1e-6);
  }

  const boost::json::array& compute = report.at("compute").as_array();
  ASSERT_EQ(compute.size(), 2U);
  for (const boost::json::value& row : compute) {
    EXPECT_EQ(row.at("samples"), 80);
    EXPECT_EQ(row.at("needs"), "memory");
    EXPECT_GT(row.at("gb_per_s").to_number<double>(), 0);
    const double alone = row.at("alone_us").at("p50").to_number<double>();
    const double beside = row.at("beside_us").at("p50").to_number<double>();
    EXPECT_GT(alone, 0);
    EXPECT_NEAR(row.at("slowdown_p50").to_number<double>(), beside / alone, 1e-9);
  }
}

TEST(CliBench, of_transfers_reports_when_the_first_layers_of_a_load_are_there) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "r.json").string();
  const Ended ended = run(lab({"transfer", "--block-bytes", "64KiB,96B", "--blocks", "8", "--rounds", "2", "--piece-bytes",
                               "64KiB", "--layers", "64", "--report", file}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  const boost::json::value report = report_in(directory);
  const boost::json::array& rows = report.at("layers").as_array();
  ASSERT_EQ(rows.size(), 1U) << "96 bytes do not fall into 64 layers";
  EXPECT_EQ(rows[0].at("block_bytes"), 64 << 10);
  EXPECT_EQ(rows[0].at("layers"), 64);
  // A piece has eight layers of eight blocks. The last of the eight pieces is the end, and two may end together.
  EXPECT_GE(rows[0].at("told").to_number<int>(), 1);
  EXPECT_LE(rows[0].at("told").to_number<int>(), 7);
  for (const char* const field : {"whole_us", "first_us", "all_us", "first_of_whole", "all_of_whole"}) {
    EXPECT_GT(rows[0].at(field).to_number<double>(), 0) << field;
  }
  // On a busy machine both may be collected together.
  EXPECT_LE(rows[0].at("first_us").to_number<double>(), rows[0].at("all_us").to_number<double>());
  EXPECT_NE(ended.out.find("first layers"), std::string::npos) << ended.out;
}

TEST(CliBench, of_transfers_prints_what_it_reports) {
  const Ended ended = run(lab({"transfer", "--block-bytes", "16KiB", "--area", "1MiB", "--rounds", "1"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const char* const row : {"  16KiB       64  contiguous  swap out", "  16KiB       64  scattered   both"}) {
    EXPECT_TRUE(has_row(ended.out, row)) << row << '\n' << ended.out;
  }
  EXPECT_NE(ended.out.find("busy p50"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("nan"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("inf"), std::string::npos) << ended.out;
}

TEST(CliBench, of_transfers_explains_itself) {
  const Ended ended = run(lab({"transfer", "--help"}));
  EXPECT_EQ(ended.status, 0);
  EXPECT_NE(ended.out.find("terrace-lab transfer --block-bytes"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("emulated, cuda[:N]"), std::string::npos) << ended.out;
}

TEST(CliBench, of_transfers_refuses_a_device_that_is_not_there) {
  for (const std::string device : {"cuda:999", "gpu"}) {
    const Ended ended = run(lab({"transfer", "--device", device}));
    expect_refusal(ended);
    EXPECT_NE(ended.err.find("emulated"), std::string::npos) << ended.err;
  }
}

TEST(CliBench, of_a_link_says_that_it_needs_a_gpu) {
  for (const std::string device : {"cuda:999", "emulated"}) {
    const Ended ended = run(lab({"link", "--device", device}));
    expect_refusal(ended);
    EXPECT_NE(ended.err.find("--device " + device), std::string::npos) << ended.err;
  }
}

/// A subject that is named after a policy must use this policy.
TEST(IndexSubjects, have_the_default_policy_among_them) {
  EXPECT_EQ(tools::to_string(tools::SubjectKind{}), "terrace-adaptive");
  EXPECT_NE(dynamic_cast<AdaptivePolicy*>(ManagerConfig{}.policy(1).get()), nullptr);
}

TEST(IndexSubjects, agree_on_every_hit) {
  // A realistic workload: prompts with shared beginnings, in a cache that is too small for them.
  Random random{test::seed_from_env_or(1)};
  constexpr std::uint32_t capacity = 300;
  std::vector<std::unique_ptr<tools::IndexSubject>> subjects;
  for (const auto kind :
       {tools::SubjectKind::terrace_lru, tools::SubjectKind::tree, tools::SubjectKind::map, tools::SubjectKind::floor}) {
    subjects.push_back(tools::make_subject(kind, capacity));
  }
  tools::KeyMaker keys{BlockKey{}};
  std::uint64_t hits = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::uint64_t> ids(random.between(1, 40));
    std::uint64_t id = random.below(4);
    for (std::uint64_t& each : ids) each = id = id * 3 + (random.chance(0.9) ? 1 : random.below(3));
    const std::vector<BlockKey> prompt = keys.keys(ids);
    const std::uint32_t expected = subjects.front()->match(prompt);
    hits += expected;
    for (const auto& subject : subjects) {
      ASSERT_EQ(subject->match(prompt), expected);
      ASSERT_EQ(subject->serve(prompt), expected);
      ASSERT_EQ(subject->match(prompt), prompt.size());
    }
    if (i % 100 == 99) {
      for (const auto& subject : subjects) subject->evict(17);
    }
  }
  EXPECT_GT(hits, 10'000U);
}

class BadBench : public testing::TestWithParam<Words> {};
INSTANTIATE_TEST_SUITE_P(
    All, BadBench,
    testing::Values(Words{}, Words{"speed"}, Words{"keys", "--block-tokens", "0"},
                    Words{"keys", "--block-tokens", "64", "--prompt-tokens", "63"}, Words{"keys", "--prompts", "0"},
                    Words{"keys", "--rounds", "0"}, Words{"keys", "--rounds", "-1"}, Words{"index", "--blocks", "3"},
                    Words{"index", "--blocks", "255"}, Words{"index", "--rounds", "0"}, Words{"index", "--trace", "absent.jsonl"},
                    Words{"index", "--trace", "absent.jsonl", "--block-tokens", "100"}, Words{"transfer", "--device", "tpu"},
                    Words{"transfer", "--device", "cuda:x"}, Words{"transfer", "--block-bytes", "64KB"},
                    Words{"transfer", "--block-bytes", "63"}, Words{"transfer", "--block-bytes", "2GiB"},
                    Words{"transfer", "--blocks", "0"}, Words{"transfer", "--blocks", "1"},
                    Words{"transfer", "--blocks", "2000000"}, Words{"transfer", "--blocks", "-4"},
                    Words{"transfer", "--area", "4KiB"}, Words{"transfer", "--blocks", "8", "--area", "1MiB"},
                    Words{"transfer", "--blocks", "1000000", "--block-bytes", "1GiB"}, Words{"transfer", "--rounds", "0"},
                    Words{"transfer", "--rounds", "many"}, Words{"transfer", "--pieces-in-flight", "0"},
                    Words{"transfer", "--piece-bytes", "large"}, Words{"transfer", "--layers", "0"},
                    Words{"transfer", "--link", "fast"}));

TEST_P(BadBench, ends_with_2_and_one_line) {
  const Ended ended = run(lab(GetParam()));
  expect_refusal(ended);
  EXPECT_EQ(ended.out, "");
}

Words storage_words(const TemporaryDirectory& directory, const Words& more) {
  return lab({"storage", "--directory", directory.path().string()}, more);
}

TEST(CliBench, of_storage_reports_every_size_depth_and_way_beside_plain_io) {
  for (const char* const io : {"auto", "threads"}) {
    const TemporaryDirectory directory;
    const TemporaryDirectory disk;
    const std::string file = (directory.path() / "r.json").string();
    const Ended ended = run(storage_words(disk, {"--size", "2MiB", "--sizes", "4KiB,64KiB", "--depths", "1,3", "--moved",
                                                 "256KiB", "--rounds", "2", "--io", io, "--report", file}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    EXPECT_NE(ended.out.find("fio --name=plain"), std::string::npos);
    const boost::json::value report = report_in(directory);
    EXPECT_EQ(report.at("rounds"), 2);
    const std::string engine{report.at("io").as_string()};
    EXPECT_EQ(engine == "16 threads", io == std::string{"threads"} || UringIo::unavailable()) << engine;
    std::set<std::string> rows;
    for (const boost::json::value& row : report.at("storage").as_array()) {
      rows.insert(std::to_string(row.at("block_bytes").to_number<int>()) + " " +
                  std::to_string(row.at("depth").to_number<int>()) + " " + std::string{row.at("way").as_string()});
      for (const char* const field : {"store_gb_per_s", "store_ratio", "engine_gb_per_s", "engine_ratio", "plain_gb_per_s"}) {
        EXPECT_GT(row.at(field).to_number<double>(), 0) << field;
      }
    }
    EXPECT_EQ(rows, (std::set<std::string>{"4096 1 read", "4096 1 write", "4096 3 read", "4096 3 write", "65536 1 read",
                                           "65536 1 write", "65536 3 read", "65536 3 write"}));
    EXPECT_TRUE(std::filesystem::is_empty(disk.path())) << "left as it was";
  }
}

TEST(CliBench, of_storage_reads_and_writes_all_disks_of_a_striped_store) {
  for (const char* const io : {"auto", "threads"}) {
    const TemporaryDirectory directory;
    const TemporaryDirectory disk;
    const TemporaryDirectory second;
    const std::string file = (directory.path() / "r.json").string();
    const Ended ended =
        run(storage_words(disk, {"--stripe", second.path().string(), "--size", "16MiB", "--sizes", "64KiB", "--depths", "2",
                                 "--moved", "1MiB", "--rounds", "2", "--io", io, "--report", file}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    const boost::json::value report = report_in(directory);
    EXPECT_EQ(report.at("directories"), 2);
    EXPECT_EQ(report.at("storage").as_array().size(), 2U);
    EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
    EXPECT_TRUE(std::filesystem::is_empty(second.path())) << "left as it was";
  }
}

TEST(CliBench, of_storage_refuses_what_cannot_be) {
  const TemporaryDirectory disk;
  const std::vector<std::pair<Words, std::string>> bad{{{"--rounds", "0"}, "--rounds 0"},
                                                       {{"--sizes", "6KiB"}, "a multiple of 4KiB"},
                                                       {{"--sizes", "2GiB"}, "1GiB at most"},
                                                       {{"--depths", "0"}, "--depths 0"},
                                                       {{"--size", "64KiB"}, "at least twice the depth"},
                                                       {{"--size", "4096TiB", "--sizes", "4MiB"}, "are free"},
                                                       {{"--stripe", "/no/such/place"}, "--stripe /no/such/place: No such file"},
                                                       {{"--io", "aio"}, "there is: auto, uring, threads"}};
  for (const auto& [words, part] : bad) {
    const Ended ended = run(storage_words(disk, words));
    EXPECT_EQ(ended.status, 2) << part;
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
  }
  EXPECT_EQ(run(lab({"storage"})).status, 2) << "without a directory";
  const Ended missing = run(lab({"storage", "--directory", (disk.path() / "none").string()}));
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("No such file or directory"), std::string::npos) << missing.err;
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(CliBench, of_a_restart_tells_it_beside_reading_the_catalog) {
  const TemporaryDirectory disk;
  const std::string file = (disk.path() / "r.json").string();
  const Ended ended =
      run(lab({"restart", "--directory", disk.path().string(), "--blocks", "500", "--rounds", "3", "--report", file}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.out.find("cache, with tree"), std::string::npos) << ended.out;
  const boost::json::value report = report_in(disk);
  EXPECT_EQ(report.at("catalog_bytes").to_number<int>(), 500 * 128);
  EXPECT_GT(report.at("ratio").to_number<double>(), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{disk.path()}, {}), 1) << "the report alone is left";
  for (const Words& words : {Words{"--blocks", "0"}, Words{"--rounds", "0"}, Words{"--path-blocks", "0"}, Words{"--io", "aio"}}) {
    expect_refusal(run(lab({"restart", "--directory", disk.path().string()}, words)));
  }
  EXPECT_EQ(run(lab({"restart", "--directory", (disk.path() / "none").string()})).status, 2);
}

TEST(CliBench, of_storage_leaves_nothing_behind_when_interrupted) {
  const TemporaryDirectory disk;
  OnTerminal program{storage_words(disk, {"--size", "8MiB", "--sizes", "64KiB", "--depths", "4", "--rounds", "1000000"})};
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::minutes{1};
  while (std::filesystem::is_empty(disk.path()) && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
  program.signal(SIGINT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 130) << ended.err;
  EXPECT_NE(ended.err.find("terrace-lab storage: interrupted"), std::string::npos) << ended.err;
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

// ---- help texts of terrace-lab, its complaints, and its further eviction policies

TEST(LabHelp, fits_on_a_screen_of_80_columns_and_says_what_options_take) {
  for (const std::string command : {"", "index", "keys", "link", "offload", "replay", "restart", "room", "shared", "step",
                                    "storage", "tier-store", "transfer"}) {
    const Ended ended = run(command.empty() ? lab({"--help"}) : lab({command, "--help"}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_LE(width(ended.out), 80U) << ended.out;
    EXPECT_NE(ended.out.find("Usage: terrace-lab" + (command.empty() ? "" : " " + command)), std::string::npos) << ended.out;
    for (const char* const type : {"TEXT", "UINT", "FLOAT", "INT "}) {
      EXPECT_EQ(ended.out.find(type), std::string::npos) << ended.out;
    }
  }
}

TEST(LabHelp, complaints_name_the_wrong_word_and_the_nearest_right_one) {
  const Ended ended = run(lab({"storage", "--directroy", "x"}));
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err, "terrace-lab storage: there is no option --directroy; did you mean --directory?\n");
  EXPECT_TRUE(run(lab({})).err.starts_with("terrace-lab: a command is missing: index, keys, ")) << run(lab({})).err;
}

TEST(LabReplay, takes_every_policy) {
  for (const tools::PolicyKind kind : tools::all_policies) {
    const TemporaryDirectory directory;
    const std::string name{to_string(kind)};
    const std::string file = (directory.path() / "r.json").string();
    const Ended ended = run(lab({"replay", "--requests", "50", "--device-blocks", "200", "--host-blocks", "0", "--block-bytes",
                                 "4KiB", "--policy", name, "--report", file}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(report_in(directory).at("config").at("policy").as_string(), name);
  }
}

}  // namespace
}  // namespace terrace::test
