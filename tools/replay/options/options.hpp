#pragma once

#include "runtime/cache/types/config.hpp"
#include "terrace/config.hpp"
#include "terrace/groups.hpp"
#include "terrace/options.hpp"
#include "terrace/policies.hpp"
#include "terrace/system.hpp"
#include "terrace/types.hpp"
#include "tools/cli.hpp"
#include "tools/replay/workload/hints.hpp"
#include "tools/usage_error.hpp"
#include "transfer/emulated/emulated_device.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// Which hits in tiers below the device are loaded.
enum class Loads : unsigned char {
  measured,  ///< those that are faster to load than to compute
  always,
  host,  ///< only those in the host tier
  none,
};
[[nodiscard]] std::string_view to_string(Loads loads);

enum class Mode : unsigned char {
  confined,  ///< one thread owns the cache and polls it, as an engine's scheduler does
  loop,      ///< an event loop, and a coroutine for each request
};
enum class Verify : unsigned char {
  all,     ///< every hit block
  sample,  ///< every sixteenth
  none,
};
enum class Release : unsigned char {
  done,    ///< when the request's work is computed
  launch,  ///< when the request's last work is launched, with its fence, as an asynchronous scheduler does
};

/// A fault planted in the emulated device, to show that the verification detects it.
enum class Fault : unsigned char {
  none,
  flip,      ///< flips one bit in every 7th block that is swapped out
  late,      ///< reports every 5th swap-in as done before its bytes have moved
  no_fence,  ///< copies do not wait for the computation, which starts each work late; leases end when work is launched
};

[[nodiscard]] std::string_view to_string(Mode mode);
[[nodiscard]] std::string_view to_string(Verify verify);
[[nodiscard]] std::string_view to_string(Release release);
[[nodiscard]] std::string_view to_string(Fault fault);
[[nodiscard]] EmulatedFaults emulated(Fault fault);
/// The unit of planted faults in messages: "blocks" or "copies".
[[nodiscard]] std::string_view planted_unit(Fault fault);

/// The complete and consistent options of a replay.
struct ReplayOptions {
  static constexpr std::uint32_t block_tokens_max = 1 << 20;
  static constexpr std::uint64_t all_requests = std::numeric_limits<std::uint64_t>::max();

  std::filesystem::path trace;  ///< empty: the workload is used
  std::string workload = "chat";
  std::uint64_t seed = 1;
  std::uint64_t skip = 0;                     ///< number of first requests to leave out
  std::uint64_t requests_max = all_requests;  ///< number of requests to serve after those
  std::uint32_t block_tokens = 0;

  /// The options of the cache as configured. The fields below that it has too are those that a replay changes; they win.
  CacheSystemOptions system;
  Bytes block_bytes = KiB * 64;
  /// The KV cache groups, by GroupId, with their pools; empty: one with full attention. A hash unit has block_tokens tokens.
  std::vector<GroupConfig> groups{};
  /// The pools of the groups, by PoolId, if the configuration describes both; empty: pools_of() makes them.
  std::vector<PoolOptions> pools{};
  std::uint32_t layers = 1;  ///< of a block, the most of all pools; requests are by layer if there are several
  std::uint32_t device_blocks = 3000;
  std::uint32_t host_blocks = 8000;
  WritePolicy write_policy = WritePolicy::none;
  /// If set: at the end, also after an interruption, cached blocks are written to storage within this time. Otherwise storage has
  /// only what the write policy stored.
  std::optional<std::chrono::duration<double>> checkpoint;
  ConfigPolicy policy{"lru", lru_policy};  ///< the default is that of a reference run; resolve() uses adaptive for other runs

