// terrace version, terrace manual, terrace completion, help texts and error messages about arguments.

#include "tests/paths.hpp"
#include "tests/tools/cli/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

TEST(CliVersion, says_what_is_compiled_in) {
  const Ended text = run(program({"version"}));
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* const line : {"compiler       ", "Boost          ", "CUDA           ", "io_uring       ", "Prometheus     ",
                                 "C interface    0.", "store formats  1, 2\n"}) {
    EXPECT_NE(text.out.find(line), std::string::npos) << line << " is missing in\n" << text.out;
  }
  EXPECT_TRUE(text.out.starts_with(run(program({"--version"})).out)) << text.out;
}

TEST(CliVersion, is_one_json_object_too) {
  const Ended ended = run(program({"version", "--json"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  const boost::json::object facts = boost::json::parse(ended.out).as_object();
  EXPECT_EQ("terrace " + std::string{facts.at("version").as_string()} + "\n", run(program({"--version"})).out);
  for (const char* const name : {"compiler", "boost", "build_type", "c_interface"}) {
    EXPECT_FALSE(facts.at(name).as_string().empty()) << name;
  }
  EXPECT_TRUE(facts.at("io_uring").is_bool() && facts.at("prometheus").is_bool());
  EXPECT_EQ(facts.at("store_formats"), (boost::json::array{1, 2}));
  if (!facts.at("cuda").is_null()) {
    EXPECT_FALSE(facts.at("cuda").at("kernels").as_array().empty());
  }
}

TEST(CliAbout, refuses_what_it_does_not_know) {
  const std::vector<std::pair<Words, std::string>> expected{
      {{"version", "--jsno"}, "terrace version: there is no option --jsno; did you mean --json?\n"},
      {{"manual", "--html"}, "terrace manual: there is no option --html\n"},
      {{"completion", "fish"}, "terrace completion: shell: there is no \"fish\"; there is: bash\n"},
      {{"completion"}, "terrace completion: shell is required\n"}};
  for (const auto& [words, line] : expected) {
    const Ended ended = run(program(words));
    EXPECT_EQ(ended.status, 2);
    EXPECT_EQ(ended.err, line);
    EXPECT_EQ(ended.out, "");
  }
}

/// The commands and options that a help text lists.
struct Listed {
  std::vector<std::string> commands;
  std::set<std::string> options;
};

Listed listed_in(const std::string& help) {
  Listed listed;
  std::istringstream lines{help};
  bool are_commands = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(' ')) are_commands = line == "Commands:";
    if (!line.starts_with("  ") || line.starts_with("   ")) continue;
    std::istringstream words{line};
    std::string word;
    if (are_commands && words >> word) listed.commands.push_back(word);
    // The names of an option stand in front of its description, which begins after two spaces.
    if (line[2] != '-') continue;
    std::istringstream names{line.substr(2, line.find("  ", 2) - 2)};
    while (names >> word) {
      if (word.starts_with("--")) listed.options.insert(word.substr(0, word.find(',')));
    }
  }
  return listed;
}

/// Calls `look` with the words and the complete help of each command.
template <class Look>
void for_each_command(const Words& command, const Look& look) {
  Words words = command;
  words.emplace_back("--help-all");
  Ended help = run(program(words));
  words.back() = "--help";
  if (help.status != 0) help = run(program(words));
  ASSERT_EQ(help.status, 0) << help.err;
  const Listed listed = listed_in(help.out);
  look(command, listed);
  for (const std::string& name : listed.commands) {
    words.back() = name;
    for_each_command(words, look);
  }
}

std::string joined(const Words& words) {
  std::string text = "terrace";
  for (const std::string& word : words) text += " " + word;
  return text;
}

/// The text of a manual page without what only formats it.
std::string without_escapes(std::string page) {
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"\\-", "-"}, {"\\fB", ""}, {"\\fR", ""}}) {
    for (std::size_t at = 0; (at = page.find(from, at)) != std::string::npos; at += to.size()) page.replace(at, from.size(), to);
  }
  return page;
}

