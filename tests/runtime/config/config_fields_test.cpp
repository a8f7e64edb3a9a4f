// Every field of the options of a cache has an option in the table, or a reason why it has none.
#include "runtime/config/table/table.hpp"
#include "terrace/config.hpp"
#include "terrace/options.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace terrace {
namespace {

using Texts = std::map<std::string, std::string>;

template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<std::uint64_t>(value));
  } else if constexpr (std::is_same_v<T, Duration>) {
    return fmt::format("{}ns", value.count());
  } else if constexpr (requires { value.has_value(); }) {
    return value ? text_of(*value) : "none";
  } else if constexpr (requires { value.value(); }) {
    return std::to_string(value.value());
  } else if constexpr (std::is_pointer_v<T> && !std::is_convertible_v<T, std::string>) {
    return value == nullptr ? "null" : "set";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else {
    return value;
  }
}

/// The fields of options, by name, as text. Each function names all fields of one structure, so that it does not compile any more
/// when the structure gets a further field: add it here, and its option to the table (runtime/config/table/table.cpp).
class Fields {
 public:
  explicit Fields(const CacheSystemOptions& options) { add(options); }

  [[nodiscard]] const Texts& texts() const { return texts_; }

 private:
  template <class T>
  void put(const std::string& name, const T& value) {
    texts_[name] = text_of(value);
  }
  /// The same for several variables, which have the names of their fields. `names`: "a, b, c".
  template <class... T>
  void put_all(const std::string& prefix, std::string_view names, const T&... values) {
    const auto next = [&] {
      const std::size_t end = std::min(names.find(','), names.size());
      const std::string name = prefix + std::string{names.substr(0, end)};
      names.remove_prefix(std::min(end + 2, names.size()));
      return name;
    };
    (put(next(), values), ...);
  }
#define PUT(prefix, ...) put_all(prefix, #__VA_ARGS__, __VA_ARGS__)

  static std::string element(const std::string& name, std::size_t n) { return n == 0 ? name : fmt::format("{}[{}]", name, n); }

  void add(const CacheSystemOptions& options) {
    const auto& [ranks, rank_payload, groups, hash_unit_tokens, pools, engine_owns_slots, key_order, host_warm_up, host_touch,
                 memory_limits, storage, storage_guard, shared, flush_interval, caching, store_uncached, inclusion,
                 host_admission, write_policy, selective_hits, daily_write_bytes, policy, request_units_max, pinned_blocks_max,
                 retained_units_max, write_back_blocks_ahead, evictions_in_flight_max, device_reserve_max, device_watermarks,
                 host_watermarks, loads, unit_prefill_seconds, transfer_pieces, lane_rates, fingerprint, log, admin, trace_out,
                 idle_service, poison] = options;
    put("ranks.size", ranks.size());
    for (std::size_t n = 0; n < ranks.size(); ++n) add(element("ranks", n), ranks[n]);
    PUT("", rank_payload, hash_unit_tokens, engine_owns_slots, idle_service, key_order, host_warm_up, flush_interval, caching,
        store_uncached, inclusion, host_admission, selective_hits, daily_write_bytes, request_units_max, pinned_blocks_max,
        retained_units_max, write_back_blocks_ahead, evictions_in_flight_max, device_reserve_max, loads, unit_prefill_seconds,
        trace_out, poison);
    put("groups.size", groups.size());
    for (std::size_t n = 0; n < groups.size(); ++n) add(element("groups", n), groups[n]);
    put("pools.size", pools.size());
    for (std::size_t n = 0; n < pools.size(); ++n) add(element("pools", n), pools[n]);
    add("host_touch", host_touch);
    put("memory_limits", memory_limits ? "set" : "null");
    add("storage", storage);
    put("storage_guard", storage_guard ? "set" : "none");
    if (storage_guard) add("storage_guard", *storage_guard);
    put("shared", shared ? "set" : "none");
    if (shared) add("shared", *shared);
    put("write_policy", write_policy.value_or(WritePolicy::none));
    using Made = std::unique_ptr<EvictionPolicy> (*)(std::uint32_t);
    const Made* const made = policy.target<Made>();
    put("policy", made == nullptr ? "other" : *made == adaptive_policy ? "adaptive" : *made == lru_policy ? "lru" : "other");
    add("device_watermarks", device_watermarks);
    add("host_watermarks", host_watermarks);
    const auto& [piece_bytes, bytes_in_flight, pieces_in_flight] = transfer_pieces;
    put("transfer_pieces.bytes", piece_bytes);
    put("transfer_pieces.bytes_in_flight", bytes_in_flight);
    put("transfer_pieces.in_flight", pieces_in_flight);
    const auto& [request, make_room, store] = lane_rates;  // by Urgency
    PUT("lane_rates.", request, make_room, store);
    put("fingerprint", to_hex(BlockKey{fingerprint}));
    add("log", log);
    add("admin", admin);
  }

