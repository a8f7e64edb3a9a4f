#pragma once

#include "terrace/config.hpp"
#include "tools/cli.hpp"

#include <filesystem>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// Adds --config FILE and a flag for each option of the table (Config::table()), except those in `without`. Help groups follow
/// the table; options that most users need are in the first group, which a short help shows. Parsing sets the values in `config`,
/// and the name of the file in `file`; both must outlive the parsing. It throws UsageError for a wrong value.
void add_config_flags(CLI::App& command, Config& config, std::filesystem::path& file,
                      const std::vector<std::string_view>& without = {});

/// Reads the file, if one is named, and the environment of the process. Throws UsageError.
void read_config(Config& config, const std::filesystem::path& file);

/// The same as Config::options(), with UsageError.
[[nodiscard]] CacheSystemOptions options_of(const Config& config);

}  // namespace terrace::tools
