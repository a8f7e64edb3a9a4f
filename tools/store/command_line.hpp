#pragma once

#include "terrace/types.hpp"
#include "tools/cli.hpp"
#include "tools/exit_status.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// The command line of `terrace store`.
struct StoreArguments {
  /// Runs the chosen command. Results go to standard output. If a check failed or the user interrupted the run, one line goes to
  /// standard error. Throws UsageError for invalid arguments, for a directory that is no store, and for a store in use that must
  /// not be; throws std::exception if the work itself fails.
  ExitStatus (*run)(const StoreArguments&) = nullptr;
  std::filesystem::path directory;
  bool json = false;
  std::optional<std::uint64_t> limit;  ///< list
  std::string wanted_namespace;        ///< list: first hexadecimal digits of the namespace; empty: all
  std::string key;                     ///< show: first hexadecimal digits of the key
  unsigned threads = 4;                ///< verify
  BytesPerSecond bandwidth{};          ///< verify: 0 is no limit
  std::vector<std::string> keys;       ///< remove: first hexadecimal digits of the keys
  bool all = false;                    ///< remove
  bool yes = false;                    ///< remove
};

/// Adds `store stat`, `store list`, `store show`, `store verify`, `store remove` and their flags. `arguments` must outlive the
/// parsing.
void add_store_options(CLI::App& store, StoreArguments& arguments);

// The commands. They throw UsageError if there is no store to read, too.

[[nodiscard]] ExitStatus print_stat(const StoreArguments& arguments);
/// Lists the blocks of the store. A folder that is no store itself: the stores below it, unless there is one only, with the
/// default name.
[[nodiscard]] ExitStatus print_list(const StoreArguments& arguments);
/// Returns check_failed if the block's data do not match its checksum. Throws UsageError also if no block or several blocks
/// match.
[[nodiscard]] ExitStatus show_block(const StoreArguments& arguments);
/// Reads the data of all blocks and shows a progress line. SIGINT and SIGTERM end it in an orderly way.
[[nodiscard]] ExitStatus verify_store(const StoreArguments& arguments);
/// Removes blocks from a store that is not in use. Throws UsageError, and has changed nothing, if a process has it open, or if
/// one of the keys matches no block or several blocks.
[[nodiscard]] ExitStatus remove_blocks(const StoreArguments& arguments);

}  // namespace terrace::tools
