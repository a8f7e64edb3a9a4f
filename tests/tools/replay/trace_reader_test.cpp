#include "tools/replay/workload/trace_reader.hpp"
#include "tests/refusal.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/interrupted.hpp"
#include "tools/usage_error.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <string>
#include <vector>

namespace terrace::tools {
namespace {

constexpr const char* two_lines =
    R"({"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]})"
    "\n"
    R"({"timestamp": 30535.5, "input_length": 512, "output_length": 0, "hash_ids": [18446744073709551615], "more": {}})"
    "\n";

std::vector<TraceRequest> read_all(const std::filesystem::path& file) {
  TraceReader reader{TraceFile{file}, 512};
  std::vector<TraceRequest> requests;
  while (std::optional<TraceRequest> request = reader.next()) requests.push_back(std::move(*request));
  return requests;
}

const std::vector<TraceRequest> two_requests{{27482, 1100, 52, {46, 47, 2353}, {}},
                                             {30535.5, 512, 0, {18446744073709551615U}, {}}};

class TraceReaderTest : public testing::Test {
 protected:
  /// The one-line error of reading the file, without the directory.
  std::string failure(const std::filesystem::path& file) {
    try {
      (void)read_all(file);
    } catch (const UsageError& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos);
      const std::string folder = directory_.path().string() + "/";
      return text.starts_with(folder) ? text.substr(folder.size()) : text;
    }
    return "none";
  }
  std::string failure_of_line(const std::string& line) { return failure(directory_.write("t.jsonl", line)); }

  test::TemporaryDirectory directory_;
};

TEST_F(TraceReaderTest, reads_lines_and_ignores_members_it_does_not_know) {
  EXPECT_EQ(read_all(directory_.write("t.jsonl", two_lines)), two_requests);
}

TEST_F(TraceReaderTest, the_first_line_of_a_recording_names_the_size_of_a_block) {
  EXPECT_EQ(usual_block_tokens(directory_.write("t.jsonl", two_lines)), 512U);
  EXPECT_EQ(usual_block_tokens(directory_.write("r.jsonl", "{\"hash_ids\": [], \"block_tokens\": 16}\n")), 16U);
  for (const char* const wrong : {"", "{", "[1]", "{\"block_tokens\": 0}", "{\"block_tokens\": -1}", "{\"block_tokens\": \"x\"}"})
    EXPECT_EQ(usual_block_tokens(directory_.write("w.jsonl", wrong)), 512U) << wrong;
  EXPECT_EQ(usual_block_tokens("-"), 512U) << "a pipe can be read only once";
}

TEST_F(TraceReaderTest, reads_a_last_line_without_its_end_and_skips_empty_ones) {
  std::string text = std::string{"\n"} + two_lines + "  \r\n";
  EXPECT_EQ(read_all(directory_.write("t.jsonl", text)), two_requests);
  text = two_lines;
  text.pop_back();
  EXPECT_EQ(read_all(directory_.write("t.jsonl", text)), two_requests);
}

TEST_F(TraceReaderTest, reads_gzip_by_content_whatever_the_name) {
  const std::filesystem::path file = directory_.path() / "t.jsonl";
  const gzFile out = ::gzopen(file.c_str(), "wb");
  ::gzputs(out, two_lines);
  ::gzclose(out);
  EXPECT_EQ(read_all(file), two_requests);
}

TEST_F(TraceReaderTest, reads_lines_longer_than_its_buffer) {
  TraceRequest request;
  std::string ids;
  for (std::uint64_t i = 0; i < 30'000; ++i) {
    request.hash_ids.push_back(i);
    ids += (i == 0 ? "" : ", ") + std::to_string(i);
  }
  request.input_tokens = 30'000 * 512;
  const std::string line = R"({"timestamp": 0, "output_length": 0, "input_length": 15360000, "hash_ids": [)" + ids + "]}\n";
  EXPECT_EQ(read_all(directory_.write("t.jsonl", line + line)), (std::vector{request, request}));
}

