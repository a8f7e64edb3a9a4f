#pragma once

#include "terrace/config.hpp"
#include "tools/cli.hpp"

#include <filesystem>

namespace terrace::tools {

/// The command line of `terrace config`.
struct ConfigArguments {
  /// Runs the chosen command. Results go to standard output. Throws UsageError for a wrong configuration, and for a file that
  /// `init` must not overwrite; throws std::runtime_error if a file cannot be written.
  void (*run)(ConfigArguments&) = nullptr;
  Config config;               ///< show: the values of flags
  std::filesystem::path file;  ///< show: --config; check, init: the file
  bool json = false;           ///< show
  bool force = false;          ///< init
};

/// Adds `config show`, `config check`, `config init`, `config reference` and their flags. `arguments` must outlive the parsing.
void add_config_commands(CLI::App& command, ConfigArguments& arguments);

}  // namespace terrace::tools
