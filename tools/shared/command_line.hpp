#pragma once

#include "terrace/config.hpp"
#include "terrace/types.hpp"
#include "tools/cli.hpp"
#include "tools/exit_status.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace terrace::tools {

/// The command line of `terrace shared`.
struct SharedArguments {
  Config config{};
  std::filesystem::path config_file{};
  std::optional<Bytes> block_bytes{};
  std::optional<std::uint32_t> block_tokens{};
  std::optional<double> prefill_tokens_per_second{};
  bool json = false;
};

/// Adds `shared check` and its flags. `arguments` must outlive the parsing.
void add_shared_options(CLI::App& shared, SharedArguments& arguments);

/// Runs the command. Throws UsageError for a wrong URL or configuration and for files that cannot be read.
[[nodiscard]] ExitStatus run_shared(SharedArguments& arguments);

}  // namespace terrace::tools
