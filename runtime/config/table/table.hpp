#pragma once

#include "runtime/config/table/values.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/options.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The one table of options. Everything that names an option, its type, default, limits or help reads it here.
namespace terrace::config {

/// The values of all options before they are checked together. Most of them are fields of CacheSystemOptions already; the others
/// become fields in assemble().
struct Draft {
  struct Pool {
    PoolOptions sizes;
    std::optional<Bytes> device_capacity;
    std::optional<Bytes> host_capacity;
  };
  struct Rank {
    std::string device = "emulated";
    std::string calibration;
    LinkModel link;  ///< latency and jitter of swap_in are used for both directions
  };

  CacheSystemOptions system;
  std::string policy = "adaptive";
  std::optional<std::uint32_t> ranks_count;
  Duration unit_prefill{};
  std::optional<std::array<std::byte, 32>> fingerprint;
  std::string storage = "none";  ///< none, memory:, file:DIR
  std::optional<Bytes> storage_capacity;
  std::vector<std::string> stripe;  ///< directories after the first
  FileStorage file;
  bool guarded = true;  ///< true if `guard` is used
  ResilienceOptions guard;
  std::string shared = "none";  ///< none, or a URL
  SharedStorage shared_storage;
  std::vector<Pool> pools;  ///< in place of CacheSystemOptions::pools
  std::vector<Rank> ranks;
  std::vector<GroupConfig> groups;
};

/// The defaults of all options. They are the defaults of CacheSystemOptions, except for the sizes of a pool, which have no
/// default there.
[[nodiscard]] Draft default_draft(std::size_t pools, std::size_t ranks, std::size_t groups);

/// The part of a configuration that has its own value of an option.
enum class Scope : unsigned char {
  whole,
  pool,   ///< each [[pool]]
  rank,   ///< each [[rank]]
  group,  ///< each [[group]]
};

/// The kind of storage that an option needs to have an effect.
enum class Needs : unsigned char {
  nothing,
  storage,
  files,
  guard,   ///< files, and storage.guard
  shared,  ///< a shared store
  server,  ///< a shared store behind a redis:// or rediss:// URL
  tls,     ///< a shared store behind a rediss:// URL
};

struct Option {
  std::string_view table;  ///< empty for keys in front of all tables; the name of the scope for arrays of tables
  std::string_view key;
  Type type = Type::text;
  Limits limits{};
  std::string_view help;

  // Access to the value. `get` returns nothing if there is no value. The number names the pool, rank or group.
  std::optional<Value> (*get)(const Draft&, std::size_t) = nullptr;
  void (*set)(Draft&, std::size_t, const Value&) = nullptr;

  std::vector<std::string> names{};  ///< for Type::name
  std::string_view old_name{};       ///< another word for names.front()
  std::string_view flag{};           ///< the flag, if it is not the one that flag_name() makes
  std::string_view flag_alias{};
  std::string_view otherwise{};  ///< what applies if no value is set
  std::string_view example{};    ///< TOML, if there is no default
  Needs needs = Needs::nothing;
  bool common = false;
  bool live = false;  ///< Cache::change() can change it

  [[nodiscard]] Scope scope() const;
  /// "storage.io", "pool.host-blocks", "policy".
  [[nodiscard]] std::string name() const;
  /// "--storage-io", "--host-blocks" (of a pool); empty for ranks and groups, whose options are only in files.
  [[nodiscard]] std::string flag_name() const;
  /// "TERRACE_STORAGE_IO"; empty if there is none.
  [[nodiscard]] std::string variable() const;
};

/// A field of CacheSystemOptions that no option sets, with the reason, written to follow "because".
struct FieldWithoutOption {
  std::string_view field;
  std::string_view reason;
};
/// All of them. A field that is not here has an option.
[[nodiscard]] std::span<const FieldWithoutOption> fields_without_option();

/// In the order of files and pages: the options of a table are together.
[[nodiscard]] const std::vector<Option>& options();
/// Null if there is no such option.
[[nodiscard]] const Option* find_option(std::string_view table, std::string_view key);
/// Throws std::out_of_range if there is no option of this name ("storage.io").
[[nodiscard]] const Option& option_named(std::string_view name);
/// The flag or its older name. Null if there is no such option.
[[nodiscard]] const Option* option_of_flag(std::string_view flag);
/// The names of all tables, without the empty one, in their order.
[[nodiscard]] std::vector<std::string> tables();
[[nodiscard]] bool is_array(std::string_view table);

}  // namespace terrace::config
