#pragma once

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

/// `terrace store`, as typed.
struct StoreArguments {
  enum class Part : unsigned char { stat, list, show, verify, remove };

  Part part = Part::stat;
  std::filesystem::path directory;
  bool json = false;
  std::optional<std::uint64_t> limit;  ///< list
  std::string wanted_namespace;        ///< list
  std::string key;                     ///< show
  unsigned threads = 4;                ///< verify
  std::string bandwidth;               ///< verify
  std::vector<std::string> keys;       ///< remove
  bool all = false;                    ///< remove
  bool yes = false;                    ///< remove
};

/// Adds `store stat`, `store list`, `store show`, `store verify`, `store remove` and their flags. `arguments` outlives the
/// parsing.
void add_store_options(CLI::App& store, StoreArguments& arguments);

/// Runs what was asked for; results on standard output, one line on standard error where a check failed or was interrupted.
/// Throws UsageError for arguments that make no sense, a directory that is no store and one that is in use where it must not
/// be; std::exception where the work itself breaks.
[[nodiscard]] ExitStatus run_store(const StoreArguments& arguments);

}  // namespace terrace::tools
