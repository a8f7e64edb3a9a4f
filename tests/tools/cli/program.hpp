#pragma once

#include "tests/paths.hpp"
#include "tests/tools/cli/subprocess.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace terrace::test {

using Words = std::vector<std::string>;

/// The words of `terrace replay` with these arguments.
inline Words replay_words(const Words& words) {
  Words all{paths.program, "replay"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

inline Words program(const Words& words) {
  Words all{paths.program};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

/// Runs `script` in a shell; "$@" stands for `words`.
inline Ended run_in_shell(const std::string& script, const Words& words) {
  Words all{"/bin/sh", "-c", script, "sh"};
  all.insert(all.end(), words.begin(), words.end());
  return run(all);
}

/// Number of columns of the widest line.
inline std::size_t width(const std::string& text) {
  std::size_t widest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    widest = std::max(widest, end - at);
    at = end + 1;
  }
  return widest;
}

/// Adds options that make a replay small enough for a sanitizer, but with all tiers too small for it.
inline Words small(Words words) {
  const Words tiers{"--block-bytes", "4KiB", "--device-blocks", "300", "--host-blocks", "600", "--requests", "300"};
  words.insert(words.begin(), tiers.begin(), tiers.end());
  return words;
}

inline boost::json::value report_in(const TemporaryDirectory& directory) {
  return boost::json::parse(read_file(directory.path() / "r.json"));
}

/// True if it is one line that begins with the name of the program.
inline bool is_one_line(const std::string& text) { return text.starts_with("terrace") && text.find('\n') == text.size() - 1; }

/// Expects the exit status, and one line that says why.
inline void expect_refusal(const Ended& ended, int status = 2) {
  EXPECT_EQ(ended.status, status);
  EXPECT_TRUE(is_one_line(ended.err)) << ended.err;
}

}  // namespace terrace::test