  void add(const std::string& name, const RankOptions& rank) {
    const auto& [device, regions] = rank;
    put(name + ".regions", regions.size());
    static_assert(std::variant_size_v<DeviceOptions> == 4);
    if (const auto* const emulated = std::get_if<EmulatedGpu>(&device)) {
      put(name + ".device", "EmulatedGpu");
      add(name + ".device", *emulated);
    }
    if (const auto* const cuda = std::get_if<CudaGpu>(&device)) {
      const auto& [ordinal, calibration] = *cuda;
      put(name + ".device", "CudaGpu");
      PUT(name + ".device.", ordinal, calibration);
    }
    if (std::holds_alternative<InstantGpu>(device)) {
      static_assert(std::is_empty_v<InstantGpu>);
      put(name + ".device.InstantGpu", "set");
    }
    if (const auto* const custom = std::get_if<CustomDevice>(&device)) {
      const auto& [make] = *custom;
      put(name + ".device.CustomDevice", make ? "set" : "null");
    }
  }
  void add(const std::string& name, const EmulatedGpu& gpu) {
    const auto& [link, faults] = gpu;
    const auto& [directions, seed] = link;
    put(name + ".link.seed", seed);
    for (const Direction direction : {Direction::swap_in, Direction::swap_out}) {
      const auto& [bytes_per_second, latency, jitter_max, stall_every, stall, fail_every] = link[direction];
      const std::string way = direction == Direction::swap_in ? ".swap_in" : ".swap_out";
      put(name + ".link.bytes_per_second" + way, bytes_per_second);
      put(name + ".link.latency" + way, latency);
      put(name + ".link.jitter_max" + way, jitter_max);
      put(name + ".link.stall_every" + way, stall_every);
      put(name + ".link.stall" + way, stall);
      put(name + ".link.fail_every" + way, fail_every);
    }
    static_assert(std::tuple_size_v<std::remove_cvref_t<decltype(directions)>> == 2);
    const auto& [flip_every, late_every, late_by, ignore_fences, compute_lag] = faults;
    PUT(name + ".faults.", flip_every, late_every, late_by, ignore_fences, compute_lag);
  }
  void add(const std::string& name, const GroupConfig& group) {
    const auto& [kind, block_tokens, span_tokens, optional, pool] = group;
    PUT(name + ".", kind, block_tokens, span_tokens, optional, pool);
  }
  void add(const std::string& name, const PoolOptions& pool) {
    const auto& [block_bytes, layers, device_blocks, device_blocks_max, host_blocks, staging_blocks, null_block, first_slot,
                 host_rows, host_rows_owner] = pool;
    PUT(name + ".", block_bytes, layers, device_blocks, device_blocks_max, host_blocks, staging_blocks, null_block, first_slot);
    put(name + ".host_rows", host_rows.has_value());
    put(name + ".host_rows_owner", host_rows_owner.get());
  }
  void add(const std::string& name, const TouchOptions& touch) {
    const auto& [threads, numa_node, huge_pages, cancel, count_huge] = touch;
    PUT(name + ".", threads, numa_node, huge_pages, cancel, count_huge);
  }
  void add(const std::string& name, const StorageOptions& storage) {
    static_assert(std::variant_size_v<StorageOptions> == 4 && std::is_empty_v<NoStorage>);
    if (std::holds_alternative<NoStorage>(storage)) put(name, "none");
    if (const auto* const memory = std::get_if<MemoryStorage>(&storage)) {
      const auto& [capacity] = *memory;
      put(name, "MemoryStorage");
      put(name + ".capacity", capacity);
    }
    if (const auto* const file = std::get_if<FileStorage>(&storage)) {
      const auto& [directories, capacity, floor, io, io_threads, bandwidth, stripe_bytes, accept_lost_directories, store, label] =
          *file;
      put(name, "FileStorage");
      std::string all;
      for (const std::filesystem::path& directory : directories) all += directory.string() + " ";
      put(name + ".directories", all);
      PUT(name + ".", capacity, floor, io, io_threads, bandwidth, stripe_bytes, accept_lost_directories, label);
      put(name + ".name", store);
    }
    if (const auto* const custom = std::get_if<CustomStorage>(&storage)) put(name + ".CustomStorage", custom->size());
  }
  void add(const std::string& name, const SharedStorage& shared) {
    const auto& [url, password, password_file, ca_file, secret_file, prefix, weights_revision, expiry, expiry_per_depth,
                 connections_per_node, window_bytes, probe_deadline, write_policy, selective_hits, bytes_in_flight,
                 write_bandwidth, daily_write_bytes, store] = shared;
    PUT(name + ".", url, password, password_file, ca_file, secret_file, prefix, weights_revision, expiry, expiry_per_depth,
        connections_per_node, window_bytes, probe_deadline, write_policy, selective_hits, bytes_in_flight, write_bandwidth,
        daily_write_bytes);
    put(name + ".store", store.get());
  }
  void add(const std::string& name, const ResilienceOptions& guard) {
    const auto& [read_retries, write_retries, back_off_first, back_off_max, waiting_max, breaker] = guard;
    PUT(name + ".", read_retries, write_retries, back_off_first, back_off_max, waiting_max);
    const auto& [failures_max, window, probe_first, probe_max] = breaker;
    PUT(name + ".breaker.", failures_max, window, probe_first, probe_max);
  }
  void add(const std::string& name, const Watermarks& marks) {
    const auto& [low, high] = marks;
    PUT(name + ".", low, high);
  }
  void add(const std::string& name, const LogOptions& log) {
    const auto& [sink, least, per_period, period, waiting_max] = log;
    PUT(name + ".", sink, least, per_period, period, waiting_max);
  }