  bool reference = false;
  bool bound = false;                     ///< also compute the hits of LRU, and of a cache that knows the future
  std::uint32_t concurrency = 0;          ///< maximum number of requests in flight
  std::uint64_t step_tokens = 8192;       ///< the most tokens computed in a step; in loop mode, of one request at a time
  std::uint64_t output_tokens_max = 128;  ///< the most output tokens of a request
  bool cache_output = true;
  bool tell_output = true;  ///< tell the cache the output length of each request
  Oracle::Options hints;    ///< what else it is told after a request
  double abort_rate = 0;    ///< share of the requests, 0 to 1
  /// how many times faster the trace's clock runs; empty: requests come as fast as they can be served
  std::optional<double> speed;
  /// If set: each request is announced so long before it is due, and its blocks are brought up to the host tier
  /// (Cache::prefetch).
  std::optional<std::chrono::duration<double>> prefetch_ahead;
  double prefill_speed = 0;  ///< the most tokens computed in a second; 0: no limit
  Loads loads = Loads::always;
  Mode mode = Mode::confined;
  std::uint32_t threads = 1;  ///< of the event loop
  Verify verify = Verify::all;
  Release release = Release::done;
  Fault inject = Fault::none;
  std::filesystem::path report;  ///< empty: no report

  /// By rank, at least one: the number of a CUDA device; empty for an emulated one.
  [[nodiscard]] std::vector<std::optional<int>> devices() const;
  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(system.ranks.size()); }
  [[nodiscard]] std::uint32_t emulated_ranks() const;
  [[nodiscard]] bool has_storage() const { return !std::holds_alternative<NoStorage>(system.storage); }
};

/// The command line as given. Each value is already converted and checked by itself.
struct ReplayArguments {
  ReplayOptions options;                     ///< a value that was not given has the default that it has without other options
  Config config{};                           ///< the options of the cache
  std::filesystem::path config_file;         ///< --config; empty: none
  std::string groups;                        ///< --groups; empty: those of the configuration
  std::set<std::string, std::less<>> given;  ///< the names of the given options that are not in `config`, without switches

  [[nodiscard]] bool has(std::string_view option) const { return given.contains(option); }
};

/// Adds the options of `terrace replay` and their help to `command`. Parsing converts and checks each value by
/// itself, and stores it in `into`, which must outlive the command. Parsing throws UsageError for a wrong value, and
/// CLI::ParseError for everything else.
void add_replay_options(CLI::App& command, ReplayArguments& into);

/// Adds the defaults that depend on other options, and refuses invalid combinations. Does no I/O: read_config() reads the file
/// and the environment before. Throws UsageError.
[[nodiscard]] ReplayOptions resolve(const ReplayArguments& arguments);

/// Reads the groups of --groups: KIND:BLOCK_TOKENS[:SPAN][:optional],... for example "full:512,window:512:2048". Throws
/// UsageError.
[[nodiscard]] std::vector<GroupConfig> to_groups(const std::string& option, const std::string& word);

/// Takes the groups of the configuration, with their pools. One group with full attention is a model without groups, whose blocks
/// have as many tokens. Without --block-tokens and without a trace, a key stands for as many tokens as the groups allow.
void take_groups(ReplayOptions& options, bool has_block_tokens);

/// Checks groups and layers against the other options, and gives each group of --groups its pool: groups with blocks of as many
/// tokens share one. `config` says how the user names what is wrong. Throws UsageError.
void choose_groups(ReplayOptions& options, const Config& config = Config{});

/// The groups of the model: those of the options, or one with full attention.
[[nodiscard]] std::vector<GroupConfig> groups_of(const ReplayOptions& options);

/// The number of the group whose hits are counted: the first one with full attention that is not optional.
[[nodiscard]] std::size_t counted_group(std::span<const GroupConfig> groups);

/// The pools of the replay, by PoolId: those of the configuration, if it describes groups. For --groups, a block has
/// --block-bytes for each --block-tokens tokens. Each group has room for as many tokens as --device-blocks and --host-blocks say;
/// null blocks come in addition.
[[nodiscard]] std::vector<PoolOptions> pools_of(const ReplayOptions& options);

/// The most hash units for which every group has device blocks. A recurrent group needs only the last block.
[[nodiscard]] std::uint32_t device_units(const ReplayOptions& options);

}  // namespace terrace::tools
