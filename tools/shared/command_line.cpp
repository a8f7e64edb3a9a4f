#include "tools/shared/command_line.hpp"

#include "terrace/groups.hpp"
#include "terrace/options.hpp"
#include "tools/arguments.hpp"
#include "tools/config/flags.hpp"
#include "tools/shared/check.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tools {
namespace {

constexpr const char* check_help = R"(
Asks each server about itself, and writes, finds, reads and removes some blocks
by the client that a cache uses. Its blocks have a fingerprint of their own and
expire within a minute, so nobody finds them. An interrupt (Ctrl-C) removes
them first. The password is the first line of a file, or in the variable
TERRACE_SHARED_PASSWORD.

Exit status: 0 it can be used (there may be warnings); 1 it cannot be reached,
or not be used like this; 2 bad arguments; 130 interrupted.

Examples:
  terrace shared check redis://cache-1:6379
  terrace shared check "rediss://kv@cache-1:6379?cluster=1" \
      --shared-password-file /etc/terrace/shared-password
  terrace shared check --config /etc/terrace.toml \
      --prefill-tokens-per-second 8000
      also tells whether loading blocks pays)";

/// The options of the table [shared] that matter to a check.
constexpr std::array<std::string_view, 7> wanted{"password-file",        "ca-file",      "secret-file",   "prefix",
                                                 "connections-per-node", "window-bytes", "probe-deadline"};

void add_config(CLI::App& command, SharedArguments& arguments) {
  const std::vector<ConfigOption> table = arguments.config.table();
  std::vector<std::string_view> without;
  for (const ConfigOption& option : table) {
    const bool takes = option.table == "shared" && std::ranges::find(wanted, option.key) != wanted.end();
    if (!takes) without.emplace_back(option.flag);
  }
  add_config_flags(command, arguments.config, arguments.config_file, without);
}

SharedCheckOptions resolve(SharedArguments& arguments) {
  read_config(arguments.config, arguments.config_file);
  const CacheSystemOptions options = options_of(arguments.config);
  if (!options.shared) {
    throw UsageError{"no shared store is named: give its URL (redis://HOST:PORT), or --config FILE with a table [shared]"};
  }
  if (!options.shared->url.starts_with("redis")) {
    throw UsageError{
        fmt::format("{}: there is no server to check; URLs of servers begin with redis:// or rediss://", options.shared->url)};
  }
  SharedCheckOptions check{.shared = *options.shared, .json = arguments.json};
  SharedNeeds& needs = check.needs;
  needs.probe_deadline = options.shared->probe_deadline;
  // The sizes of a configuration count, if there is one.
  if (!arguments.config_file.empty()) needs.block_bytes = options.pools.front().block_bytes;
  if (!options.groups.empty()) needs.block_tokens = options.groups.front().block_tokens;
  else if (options.admin.block_tokens > 0) needs.block_tokens = options.admin.block_tokens;
  if (options.groups.empty()) needs.compute_seconds = options.unit_prefill_seconds;
  else
    needs.compute_seconds =
        options.unit_prefill_seconds * needs.block_tokens / hash_unit(options.groups, options.hash_unit_tokens);
  if (arguments.block_bytes) needs.block_bytes = *arguments.block_bytes;
  if (arguments.block_tokens) needs.block_tokens = *arguments.block_tokens;
  if (arguments.prefill_tokens_per_second) needs.compute_seconds = needs.block_tokens / *arguments.prefill_tokens_per_second;
  if (needs.block_bytes == Bytes{} || needs.block_bytes > MiB * 512) {
    throw UsageError{fmt::format("--block-bytes: {} is not 1B to 512MiB", to_string(needs.block_bytes))};
  }
  return check;
}

}  // namespace

void add_shared_options(CLI::App& shared, SharedArguments& arguments) {
  shared.require_subcommand(1);
  CLI::App* const check =
      shared.add_subcommand("check", "Tells whether the servers of a shared store make sense, and are fast enough");
  const auto take = [&arguments](const std::string&, const std::vector<std::string>& words) {
    as_usage([&] { arguments.config.set("--shared", words.front()); });
  };
  add_words(*check, "URL", Words::one, take, "URL", "redis://[USER@]HOST[:PORT][,...][?cluster=1], or rediss:// (over TLS)");
  add_value(*check, "--block-bytes", arguments.block_bytes, to_size, "SIZE",
            "Size of a block (default: that of the configuration, or 2MiB)");
  add_value(*check, "--block-tokens", arguments.block_tokens, WholeNumber<std::uint32_t>{1}, "COUNT",
            "Tokens of a block (default: those of the configuration, or 16)");
  add_value(*check, "--prefill-tokens-per-second", arguments.prefill_tokens_per_second, to_positive_number, "NUMBER",
            "Tokens of prompts that the engine computes in a second, to tell whether loading pays");
  check->add_flag("--json", arguments.json, "One JSON object on standard output");
  add_config(*check, arguments);
  check->footer(check_help);
}

ExitStatus run_shared(SharedArguments& arguments) { return check_shared(resolve(arguments)); }

}  // namespace terrace::tools