  void add(const std::string& name, const AdminOptions& admin) {
    const auto& [listen, token_file, commands, publish_interval, command_deadline, connections_max, block_tokens, config] = admin;
    PUT(name + ".", listen, token_file, commands, publish_interval, command_deadline, connections_max, block_tokens);
    put(name + ".config", config.empty() ? "empty" : "set");
  }

  Texts texts_;
};
#undef PUT

/// One option of the table, the value that a text gives it, and the fields that have another value then.
struct Row {
  std::string name;
  std::string value;
  Texts changed;
  /// The text around the line of the option, which stands at the @. If empty: only the header of its table.
  std::string around{};
  std::string line_before{};  ///< stands at the @ in place of the option; empty: nothing
};

constexpr const char* in_memory = "@\n[storage]\nwhere = \"memory:\"\ncapacity = \"1GiB\"";
constexpr const char* in_files = "[storage]\nwhere = \"file:/s\"\ncapacity = \"1GiB\"\n@";
constexpr const char* striped = "[storage]\nwhere = \"file:/s\"\ncapacity = \"1GiB\"\nstripe = [\"/t\"]\n@";
constexpr const char* in_shared = "[shared]\nurl = \"rediss://cache\"\n@";
constexpr const char* digits = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const std::vector<Row>& rows() {
  static const std::vector<Row> all{
      {"policy", "\"lru\"", {{"policy", "lru"}}},
      {"inclusion", "\"inclusive\"", {{"inclusion", "2"}}},
      {"write-policy", "\"write-back\"", {{"write_policy", "3"}}, in_memory},
      {"selective-hits", "7", {{"selective_hits", "7"}}},
      {"daily-writes", "\"1GiB\"", {{"daily_write_bytes", "1073741824"}}},
      {"loads", "\"always\"", {{"loads", "1"}}},
      {"unit-prefill", "\"2ms\"", {{"unit_prefill_seconds", "0.002"}}},
      {"caching", "false", {{"caching", "false"}}},
      {"store-uncached", "true", {{"store_uncached", "true"}}, std::string{"caching = false\n"} + in_memory},
      {"host-admission", "true", {{"host_admission", "true"}}},
      {"hash-unit", "4", {{"hash_unit_tokens", "4"}}, "@\n[[group]]\nblock-tokens = 8"},
      {"request-units-max", "7", {{"request_units_max", "7"}}},
      {"pinned-blocks-max", "7", {{"pinned_blocks_max", "7"}}},
      {"retained-units-max", "7", {{"retained_units_max", "7"}}},
      {"write-back-blocks-ahead", "7", {{"write_back_blocks_ahead", "7"}}},
      {"evictions-in-flight-max", "7", {{"evictions_in_flight_max", "7"}}},
      {"ranks", "2", {{"ranks.size", "2"}}},
      {"rank-payload", "\"replicated\"", {{"rank_payload", "1"}}, "ranks = 2\n@"},
      {"engine-owns-slots", "true", {{"engine_owns_slots", "true"}}},
      {"idle-service", "true", {{"idle_service", "true"}}},
      {"key-order", "\"flat\"", {{"key_order", "1"}}, "engine-owns-slots = true\n@"},
      {"fingerprint", fmt::format("\"{}\"", digits), {{"fingerprint", digits}}},
      {"poison", "true", {{"poison", "true"}}},

      {"rank.device", "\"cuda:1\"", {{"ranks.device", "CudaGpu"}, {"ranks.device.ordinal", "1"}}},
      {"rank.calibration", "\"/c\"", {{"ranks.device.calibration", "/c"}}, "[[rank]]\ndevice = \"cuda\"\n@"},
      {"rank.swap-in-bandwidth", "\"1KiB/s\"", {{"ranks.device.link.bytes_per_second.swap_in", "1024"}}},
      {"rank.swap-out-bandwidth", "\"1KiB/s\"", {{"ranks.device.link.bytes_per_second.swap_out", "1024"}}},
      {"rank.link-latency",
       "\"7ns\"",
       {{"ranks.device.link.latency.swap_in", "7ns"}, {"ranks.device.link.latency.swap_out", "7ns"}}},
      {"rank.link-jitter",
       "\"7ns\"",
       {{"ranks.device.link.jitter_max.swap_in", "7ns"}, {"ranks.device.link.jitter_max.swap_out", "7ns"}}},
      {"rank.link-seed", "7", {{"ranks.device.link.seed", "7"}}},

      {"pool.block-bytes", "\"4KiB\"", {{"pools.block_bytes", "4096"}}},
      {"pool.layers", "4", {{"pools.layers", "4"}}},
      {"pool.device-blocks", "7", {{"pools.device_blocks", "7"}}},
      {"pool.device-capacity", "\"1MiB\"", {{"pools.device_blocks", "16"}}},
      {"pool.device-blocks-max", "4000", {{"pools.device_blocks_max", "4000"}}},
      {"pool.host-blocks", "7", {{"pools.host_blocks", "7"}}},
      {"pool.host-capacity", "\"1MiB\"", {{"pools.host_blocks", "16"}}},
      {"pool.staging-blocks", "7", {{"pools.staging_blocks", "7"}}},
      {"pool.null-block", "true", {{"pools.null_block", "true"}}},
      {"pool.first-slot", "7", {{"pools.first_slot", "7"}}},

      {"group.kind", "\"recurrent\"", {{"groups.kind", "3"}}, "[[pool]]\nnull-block = true\n[[group]]\n@"},
      {"group.block-tokens", "7", {{"groups.block_tokens", "7"}}},
      {"group.span-tokens",
       "7",
       {{"groups.span_tokens", "7"}},
       "[[pool]]\nnull-block = true\n[[group]]\nkind = \"sliding-window\"\n@",
       "span-tokens = 8"},
      {"group.optional",
       "true",
       {{"groups[1].optional", "true"}},
       "[[pool]]\nnull-block = true\n[[group]]\nblock-tokens = 2\n[[group]]\nblock-tokens = 2\n@"},
      {"group.pool", "1", {{"groups[2].pool", "1"}}, "[[pool]]\n[[pool]]\n[[group]]\n[[group]]\npool = 1\n[[group]]\n@"},

      {"device.reserve-max", "0.25", {{"device_reserve_max", "0.25"}}},
      {"device.low-watermark", "0.25", {{"device_watermarks.low", "0.25"}}, "[device]\nhigh-watermark = 0.5\n@"},
      {"device.high-watermark", "0.25", {{"device_watermarks.high", "0.25"}}},
      {"host.low-watermark", "0.25", {{"host_watermarks.low", "0.25"}}, "[host]\nhigh-watermark = 0.5\n@"},
      {"host.high-watermark", "0.25", {{"host_watermarks.high", "0.25"}}},
      {"host.warm-up", "\"while-serving\"", {{"host_warm_up", "1"}}},
      {"host.touch-threads", "7", {{"host_touch.threads", "7"}}},
      {"host.numa-node", "7", {{"host_touch.numa_node", "7"}}},
      {"host.huge-pages", "false", {{"host_touch.huge_pages", "0"}}},
      {"transfers.piece-bytes", "\"1KiB\"", {{"transfer_pieces.bytes", "1024"}}},
      {"transfers.bytes-in-flight", "\"1KiB\"", {{"transfer_pieces.bytes_in_flight", "1024"}}},
      {"transfers.pieces-in-flight", "7", {{"transfer_pieces.in_flight", "7"}}},
      {"transfers.make-room-bandwidth", "\"1KiB/s\"", {{"lane_rates.make_room", "1024"}}},
      {"transfers.store-bandwidth", "\"1KiB/s\"", {{"lane_rates.store", "1024"}}},

      {"storage.where",
       "\"file:/s\"\ncapacity = \"1GiB\"",
       {{"storage", "FileStorage"}, {"storage.directories", "/s "}, {"write_policy", "1"}}},
      {"storage.capacity",
       "\"2GiB\"",
       {{"storage.capacity", "2147483648"}},
       "[storage]\nwhere = \"file:/s\"\n@",
       "capacity = \"1GiB\""},
      {"storage.floor", "\"1KiB\"", {{"storage.floor", "1024"}}, in_files},
      {"storage.name", "\"other\"", {{"storage.name", "other"}}, in_files},
      {"storage.label", "\"engine = x\"", {{"storage.label", "engine = x"}}, in_files},
      {"storage.stripe", "[\"/t\"]", {{"storage.directories", "/s /t "}}, in_files},
      {"storage.stripe-size", "\"64KiB\"", {{"storage.stripe_bytes", "65536"}}, striped},
      {"storage.accept-lost", "true", {{"storage.accept_lost_directories", "true"}}, striped},
      {"storage.bandwidth", "\"1KiB/s\"", {{"storage.bandwidth", "1024"}}, in_files},
      {"storage.io", "\"threads\"", {{"storage.io", "2"}}, in_files},
      {"storage.io-threads", "7", {{"storage.io_threads", "7"}}, in_files},
      {"storage.flush-interval", "\"7ns\"", {{"flush_interval", "7ns"}}, in_files},
      {"storage.guard", "false", {{"storage_guard", "none"}}, in_files},
      {"storage.retries", "7", {{"storage_guard.read_retries", "7"}, {"storage_guard.write_retries", "7"}}, in_files},
      {"storage.retry-delay", "\"7ns\"", {{"storage_guard.back_off_first", "7ns"}}, in_files},
      {"storage.retry-delay-max", "\"1s\"", {{"storage_guard.back_off_max", "1000000000ns"}}, in_files},
      {"storage.retries-waiting-max", "7", {{"storage_guard.waiting_max", "7"}}, in_files},
      {"storage.breaker-failures", "7", {{"storage_guard.breaker.failures_max", "7"}}, in_files},
      {"storage.breaker-window", "\"7ns\"", {{"storage_guard.breaker.window", "7ns"}}, in_files},
      {"storage.breaker-probe", "\"7ns\"", {{"storage_guard.breaker.probe_first", "7ns"}}, in_files},
      {"storage.breaker-probe-max", "\"1s\"", {{"storage_guard.breaker.probe_max", "1000000000ns"}}, in_files},

      {"shared.url", "\"redis://cache\"", {{"shared", "set"}, {"shared.url", "redis://cache"}}},
      {"shared.password-file", "\"/p\"", {{"shared.password_file", "/p"}}, in_shared},
      {"shared.ca-file", "\"/c\"", {{"shared.ca_file", "/c"}}, in_shared},
      {"shared.secret-file", "\"/s\"", {{"shared.secret_file", "/s"}}, in_shared},
      {"shared.prefix", "\"kv:a\"", {{"shared.prefix", "kv:a"}}, in_shared},
      {"shared.weights-revision", "\"r7\"", {{"shared.weights_revision", "r7"}}, in_shared},
      {"shared.expiry", "\"7ns\"", {{"shared.expiry", "7ns"}}, in_shared},
      {"shared.expiry-per-depth", "\"7ns\"", {{"shared.expiry_per_depth", "7ns"}}, in_shared},
      {"shared.connections-per-node", "7", {{"shared.connections_per_node", "7"}}, in_shared},
      {"shared.window-bytes", "\"1KiB\"", {{"shared.window_bytes", "1024"}}, in_shared},
      {"shared.probe-deadline", "\"7ns\"", {{"shared.probe_deadline", "7ns"}}, in_shared},
      {"shared.write-policy", "\"write-through\"", {{"shared.write_policy", "1"}}, in_shared},
      {"shared.selective-hits", "7", {{"shared.selective_hits", "7"}}, in_shared},
      {"shared.bytes-in-flight", "\"1KiB\"", {{"shared.bytes_in_flight", "1024"}}, in_shared},
      {"shared.write-bandwidth", "\"1KiB/s\"", {{"shared.write_bandwidth", "1024"}}, in_shared},
      {"shared.daily-writes", "\"1GiB\"", {{"shared.daily_write_bytes", "1073741824"}}, in_shared},

      {"log.level", "\"error\"", {{"log.least", "2"}}},
      {"log.per-period", "7", {{"log.per_period", "7"}}},
      {"log.period", "\"7ns\"", {{"log.period", "7ns"}}},
      {"log.waiting-max", "7", {{"log.waiting_max", "7"}}},
      {"admin.listen", "\"unix:/s\"", {{"admin.listen", "unix:/s"}}},
      {"admin.token-file", "\"/t\"", {{"admin.token_file", "/t"}}},
      {"admin.commands", "false", {{"admin.commands", "false"}}},
      {"admin.interval", "\"7ns\"", {{"admin.publish_interval", "7ns"}}},
      {"admin.command-deadline", "\"7ns\"", {{"admin.command_deadline", "7ns"}}},
      {"admin.connections-max", "7", {{"admin.connections_max", "7"}}},
      {"admin.block-tokens", "7", {{"admin.block_tokens", "7"}}},
      {"trace.out", "\"t.json\"", {{"trace_out", "t.json"}}},
  };
  return all;
}