TEST(CliManual, names_every_command_and_option_of_the_help) {
  const Ended ended = run(program({"manual"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  const std::string page = without_escapes(ended.out);
  std::size_t commands = 0;
  for_each_command({}, [&](const Words& command, const Listed& listed) {
    ++commands;
    const std::string request = command.empty() ? ".SH OPTIONS\n" : command.size() == 1 ? ".SH" : ".SS";
    const std::string head = command.empty() ? request : request + " \"" + joined(command) + "\"\n";
    const std::size_t begin = page.find(head);
    ASSERT_NE(begin, std::string::npos) << head;
    const std::string section = page.substr(begin, page.find("\n.S", begin) - begin);
    EXPECT_FALSE(listed.options.empty()) << head;
    for (const std::string& option : listed.options) {
      const std::size_t at = section.find(option);
      ASSERT_NE(at, std::string::npos) << option << " is missing in\n" << section;
    }
  });
  EXPECT_GT(commands, 30U);
}

TEST(CliManual, is_the_same_each_time_and_has_no_date) {
  const std::string page = run(program({"manual"})).out;
  const std::string version = run(program({"--version"})).out;
  EXPECT_NE(page.find(".TH TERRACE 1 \"\" \"" + version.substr(0, version.size() - 1) + "\" \"User Commands\"\n"),
            std::string::npos);
  EXPECT_EQ(page, run(program({"manual"})).out);
}

TEST(CliManual, is_accepted_by_groff) {
  if (run_in_shell("command -v groff", {}).status != 0) GTEST_SKIP() << "groff is not installed";
  const Ended ended = run_in_shell("\"$@\" | groff -man -Tascii -ww -P-cbou", program({"manual"}));
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  EXPECT_NE(ended.out.find("terrace store verify [OPTIONS] DIRECTORY"), std::string::npos);
  // Examples are shown as they are.
  EXPECT_NE(ended.out.find("         source <(terrace completion bash)\n"), std::string::npos);
}

/// Returns the words that bash offers for the last of `words`, which are split as bash splits them, with the script loaded.
std::set<std::string> completed(const Words& words, const std::filesystem::path& directory = "/") {
  const std::string script = R"(cd "$1" && source <("$2" completion bash) && complete -p terrace >/dev/null || exit 1
compopt() { :; }
COMP_WORDS=(terrace "${@:3}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_terrace
printf '%s\n' "${COMPREPLY[@]}")";
  Words all{"/bin/bash", "-c", script, "bash", directory.string(), paths.program};
  all.insert(all.end(), words.begin(), words.end());
  const Ended ended = run(all);
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  std::set<std::string> offers;
  std::istringstream lines{ended.out};
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) offers.insert(line);
  }
  return offers;
}

using Offers = std::set<std::string>;

TEST(CliCompletion, offers_the_commands_and_options_of_the_help) {
  for_each_command({}, [&](const Words& command, const Listed& listed) {
    Words words = command;
    words.emplace_back("--");
    EXPECT_EQ(completed(words), listed.options) << joined(command);
    if (listed.commands.empty()) return;
    words.back() = "";
    EXPECT_EQ(completed(words), (Offers{listed.commands.begin(), listed.commands.end()})) << joined(command);
  });
}

TEST(CliCompletion, completes_what_has_begun) {
  EXPECT_EQ(completed({"rep"}), (Offers{"replay"}));
  EXPECT_EQ(completed({"store", "ver"}), (Offers{"verify"}));
  EXPECT_EQ(completed({"replay", "--storage-stripe-"}), (Offers{"--storage-stripe-size"}));
  EXPECT_EQ(completed({"replay", "--requests", "3", "--policy", "l"}), (Offers{"lru"}));
  EXPECT_EQ(completed({"replay", "--help", "--poi"}), (Offers{"--poison"})) << "a flag takes no value";
  EXPECT_EQ(completed({"nonsense", "rep"}), (Offers{"replay"}));
}

TEST(CliCompletion, offers_the_values_of_options_with_fixed_choices) {
  EXPECT_EQ(completed({"replay", "--write-policy", ""}), (Offers{"none", "write-through", "selective", "write-back"}));
  EXPECT_EQ(completed({"replay", "--mode", "=", "c"}), (Offers{"confined"}));
  EXPECT_EQ(completed({"replay", "--mode", "="}), (Offers{"confined", "loop"}));
  EXPECT_EQ(completed({"replay", "--relation", "e"}), (Offers{"exclusive"}));
  EXPECT_EQ(completed({"replay", "--cache-output", ""}), (Offers{"on", "off"}));
  EXPECT_EQ(completed({"replay", "--storage", ""}), (Offers{"none", "memory:", "file:"}));
  EXPECT_EQ(completed({"plan", "--write-policy", ""}), (Offers{"write-through", "write-back"}));
  EXPECT_EQ(completed({"plan", "--workload", ""}), (Offers{"chat", "agent", "rag"}));
  EXPECT_EQ(completed({"job", "start", "--scope", "t"}), (Offers{"tenant"}));
  EXPECT_EQ(completed({"completion", ""}), (Offers{"bash"}));
  EXPECT_EQ(completed({"set", "host-"}), (Offers{"host-blocks", "host-capacity"}));
  EXPECT_EQ(completed({"replay", "--requests", ""}), Offers{}) << "any number";
}

TEST(CliCompletion, offers_files_and_directories_where_an_option_takes_them) {
  const TemporaryDirectory directory;
  directory.write("my trace.jsonl", "");
  std::filesystem::create_directory(directory.path() / "my store");
  const auto offers = [&](const Words& words) { return completed(words, directory.path()); };
  const Offers both{"my trace.jsonl", "my store"};
  EXPECT_EQ(offers({"replay", "--config", "m"}), both);
  EXPECT_EQ(offers({"replay", "--report", "=", "my"}), both);
  EXPECT_EQ(offers({"replay", ""}), both) << "the trace";
  EXPECT_EQ(offers({"store", "verify", "my"}), (Offers{"my store"}));
  EXPECT_EQ(offers({"replay", "--storage-stripe", ""}), (Offers{"my store"}));
  EXPECT_EQ(offers({"replay", "--storage", "file", ":"}), (Offers{"my store"}));
  EXPECT_EQ(offers({"replay", "--storage", "file", ":", "m"}), (Offers{"my store"}));
  EXPECT_EQ(offers({"replay", "--storage", "=", "file", ":", "m"}), (Offers{"my store"}));
  EXPECT_EQ(offers({"top", "--socket", "unix", ":", "m"}), both);
  EXPECT_EQ(offers({"replay", "--device", "cuda", ":"}), Offers{});
}

// ---- tools/package: which arguments it accepts and refuses. It builds everything anew, so no test runs it to its end

const std::string package = std::string{paths.source} + "/tools/package";

TEST(CliPackage, explains_itself) {
  const Ended help = run({package, "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const char* const word : {"usage: tools/package", "--output", "--deb", "CUDA toolkit", "gpu-day first"}) {
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  }
}

TEST(CliPackage, refuses_what_it_does_not_know_before_it_builds) {
  for (const Words& words : {Words{"--frobnicate"}, Words{"file.tar.gz"}, Words{"--output"}, Words{"--output", "file.zip"},
                             Words{"--deb", "--wheel"}, Words{"--output", "a.tar.gz", "--deb"}, Words{"--wheel", "x"}}) {
    Words all{package};
    all.insert(all.end(), words.begin(), words.end());
    const Ended ended = run(all);
    EXPECT_EQ(ended.status, 2);
    EXPECT_TRUE(ended.err.starts_with("tools/package: ")) << ended.err;
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << ended.err;
    EXPECT_EQ(ended.out, "");
  }
}

// ---- help texts, error messages about arguments, and the width of lines

const std::vector<Words> all_commands{{},
                                      {"replay"},
                                      {"plan"},
                                      {"doctor"},
                                      {"config"},
                                      {"config", "show"},
                                      {"config", "check"},
                                      {"config", "init"},
                                      {"config", "reference"},
                                      {"store"},
                                      {"store", "stat"},
                                      {"store", "list"},
                                      {"store", "show"},
                                      {"store", "verify"},
                                      {"store", "remove"},
                                      {"shared"},
                                      {"shared", "check"},
                                      {"set"},
                                      {"version"},
                                      {"manual"},
                                      {"completion"}};

Words with(Words words, const std::string& word) {
  words.push_back(word);
  return words;
}

TEST(Help, fits_on_a_screen_of_80_columns_and_says_what_options_take) {
  for (const Words& command : all_commands) {
    std::vector<std::string> flags{"--help"};
    if (command == Words{"replay"} || command == Words{"config", "show"}) flags.emplace_back("--help-all");
    for (const std::string& flag : flags) {
      const Ended ended = run(program(with(command, flag)));
      EXPECT_EQ(ended.status, 0) << ended.err;
      EXPECT_LE(width(ended.out), 80U) << ended.out;
      std::string usage = "Usage: terrace";
      for (const std::string& word : command) usage += " " + word;
      EXPECT_NE(ended.out.find(usage), std::string::npos) << ended.out;
      for (const char* const type : {"TEXT", "UINT", "FLOAT", "INT "}) {
        EXPECT_EQ(ended.out.find(type), std::string::npos) << ended.out;
      }
    }
  }
}

TEST(Help, of_replay_begins_with_what_people_need_and_has_the_rest_elsewhere) {
  const std::string few = run(replay_words({"--help"})).out;
  const std::string all = run(replay_words({"--help-all"})).out;
  for (const char* const option :
       {"--workload NAME", "--requests COUNT", "--device DEVICE", "--device-capacity SIZE", "--host-capacity SIZE",
        "--storage WHERE", "--storage-capacity SIZE", "--write-policy NAME", "--policy NAME", "--report FILE"}) {
    EXPECT_NE(few.find(option), std::string::npos) << option;
    EXPECT_NE(all.find(option), std::string::npos) << option;
  }
  const std::size_t examples = few.find("Examples:");
  EXPECT_LE(std::count(few.begin(), few.begin() + static_cast<std::ptrdiff_t>(few.find("Sizes take")), '\n'), 40);
  EXPECT_NE(few.find("--admin unix:", examples), std::string::npos);
  EXPECT_EQ(few.substr(0, examples).find("--storage-breaker-probe"), std::string::npos);
  EXPECT_NE(all.find("--storage-breaker-probe DURATION"), std::string::npos);
  EXPECT_NE(all.find("--storage-stripe DIR"), std::string::npos);
}

TEST(Complaints, name_the_wrong_word_and_the_nearest_right_one) {
  const std::vector<std::pair<Words, std::string>> expected{
      {{"repaly"}, "there is no command repaly; did you mean replay?"},
      {{"frobnicate"}, "there is no command frobnicate"},
      {{"store", "verfy", "x"}, "there is no command verfy; did you mean verify?"},
      {{"replay", "--reqests", "3"}, "there is no option --reqests; did you mean --requests?"},
      {{"replay", "--requests", "3", "--host-block=4"}, "there is no option --host-block; did you mean --host-blocks?"},
      {{"replay", "--xyzzy"}, "there is no option --xyzzy"},
      {{"bench", "index"}, "there is no command bench; the program terrace-lab measures, and a build from source has it"},
      {{},
       "a command is missing: replay, plan, doctor, store, shared, config, top, why, set, clear, update, pause, resume, "
       "job, trace, record, version, manual, completion"},
      {{"store"}, "a command is missing: stat, list, show, verify, remove"}};
  for (const auto& [words, sentence] : expected) {
    const Ended ended = run(program(words));
    expect_refusal(ended);
    EXPECT_TRUE(ended.err.ends_with(": " + sentence + "\n")) << ended.err;
  }
}

TEST(Tables, fit_on_a_screen_of_80_columns) {
  const TemporaryDirectory directory;
  const std::string store = (directory.path() / "store").string();
  const Words three_tiers{"--storage", "file:" + store,   "--storage-capacity", "16MiB",        "--checkpoint",
                          "10",        "--prefill-speed", "10000000",           "--abort-rate", "0.2"};
  for (const std::string mode : {"confined", "loop"}) {
    Words words = three_tiers;
    words.insert(words.end(), {"--mode", mode});
    const Ended ended = run(replay_words(small(words)));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_LE(width(ended.out), 80U) << ended.out;
  }
  for (const std::string command : {"stat", "list", "verify"}) {
    const Ended ended = run(program({"store", command, store}));
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_LE(width(ended.out), 80U) << ended.out;
  }
}

class Progress : public testing::TestWithParam<unsigned short> {};
INSTANTIATE_TEST_SUITE_P(Columns, Progress, testing::Values(20, 50, 80, 200));

TEST_P(Progress, begins_at_the_first_moment_and_never_fills_more_than_its_line) {
  OnTerminal program{replay_words(small({})), GetParam()};
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 0);
  const std::string erase = "\r\x1b[K";
  EXPECT_TRUE(ended.err.starts_with(erase)) << ended.err;
  EXPECT_TRUE(ended.err.ends_with(erase)) << ended.err;
  if (GetParam() >= 50) {
    EXPECT_NE(ended.err.find("starting: "), std::string::npos);
    EXPECT_NE(ended.err.find("requests  hits"), std::string::npos);
  }
  for (std::size_t at = 0; at < ended.err.size();) {
    const std::size_t begin = at + erase.size();
    at = std::min(ended.err.find(erase, begin), ended.err.size());
    EXPECT_LT(at - begin, GetParam()) << ended.err.substr(begin, at - begin);
  }
}

}  // namespace
}  // namespace terrace::test
