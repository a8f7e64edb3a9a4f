#pragma once

#include "terrace/export.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The configuration of a cache as text: one table of options, which a TOML file, environment variables and flags can set.
///
/// The table has the name, type, default, limits and help of each option, once. `terrace config`, the flags of `terrace replay`
/// and the reference page docs/configuration.md are made from it. Options that cannot be written as text (functions, objects,
/// memory of the embedder) are not in it: set them in the CacheSystemOptions that options() returns. The reference page lists
/// them.
///
/// Precedence: a flag wins over the environment, the environment wins over the file, and the file wins over the default. The
/// order of the calls below does not matter.
///
/// Units: sizes take B, KiB, MiB, GiB and TiB; bandwidths are sizes per second; durations take ns, us, ms, s, min and h, and are
/// seconds without a unit; shares are numbers from 0 to 1, or percentages.
///
/// Errors: every wrong or unknown name, wrong value and contradiction is a ConfigError with one sentence. It says where the value
/// comes from ("terrace.toml:12"), what is wrong, and what would be right.
///
/// Ownership: all objects are plain values. Threads: one at a time.
///
///     Config config;
///     config.read_file("/etc/terrace.toml");
///     config.read_environment(environ);
///     CacheSystemOptions options = config.options();
///     options.log.sink = &my_log;
///     CacheSystem system{options};

namespace terrace {

class EvictionPolicy;
struct CacheSystemOptions;

/// A configuration is wrong.
class TERRACE_API ConfigError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// The levels that a value can come from. A higher level wins.
enum class ConfigLevel : unsigned char { by_default, file, environment, flag };
[[nodiscard]] TERRACE_API std::string_view to_string(ConfigLevel level);

/// The place that a value comes from.
struct ConfigOrigin {
  ConfigLevel level = ConfigLevel::by_default;
  /// "terrace.toml:12", "TERRACE_HOST_BLOCKS", "--host-blocks"; "default".
  std::string where = "default";
};

/// One value of the effective configuration.
struct ConfigValue {
  std::string name{};  ///< "storage.io", "pool[0].host-blocks"
  /// The value as in a TOML file, without the quotes of a text: "64KiB". Empty if the option has no value.
  std::string value{};
  ConfigOrigin origin{};
};

/// One row of the table, for programs that list the options.
struct ConfigOption {
  std::string table{};  ///< empty, "storage", or "pool", "group", "rank" for an option of an array of tables
  std::string key{};
  bool repeated = false;      ///< the option is in an array of tables: each element has its own value
  std::string flag{};         ///< "--storage-io"; empty: the option has no flag
  std::string flag_alias{};   ///< an older name of the flag, or empty
  std::string environment{};  ///< "TERRACE_STORAGE_IO"; empty: the option has no variable
  std::string type{};         ///< what stands for a value in help texts: "SIZE", "on|off"
  std::string limits{};       ///< "1 to 64", "lru, adaptive", or empty
  /// The value as in a TOML file, with quotes. Empty if the option has no default; `otherwise` then says what applies.
  std::string default_value{};
  std::string otherwise{};
  std::string example{};   ///< a valid value, as in a TOML file, for an option without a default
  std::string help{};      ///< one or several sentences without the end mark
  bool is_switch = false;  ///< the flag needs no value: --storage-accept-lost
  bool common = false;     ///< one of the few options that most users need
  bool live = false;       ///< `terrace set` and Cache::change() can change it while the cache serves
};

/// A further eviction policy that option `policy` may name, besides adaptive and lru.
struct ConfigPolicy {
  std::string name{};
  std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t capacity)> make;
};

class TERRACE_API Config {
 public:
  /// Every option has its default.
  explicit Config(std::vector<ConfigPolicy> more_policies = {});
  ~Config();
  Config(const Config&);
  Config& operator=(const Config&);
  Config(Config&&) noexcept;
  Config& operator=(Config&&) noexcept;

  /// Reads TOML, at most 1 MiB. `name` stands for the text in messages. On an error, this object does not change.
  void read_text(std::string_view text, std::string_view name);
  void read_file(const std::filesystem::path& file);
  /// Reads the variables that begin with TERRACE_. `variables` ends with a null pointer, as `environ` does. A variable of which
  /// no option has the name is ignored, because other programs use such names too (a cluster's service "terrace" sets
  /// TERRACE_PORT). It is refused if it looks like a misspelt name of an option.
  void read_environment(const char* const* variables);
  /// Sets an option by its flag ("--host-blocks") or the flag's older name.
  void set(std::string_view flag, std::string_view value);

  /// Returns true if a file, a variable or a flag sets the option, in any pool, group or rank. `name` is "storage.io" or
  /// "pool.host-blocks". Throws std::out_of_range if there is no such option.
  [[nodiscard]] bool has(std::string_view name) const;
  /// Returns the place that the value comes from; "default" if nothing sets it. For an option of an array of tables, returns the
  /// place of the first element that sets it.
  [[nodiscard]] ConfigOrigin origin(std::string_view name) const;
  /// Returns the name of the option as the user wrote it: "--host-blocks", "TERRACE_HOST_BLOCKS", "terrace.toml:12: host-blocks".
  [[nodiscard]] std::string spelling(std::string_view name) const;
  /// Returns the effective value, which is the default if nothing sets it. For an option of an array of tables, returns the value
  /// of the first pool, group or rank.
  [[nodiscard]] std::string value(std::string_view name) const;

  /// Returns the options of a CacheSystem. Checks all values together. It accesses no device and no directory.
  [[nodiscard]] CacheSystemOptions options() const;
  /// Returns all values in the order of the table. Does not check them together.
  [[nodiscard]] std::vector<ConfigValue> values() const;
  /// Returns the rows of the table, with the additional policies.
  [[nodiscard]] std::vector<ConfigOption> table() const;
  /// Returns the variables that begin with TERRACE_ and do not belong to an option.
  [[nodiscard]] const std::vector<std::string>& ignored_variables() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads one text and returns the options. `name` stands for the text in messages.
[[nodiscard]] TERRACE_API CacheSystemOptions parse_config(std::string_view text, std::string_view name = "configuration");

}  // namespace terrace