TEST_F(TraceReaderTest, names_file_and_line_of_what_is_malformed) {
  EXPECT_EQ(failure(directory_.write("t.jsonl", std::string{two_lines} + "{\n")), "t.jsonl:3: not JSON: incomplete JSON");
  const std::string rest(100'000, 'x');
  for (const auto& [begin, name] : {std::pair{"\x28\xb5\x2f\xfd", "zstd"},
                                    {"\xfd"
                                     "7zXZ",
                                     "xz"},
                                    {"BZh9", "bzip2"},
                                    {"PK\x03\x04", "zip"},
                                    {"PAR1", "Parquet"},
                                    {"timestamp,input_length\n1,2\n", "CSV"}}) {
    EXPECT_EQ(failure(directory_.write("t.jsonl", begin + rest)),
              std::string{"t.jsonl:1: this is "} + name + ": a trace is lines of JSON, as they are or compressed by gzip");
  }
  EXPECT_TRUE(failure_of_line("[]").starts_with("t.jsonl:1: not a JSON object"));
  EXPECT_EQ(failure_of_line(R"({"input_length": 1, "output_length": 1, "hash_ids": []})"), "t.jsonl:1: \"timestamp\" is missing");
  EXPECT_TRUE(failure_of_line(R"({"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": []})")
                  .starts_with("t.jsonl:1: \"timestamp\""));
  EXPECT_TRUE(failure_of_line(R"({"timestamp": 1, "input_length": -1, "output_length": 1, "hash_ids": []})")
                  .starts_with("t.jsonl:1: \"input_length\""));
  EXPECT_TRUE(failure_of_line(R"({"timestamp": 1, "input_length": 4294967296, "output_length": 1, "hash_ids": []})")
                  .starts_with("t.jsonl:1: \"input_length\""));
  EXPECT_TRUE(failure_of_line(R"({"timestamp": 1, "input_length": 1, "output_length": "x", "hash_ids": []})")
                  .starts_with("t.jsonl:1: \"output_length\""));
  EXPECT_TRUE(failure_of_line(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": 7})")
                  .starts_with("t.jsonl:1: \"hash_ids\""));
  EXPECT_TRUE(failure_of_line(R"({"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1.5]})")
                  .starts_with("t.jsonl:1: a hash id"));
  EXPECT_TRUE(failure_of_line(R"({"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [-1]})")
                  .starts_with("t.jsonl:1: a hash id"));
}

TEST_F(TraceReaderTest, wants_an_id_for_every_full_block_and_none_beyond_the_last) {
  const auto line = [](int ids) {
    std::string text = R"({"timestamp": 1, "input_length": 1025, "output_length": 1, "hash_ids": [)";
    for (int i = 0; i < ids; ++i) text += (i == 0 ? "" : ", ") + std::to_string(i);
    return text + "]}";
  };
  EXPECT_TRUE(failure_of_line(line(1)).starts_with("t.jsonl:1: 1 hash ids for 1025 tokens"));
  EXPECT_EQ(failure_of_line(line(2)), "none");
  EXPECT_EQ(failure_of_line(line(3)), "none");
  EXPECT_TRUE(failure_of_line(line(4)).starts_with("t.jsonl:1: 4 hash ids for 1025 tokens"));
}

TEST_F(TraceReaderTest, says_why_a_file_cannot_be_read) {
  EXPECT_EQ(failure(directory_.path() / "absent"), "absent: cannot open: No such file or directory");
  EXPECT_EQ(failure(directory_.path()), directory_.path().string() + ": is a directory");
}

TEST_F(TraceReaderTest, notices_a_compressed_file_that_was_cut_short) {
  const std::filesystem::path file = directory_.path() / "t.gz";
  const gzFile out = ::gzopen(file.c_str(), "wb");
  for (int i = 0; i < 100; ++i) ::gzputs(out, two_lines);
  ::gzclose(out);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 20);
  EXPECT_NE(failure(file).find("cannot read on"), std::string::npos) << failure(file);
}

