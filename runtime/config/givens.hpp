#pragma once

#include "runtime/config/table/table.hpp"
#include "terrace/config.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::config {

/// The name of an option at a place: "--host-blocks", "TERRACE_HOST_BLOCKS", "terrace.toml:12: pool.host-blocks".
[[nodiscard]] std::string spelled(const Option& option, const ConfigOrigin& origin);
/// The name of an option in a message to a user of this level: "--host-blocks", "TERRACE_HOST_BLOCKS", "pool.host-blocks".
[[nodiscard]] std::string mention(const Option& option, ConfigLevel level);

/// A value that was set on some level.
struct Given {
  Value value;
  ConfigOrigin origin;
};

/// All values that are set, by option and number of the pool, rank or group. If several levels set an option, the highest one
/// stays. A plain value.
class Givens {
 public:
  /// `policies`: the values that option `policy` may have.
  explicit Givens(std::vector<std::string> policies) : policies_{std::move(policies)} {}

  void add(const Option& option, std::size_t n, Given given);
  /// Reads the word of a flag or a variable, and adds its value. `origin.where` is the name of the flag or variable.
  void add_word(const Option& option, std::string_view word, const ConfigOrigin& origin);
  /// Sets the numbers of pools, ranks and groups in a file; 0: it names none, and the number stays. If a flag or a variable has
  /// named the devices, those stay.
  void set_counts(std::size_t pools, std::size_t ranks, std::size_t groups);

  [[nodiscard]] const Given* find(const Option& option, std::size_t n = 0) const;
  /// The first value of the option that is set, for any number; nullptr if none is set.
  [[nodiscard]] const Given* find_any(const Option& option) const;
  /// The level on which the option is set; by_default if it is not set.
  [[nodiscard]] ConfigLevel level(const Option& option, std::size_t n = 0) const;
  [[nodiscard]] std::size_t count(Scope scope) const;
  /// The words that the option accepts.
  [[nodiscard]] std::span<const std::string> names(const Option& option) const;

  /// Reads a word of any option, also an older word for a name. Throws ConfigError, with `name` in front.
  [[nodiscard]] Value read(const Option& option, std::string_view name, std::string_view word) const;

 private:
  void replace_devices(const Option& option, std::string_view words, const ConfigOrigin& origin);

  std::vector<std::string> policies_;
  std::map<std::pair<const Option*, std::size_t>, Given> given_;
  std::size_t pools_ = 1;
  std::size_t ranks_ = 1;
  std::size_t groups_ = 0;
  ConfigLevel devices_level_ = ConfigLevel::by_default;
};

/// All options with their defaults and the given values. If a capacity is set in place of a number of blocks, or the other way
/// round, the other one does not count: see displaced().
[[nodiscard]] Draft draft_of(const Givens& givens);
/// Returns true if the value of the option does not count, because its counterpart (device-blocks and device-capacity,
/// host-blocks and host-capacity) is set on a higher level, or is set while this option is not.
[[nodiscard]] bool displaced(const Givens& givens, const Option& option, std::size_t n);
/// The value in effect. Nothing if there is no value.
[[nodiscard]] std::optional<Value> effective(const Givens& givens, const Draft& draft, const Option& option, std::size_t n);

/// Checks everything together, and makes the options of a CacheSystem. Throws ConfigError.
[[nodiscard]] CacheSystemOptions assemble(const Givens& givens, std::span<const ConfigPolicy> policies);

/// Reads a TOML text into `givens`. Throws ConfigError; `givens` may then be changed in part.
void read_toml(std::string_view text, std::string_view name, Givens& givens);

}  // namespace terrace::config