Texts fields_of(const Row& row, const std::string& line) {
  const config::Option& option = config::option_named(row.name);
  const bool repeated = option.scope() != config::Scope::whole;
  std::string text = row.around;
  if (text.empty() && !option.table.empty())
    text = fmt::format("{0}{1}{2}\n", repeated ? "[[" : "[", option.table, repeated ? "]]" : "]");
  if (row.around.empty()) text += '@';
  text.replace(text.find('@'), 1, line);
  return Fields{parse_config(text, row.name)}.texts();
}

TEST(ConfigFields, each_option_sets_its_fields_and_no_other) {
  for (const Row& row : rows()) {
    const Texts before = fields_of(row, row.line_before);
    const Texts after = fields_of(row, fmt::format("{} = {}", config::option_named(row.name).key, row.value));
    for (const auto& [field, value] : row.changed) {
      const auto at = after.find(field);
      ASSERT_NE(at, after.end()) << row.name << ": " << field;
      EXPECT_EQ(at->second, value) << row.name << ": " << field;
    }
    std::size_t differing = 0;
    for (const auto& [field, value] : after) {
      const auto at = before.find(field);
      if (at == before.end() || at->second == value)
        continue;  // a field that is new belongs to another kind of device or storage
      EXPECT_TRUE(row.changed.contains(field)) << row.name << " changes " << field << " to " << value;
      ++differing;
    }
    EXPECT_GT(differing, 0U) << row.name << ": the value is the default";
  }
}

