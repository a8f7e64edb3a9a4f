#pragma once

#include "tests/tools/subprocess.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <boost/json.hpp>

#include <string>
#include <vector>

namespace terrace::test {

using Words = std::vector<std::string>;

/// `terrace replay` with these words.
inline Words replay_words(const Words& words) {
  Words all{TERRACE_PROGRAM, "replay"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

/// Small enough for a sanitizer, and still under pressure in every tier.
inline Words small(Words words) {
  const Words tiers{"--block-bytes", "4KiB", "--device-blocks", "300", "--host-blocks", "600", "--requests", "300"};
  words.insert(words.begin(), tiers.begin(), tiers.end());
  return words;
}

inline boost::json::value report_in(const TemporaryDirectory& directory) {
  return boost::json::parse(read_file(directory.path() / "r.json"));
}

/// One line, which begins with the program's name.
inline bool is_one_line(const std::string& text) {
  return text.starts_with("terrace") && text.find('\n') == text.size() - 1;
}

}  // namespace terrace::test
