#include "tools/text.hpp"
#include "tools/output.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace terrace::tools {
namespace {

struct Sample {
  std::string bytes;
  std::string shown;
};

const std::vector<Sample> samples{
    {"", ""},
    {"plain text ~", "plain text ~"},
    {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
    {"a\x1b[31mb", "a\\x1b[31mb"},
    {"line\nend\r\t", "line\\x0aend\\x0d\\x09"},
    {std::string{"\0", 1}, "\\x00"},
    {"\x7f", "\\x7f"},
    {"\xc2\x9b"
     "2J",
     "\\xc2\\x9b2J"},            // the control sequence introducer as one character
    {"\xff\xc3", "\\xff\\xc3"},  // no lead byte; a lead byte without a second byte
    {"\xc0\x80", "\\xc0\\x80"},  // longer than necessary
    {"\xe0\x80\x80", "\\xe0\\x80\\x80"},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // a surrogate
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // beyond Unicode
    {"\xe2\x28\xa1", "\\xe2(\\xa1"},
};

TEST(Text, is_printable_whatever_the_bytes_and_stays_it) {
  for (const Sample& sample : samples) {
    EXPECT_EQ(printable(sample.bytes), sample.shown);
    EXPECT_EQ(printable(sample.shown), sample.shown);
  }
  EXPECT_EQ(printable_format("{} of {}\n", std::string{"a\nb"}, 3), "a\\x0ab of 3\n");
  EXPECT_EQ(printable_format("{:>4}|", "\x07"), "\\x07|");
}

TEST(Text, as_json_is_valid_whatever_the_bytes) {
  for (const Sample& sample : samples) {
    const std::string text = json_text(boost::json::array{boost::json::string{sample.bytes}, 1});
    boost::system::error_code error;
    const boost::json::value parsed = boost::json::parse(text, error);
    ASSERT_FALSE(error) << sample.shown;
    EXPECT_EQ(printable(text), text) << "no control character";
    if (sample.shown == sample.bytes || sample.bytes == "\x7f") {
      EXPECT_EQ(parsed.as_array().front().as_string(), sample.bytes);
    }
  }
  EXPECT_EQ(json_text(boost::json::string{"\xff"}), "\"\\ufffd\"");
  EXPECT_EQ(json_text(boost::json::string{"\xc2\x9b"}), "\"\\u009b\"");
  EXPECT_EQ(safe_json("{\"a\": \"\x1b\xff\"}\n{}\n"), "{\"a\": \"\\u001b\\ufffd\"}\n{}\n");
}

TEST(Text, as_json_has_fractions_as_people_write_them) {
  const boost::json::value value{0.04717183100000002, -1.0, 0.0, 1e300, 7, "1.5E-3 \\\" 2E1", {{"E", 2.5}}};
  const std::string text = json_text(value);
  EXPECT_EQ(text, "[0.04717183100000002,-1.0,0.0,1e+300,7,\"1.5E-3 \\\\\\\" 2E1\",{\"E\":2.5}]");
  EXPECT_EQ(boost::json::parse(text), value) << "not a bit is lost";
}

}  // namespace
}  // namespace terrace::tools
