// Help texts of terrace-lab, its complaints, and its further eviction policies.
#include "lab/policies/policies.hpp"
#include "tests/lab/lab_words.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace terrace::test {
namespace {

TEST(LabHelp, fits_on_a_screen_of_80_columns_and_says_what_options_take) {
  for (const std::string command :
       {"", "index", "keys", "link", "offload", "replay", "restart", "room", "shared", "storage", "tier-store", "transfer"}) {
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
