#pragma once

#include "terrace/types.hpp"
#include "tools/replay/report/verdict.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace terrace::tools {

/// The command line of `terrace store`.
struct StoreArguments {
  enum class Part : unsigned char { stat, list, show, verify, remove };

  Part part = Part::stat;
  std::filesystem::path directory;
  bool json = false;
  std::optional<std::uint64_t> limit;  ///< list
  std::string wanted_namespace;        ///< list
  std::string key;                     ///< show
  unsigned threads = 4;                ///< verify
  BytesPerSecond bandwidth{};          ///< verify: 0 is no limit
  std::vector<std::string> keys;       ///< remove
  bool all = false;                    ///< remove
  bool yes = false;                    ///< remove
};

/// Adds `store stat`, `store list`, `store show`, `store verify`, `store remove` and their flags. `arguments` must outlive the
/// parsing.
void add_store_options(CLI::App& store, StoreArguments& arguments);

/// Runs the command. Results go to standard output. If a check failed or the user interrupted the run, one line goes to standard
/// error. Throws UsageError for invalid arguments, for a directory that is no store, and for a store in use that must not be;
/// throws std::exception if the work itself fails.
[[nodiscard]] ExitStatus run_store(const StoreArguments& arguments);

}  // namespace terrace::tools
