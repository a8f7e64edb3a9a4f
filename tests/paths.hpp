#pragma once

namespace terrace::test {

/// The absolute paths of this build. Only one unit names folders of the machine, so that a compiler cache serves every clone.
struct Paths {
  const char* source;            ///< the root of the source tree
  const char* program;           ///< terrace
  const char* lab;               ///< terrace-lab
  const char* crash_child;       ///< tests/crash: the process that is killed
  const char* tier_store_child;  ///< tests/runtime/store
};
extern const Paths paths;

}  // namespace terrace::test
