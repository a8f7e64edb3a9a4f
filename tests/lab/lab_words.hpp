#pragma once

#include "tests/tools/cli/program.hpp"

namespace terrace::test {

/// The words of `terrace-lab` with these arguments.
inline Words lab(const Words& words, const Words& more = {}) {
  Words all{paths.lab};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace terrace::test