TEST(ConfigFields, each_option_is_tested_here) {
  std::set<std::string> tested;
  for (const Row& row : rows()) EXPECT_TRUE(tested.insert(row.name).second) << row.name;
  for (const config::Option& option : config::options()) EXPECT_TRUE(tested.contains(option.name())) << option.name();
}

/// The names of all fields, whatever devices and stores are chosen.
std::set<std::string> all_fields() {
  std::vector<CacheSystemOptions> kinds(4);
  kinds[0].groups.emplace_back();
  kinds[1].ranks[0].device = CudaGpu{};
  kinds[1].storage = MemoryStorage{};
  kinds[2].ranks[0].device = InstantGpu{};
  kinds[2].storage = FileStorage{};
  kinds[2].shared.emplace();
  kinds[3].ranks[0].device = CustomDevice{};
  kinds[3].storage = CustomStorage{};
  std::set<std::string> all;
  for (const CacheSystemOptions& options : kinds) {
    const Fields fields{options};
    for (const auto& [field, value] : fields.texts()) all.insert(field);
  }
  return all;
}

/// Several elements have the fields of the first one.
std::string of_first(std::string field) {
  const std::size_t begin = field.find('[');
  return begin == std::string::npos ? field : field.erase(begin, field.find(']') - begin + 1);
}

TEST(ConfigFields, each_has_an_option_or_a_reason_why_it_has_none) {
  std::set<std::string> with_option{"groups.size", "pools.size"};  // the numbers of tables in a file
  for (const Row& row : rows()) {
    for (const auto& [field, value] : row.changed) with_option.insert(of_first(field));
  }
  const auto reasons = config::fields_without_option();
  std::set<std::string_view> used;
  for (const std::string& field : all_fields()) {
    const auto reason = std::ranges::find_if(
        reasons, [&](const auto& each) { return field == each.field || field.starts_with(fmt::format("{}.", each.field)); });
    EXPECT_NE(with_option.contains(field), reason != reasons.end()) << field;
    if (reason != reasons.end()) used.insert(reason->field);
  }
  EXPECT_EQ(used.size(), reasons.size()) << "a reason is for a field that does not exist";
}

}  // namespace
}  // namespace terrace