TEST_F(TraceReaderTest, skips_a_byte_order_mark_and_takes_no_timestamp_that_is_not_finite) {
  EXPECT_EQ(read_all(directory_.write("t.jsonl", std::string{"\xef\xbb\xbf"} + two_lines)), two_requests);
  for (const char* const timestamp : {"1e999", "1e16"}) {
    const std::string rest = R"(, "input_length": 1, "output_length": 1, "hash_ids": []})";
    const std::string text = failure_of_line(std::string{R"({"timestamp": )"} + timestamp + rest);
    EXPECT_TRUE(text.starts_with("t.jsonl:1: \"timestamp\" is not a number of milliseconds")) << text;
  }
}

TEST_F(TraceReaderTest, refuses_a_line_and_a_decompressed_trace_beyond_their_limits) {
  const auto failure_with = [&](const std::filesystem::path& file, const TraceLimits& limits) {
    return test::refusal_of<UsageError>([&] { (void)scan_trace(TraceFile{file, limits}, 512, 1'000'000, limits); });
  };
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  // In one piece, and across the end of a buffer.
  EXPECT_EQ(failure_with(directory_.write("t.jsonl", two_lines), {.line_max = Bytes{200}}), "");
  const std::string text = failure_with(directory_.write("t.jsonl", two_lines), {.line_max = Bytes{90}});
  EXPECT_TRUE(has(text, "t.jsonl:1: the line is longer than 90B")) << text;
  const std::filesystem::path endless = directory_.write("t.jsonl", std::string(1 << 20, ' '));
  EXPECT_TRUE(has(failure_with(endless, {.line_max = KiB * 512}), "longer than 512KiB"));

  const std::filesystem::path file = directory_.path() / "t.gz";
  const gzFile out = ::gzopen(file.c_str(), "wb");
  for (int i = 0; i < 10'000; ++i) ::gzputs(out, "\n\n\n\n\n\n\n\n\n\n");
  ::gzputs(out, two_lines);
  ::gzclose(out);
  EXPECT_EQ(failure_with(file, {}), "");
  EXPECT_TRUE(has(failure_with(file, {.content_max = KiB * 80}), "decompressed, the trace is longer than 80KiB"));
}

TEST_F(TraceReaderTest, ends_where_it_is_told_not_to_go_on) {
  const auto stop = [] { return false; };
  EXPECT_THROW((void)scan_trace(TraceFile{directory_.write("t.jsonl", two_lines)}, 512, 2, {.go_on = stop}), Interrupted);
  const std::filesystem::path fifo = directory_.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THROW((TraceFile{fifo, {.go_on = stop}}), Interrupted) << "nobody ever writes into it";
}

TEST_F(TraceReaderTest, quotes_no_more_of_a_bad_line_than_helps) {
  const std::string text = failure_of_line(R"({"timestamp": 1, "input_length": ")" + std::string(100'000, 'x') + R"("})");
  EXPECT_LT(text.size(), 200U);
}

TEST_F(TraceReaderTest, a_scan_counts_and_finds_a_bad_line_at_the_end) {
  const TraceSummary summary = scan_trace(TraceFile{directory_.write("t.jsonl", two_lines)}, 512, 100);
  EXPECT_EQ(summary.requests, 2);
  EXPECT_EQ(summary.full_blocks_max, 2);
  EXPECT_EQ(scan_trace(TraceFile{directory_.write("t.jsonl", two_lines)}, 512, 1).requests, 1);
  EXPECT_THROW((void)scan_trace(TraceFile{directory_.write("t.jsonl", std::string{two_lines} + "x")}, 512, 100), UsageError);
  EXPECT_THROW((void)scan_trace(TraceFile{directory_.write("t.jsonl", "")}, 512, 100), UsageError);
}

}  // namespace
}  // namespace terrace::tools
