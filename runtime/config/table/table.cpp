#include "runtime/config/table/table.hpp"

#include "radix/tree/copy.hpp"
#include "terrace/block_store.hpp"
#include "terrace/device.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <boost/describe.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <filesystem>
#include <type_traits>
#include <utility>

namespace terrace {

// Enumerations with names that are words of the configuration.
BOOST_DESCRIBE_ENUM(InclusionPolicy, non_inclusive, exclusive, inclusive, lazy_exclusive)
BOOST_DESCRIBE_ENUM(WritePolicy, none, write_through, selective, write_back)
BOOST_DESCRIBE_ENUM(KeyOrder, prefix, flat)
BOOST_DESCRIBE_ENUM(LoadPolicy, measured, always)
BOOST_DESCRIBE_ENUM(RankPayload, sharded, replicated)
BOOST_DESCRIBE_ENUM(IoChoice, automatic, uring, threads)
BOOST_DESCRIBE_ENUM(HostWarmUp, before_serving, while_serving)
BOOST_DESCRIBE_ENUM(LogLevel, info, warning, error)
BOOST_DESCRIBE_ENUM(GroupKind, full, sliding_window, chunked_local, recurrent, cross)

namespace config {
namespace {

std::string_view to_string(HostWarmUp warm_up) {
  return warm_up == HostWarmUp::before_serving ? "before-serving" : "while-serving";
}
std::string_view to_string(KeyOrder order) { return order == KeyOrder::prefix ? "prefix" : "flat"; }
std::string_view to_string(LoadPolicy loads) { return loads == LoadPolicy::measured ? "measured" : "always"; }

/// The values of an enumeration that is described above.
template <class E>
constexpr auto all_of = []<template <class...> class List, class... Each>(List<Each...>) {
  return std::array{Each::value...};
}(boost::describe::describe_enumerators<E>{});

template <class E>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  names.reserve(all_of<E>.size());
  for (const E each : all_of<E>) names.emplace_back(to_string(each));
  return names;
}

// Conversions between fields and values.

template <class T, class... Others>
constexpr bool is_one_of = (std::same_as<T, Others> || ...);
using Digest = std::array<std::byte, 32>;

template <class T>
Value value_of(const T& field) {
  if constexpr (is_one_of<T, bool, double, std::string, std::vector<std::string>>) return field;
  else if constexpr (std::unsigned_integral<T>) return std::uint64_t{field};
  else if constexpr (is_one_of<T, Bytes, BytesPerSecond>) return count(field);
  else if constexpr (is_one_of<T, Duration>) return static_cast<std::uint64_t>(std::chrono::nanoseconds{field}.count());
  else if constexpr (is_one_of<T, std::filesystem::path>) return field.string();
  else if constexpr (is_one_of<T, Digest>) return to_hex(BlockKey{field});
  else if constexpr (is_one_of<T, HugePages>) return field == HugePages::yes;
  else if constexpr (std::is_enum_v<T>) return std::string{to_string(field)};
  else return std::uint64_t{field.value()};  // a StrongCount or StrongId
}

template <class T>
T field_of(const Value& value) {
  if constexpr (is_one_of<T, bool, double, std::string, std::vector<std::string>>) return std::get<T>(value);
  else if constexpr (is_one_of<T, std::filesystem::path>) return std::get<std::string>(value);
  else if constexpr (is_one_of<T, Digest>) return parse_block_key(std::get<std::string>(value))->bytes;
  else if constexpr (is_one_of<T, HugePages>) return HugePages{std::get<bool>(value)};
  else if constexpr (std::is_enum_v<T> && !is_one_of<T, Bytes, BytesPerSecond>)
    return *std::ranges::find(all_of<T>, std::get<std::string>(value), [](T each) { return to_string(each); });
  else if constexpr (is_one_of<T, Duration>)
    return std::chrono::nanoseconds{static_cast<std::chrono::nanoseconds::rep>(std::get<std::uint64_t>(value))};
  else if constexpr (requires { typename T::rep; }) return T{static_cast<typename T::rep>(std::get<std::uint64_t>(value))};
  else return static_cast<T>(std::get<std::uint64_t>(value));
}

template <class T>
std::optional<Value> read_field(const T& field) {
  return value_of(field);
}
template <class T>
std::optional<Value> read_field(const std::optional<T>& field) {
  return field ? std::optional{value_of(*field)} : std::nullopt;
}

/// The type of the options for fields of type T. Text is of several types, so options for text name theirs.
template <class T>
constexpr Type type_of() {
  static_assert(!is_one_of<T, std::string>);
  if constexpr (is_one_of<T, bool, HugePages>) return Type::yes_no;
  else if constexpr (is_one_of<T, double>) return Type::share;
  else if constexpr (is_one_of<T, Bytes>) return Type::size;
  else if constexpr (is_one_of<T, BytesPerSecond>) return Type::bandwidth;
  else if constexpr (is_one_of<T, Duration>) return Type::duration;
  else if constexpr (is_one_of<T, std::filesystem::path>) return Type::path;
  else if constexpr (is_one_of<T, std::vector<std::string>>) return Type::paths;
  else if constexpr (is_one_of<T, Digest>) return Type::digest;
  else if constexpr (std::is_enum_v<T>) return Type::name;
  else return Type::whole;
}

template <class T>
T type_in(const T&);
template <class T>
T type_in(const std::optional<T>&);

/// Adds options of one table that need the same. `Access` is a lambda that returns the field of a Draft.
class Table {
 public:
  Table(std::vector<Option>& all, std::string_view name, Needs needs = Needs::nothing) : all_{all}, name_{name}, needs_{needs} {}

  template <class Access>
  Option& add(std::string_view key, Access access, std::string_view help) const {
    return add(key, Limits{}, access, help);
  }
  template <class Access>
  Option& add(std::string_view key, Limits limits, Access access, std::string_view help) const {
    using T = decltype(type_in(access(std::declval<Draft&>(), 0)));
    Option& option = add(key, type_of<T>(), access, help);
    option.limits = limits;
    if constexpr (type_of<T>() == Type::name) option.names = names_of<T>();
    return option;
  }
  template <class Access>
  Option& add(std::string_view key, Type type, Access, std::string_view help) const {
    Option& option = all_.emplace_back(Option{.table = name_, .key = key, .type = type, .help = help, .needs = needs_});
    option.get = [](const Draft& draft, std::size_t n) { return read_field(Access{}(draft, n)); };
    option.set = [](Draft& draft, std::size_t n, const Value& value) {
      auto& field = Access{}(draft, n);
      field = field_of<decltype(type_in(field))>(value);
    };
    return option;
  }

 private:
  std::vector<Option>& all_;
  std::string_view name_;
  Needs needs_;
};

/// Changes to an option, in the order of reading: `common(table.add(...))`.
Option& common(Option& option) {
  option.common = true;
  return option;
}
Option& live(Option& option) {
  option.live = true;
  return option;
}
Option& with_flag(Option& option, std::string_view flag, std::string_view alias = {}) {
  option.flag = flag;
  option.flag_alias = alias;
  return option;
}
Option& optional(Option& option, std::string_view otherwise, std::string_view example) {
  option.otherwise = otherwise;
  option.example = example;
  return option;
}

#define FIELD(expression) [](auto& d, [[maybe_unused]] std::size_t n) -> auto& { return d.expression; }

constexpr std::uint64_t nanoseconds_in_a_day = 86'400'000'000'000;
constexpr std::uint64_t blocks_max = Copy::slots_max - 1;
constexpr Limits any_blocks{0, blocks_max};
constexpr Limits any_count{0, UINT32_MAX};
constexpr Limits up_to_a_day{0, nanoseconds_in_a_day};
constexpr Limits some_time{1, nanoseconds_in_a_day};
constexpr Limits some_months{1, 366 * nanoseconds_in_a_day};
constexpr Limits more_than_0{1};

void add_general(std::vector<Option>& all) {
  const Table general{all, ""};
  common(live(general.add("policy", Type::name, FIELD(policy),
                          "Eviction policy of device and host: adaptive keeps what it expects most hits from")))
      .names = {"adaptive", "lru"};
  with_flag(general.add("inclusion", FIELD(system.inclusion),
                        "How device and host copies of a block relate: lazy-exclusive (a host copy stays after a swap-in, and "
                        "goes first), exclusive (a block is in one of the two), non-inclusive (a host copy stays as long as "
                        "others that are as new), inclusive (the host has every computed block too)"),
            "--inclusion", "--relation")
      .old_name = "keep";
  general.add("host-admission", FIELD(system.host_admission),
              "If on, an evicted block is copied to a full host tier only if it is worth more than what would have to go for it");
  live(common(general.add("write-policy", FIELD(system.write_policy.value()),
                          "Which blocks reach storage: none, write-through (computed blocks), selective (blocks that were hit), "
                          "write-back (evicted blocks); with storage the default is write-through")));
  live(
      general.add("selective-hits", {1, 255}, FIELD(system.selective_hits), "Write policy selective stores a block at this hit"));
  live(general.add("daily-writes", FIELD(system.daily_write_bytes),
                   "Most bytes per day that are written to storage; 0: no limit"));
  live(general.add("loads", FIELD(system.loads),
                   "Which hits below the device are loaded: measured, if loading is expected to be faster than computing; "
                   "always"));
  general.add("unit-prefill", up_to_a_day, FIELD(unit_prefill),
              "Time in which the engine computes one hash unit of a prompt; 0: the cache learns it");
  general.add("caching", FIELD(system.caching), "If off, no request finds a hit, and no block stays cached after its request");
  general.add("store-uncached", FIELD(system.store_uncached),
              "With caching off: blocks still reach storage and the shared store, for other instances that read them");
  general.add("hash-unit", any_count, FIELD(system.hash_unit_tokens),
              "Tokens for which a key is made, a divisor of the blocks of all groups; 0: their greatest common divisor");
  general.add("request-units-max", any_count, FIELD(system.request_units_max),
              "Most blocks of one request, in hash units; 0: what the pools hold");
  general.add("pinned-blocks-max", any_blocks, FIELD(system.pinned_blocks_max),
              "Most blocks of a pool that pins keep from eviction; 0: half of the device blocks, or of the host blocks if the "
              "engine owns "
              "the slots");
  general.add(
      "retained-units-max", any_blocks, FIELD(system.retained_units_max),
      "Most blocks that retentions name, in hash units; 0: half of the device blocks of the first pool, or of its host blocks "
      "if the engine owns the slots");
  general.add("write-back-blocks-ahead", {1, blocks_max}, FIELD(system.write_back_blocks_ahead),
              "Most blocks that a write-back job over everything has under way");
  general.add("evictions-in-flight-max", any_blocks, FIELD(system.evictions_in_flight_max),
              "Most blocks of a pool that are copied to the host at a time to free slots for requests; 0: no limit");
  optional(general.add("ranks", {1, RankedTransfers::ranks_max}, FIELD(ranks_count),
                       "Devices that share each block, under one manager"),
           "as many as devices are named", "2");
  general.add("rank-payload", FIELD(system.rank_payload),
              "What a rank holds: sharded, its part of each block; replicated, all ranks have the same bytes");
  general.add("engine-owns-slots", FIELD(system.engine_owns_slots),
              "The device slots belong to the engine, which names them in the orders of an OffloadCache");
  general.add("key-order", FIELD(system.key_order),
              "The keys of an order of an OffloadCache: prefix, the blocks of a prefix from the first one on; flat, every "
              "block stands alone");
  optional(general.add("fingerprint", FIELD(fingerprint),
                       "Identifies the model and its geometry, 64 hexadecimal digits; a store with another one is refused"),
           "64 zeros", "\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"");
  general.add("idle-service", FIELD(system.idle_service),
              "A thread goes on with the work of the cache, operators' commands among it, while its engine makes no call; "
              "caches and stores that are opened from C or Python have one unless this is off");
  general.add("poison", FIELD(system.poison), "For tests: slots are overwritten as they become free");
}

void add_arrays(std::vector<Option>& all) {
  const Table rank{all, "rank"};
  const Table pool{all, "pool"};
  const Table group{all, "group"};
  common(with_flag(
      rank.add("device", Type::device, FIELD(ranks[n].device),
               "emulated, cuda, cuda:N. One stands for all ranks (GPUs with consecutive numbers); a flag or variable may "
               "list one for each: cuda:0,cuda:2"),
      "--device"));
  optional(rank.add("calibration", Type::path, FIELD(ranks[n].calibration),
                    "File with the measured copy methods of the GPU, from terrace doctor"),
           "the file of terrace doctor, or built-in figures", "\"/var/cache/terrace/gpu.json\"");
  rank.add("swap-in-bandwidth", FIELD(ranks[n].link[Direction::swap_in].bytes_per_second),
           "Most bytes per second from the host to an emulated device; 0: no limit");
  rank.add("swap-out-bandwidth", FIELD(ranks[n].link[Direction::swap_out].bytes_per_second),
           "Most bytes per second from an emulated device to the host; 0: no limit");
  rank.add("link-latency", up_to_a_day, FIELD(ranks[n].link[Direction::swap_in].latency),
           "Time before the bytes of a copy to or from an emulated device move");
  rank.add("link-jitter", up_to_a_day, FIELD(ranks[n].link[Direction::swap_in].jitter_max),
           "Most random time by which such a copy takes longer");
  rank.add("link-seed", FIELD(ranks[n].link.seed), "Seed of these random times");
  pool.add("block-bytes", {1, count(MiB * 512)}, FIELD(pools[n].sizes.block_bytes),
           "Size of a block, all layers and ranks together; with file storage a multiple of 4KiB");
  pool.add("layers", {1, 65'536}, FIELD(pools[n].sizes.layers), "Layers of a block, of equal size and adjacent");
  pool.add("device-blocks", {1, blocks_max}, FIELD(pools[n].sizes.device_blocks),
           "Blocks of device memory, instead of a capacity");
  common(optional(pool.add("device-capacity", more_than_0, FIELD(pools[n].device_capacity), "Device memory for blocks"),
                  "device-blocks says how many", "\"64GiB\""));
  pool.add("device-blocks-max", any_blocks, FIELD(pools[n].sizes.device_blocks_max),
           "Device blocks to which the pool can grow while it serves; 0: it cannot grow");
  pool.add("host-blocks", any_blocks, FIELD(pools[n].sizes.host_blocks),
           "Blocks of host memory, instead of a capacity; 0: no host tier");
  common(optional(pool.add("host-capacity", FIELD(pools[n].host_capacity), "Host memory for blocks; 0: no host tier"),
                  "host-blocks says how many", "\"256GiB\""));
  pool.add("staging-blocks", any_blocks, FIELD(pools[n].sizes.staging_blocks),
           "Slots through which blocks pass between device and storage; 0: chosen automatically");
  pool.add("null-block", FIELD(pools[n].sizes.null_block), "The first slot stands for blocks that a group does not need");
  pool.add("first-slot", any_blocks, FIELD(pools[n].sizes.first_slot),
           "Number of the first device slot; lower ones belong to other caches that share the device's memory");
  group.add("kind", FIELD(groups[n].kind), "The kind of attention");
  group.add("block-tokens", {1, UINT32_MAX}, FIELD(groups[n].block_tokens), "Tokens of a block");
  group.add("span-tokens", any_count, FIELD(groups[n].span_tokens),
            "Tokens of the window of sliding-window, or of the chunk of chunked-local; 0 for other kinds");
  group.add("optional", FIELD(groups[n].optional), "The group never shortens a hit, as for the layers of a draft model");
  group.add("pool", {0, UINT16_MAX}, FIELD(groups[n].pool), "The [[pool]] of the group, counted from 0");
}

void add_tiers(std::vector<Option>& all) {
  const Table device{all, "device"};
  const Table host{all, "host"};
  const Table transfers{all, "transfers"};
  live(device.add("reserve-max", FIELD(system.device_reserve_max),
                  "Largest share of device slots kept free ahead of requests; how many, the cache learns; 0: none"));
  live(device.add("low-watermark", FIELD(system.device_watermarks.low),
                  "Share of free device slots under which the cache evicts to the host in the background; 0: never"));
  live(device.add("high-watermark", FIELD(system.device_watermarks.high),
                  "Share of free device slots at which the background eviction ends"));
  live(host.add("low-watermark", FIELD(system.host_watermarks.low),
                "Share of free host slots under which the cache evicts in the background; 0: never"));
  live(host.add("high-watermark", FIELD(system.host_watermarks.high),
                "Share of free host slots at which the background eviction ends"));
  host.add("warm-up", FIELD(system.host_warm_up),
           "When the memory of the host tier is touched first: before-serving, or while-serving with a tier that grows");
  host.add("touch-threads", {0, 1024}, FIELD(system.host_touch.threads),
           "Threads that touch host memory first; 0: one for each processor, up to 8");
  optional(host.add("numa-node", {0, 1023}, FIELD(system.host_touch.numa_node), "NUMA node for the host tier"),
           "the node next to the GPUs, or that of the thread that touches the memory", "0");
  host.add("huge-pages", FIELD(system.host_touch.huge_pages), "Ask the kernel for huge pages for the host tier");
  transfers.add("piece-bytes", more_than_0, FIELD(system.transfer_pieces.bytes),
                "Size of the pieces that transfers are cut into");
  transfers.add("bytes-in-flight", more_than_0, FIELD(system.transfer_pieces.bytes_in_flight),
                "Most bytes under way in each direction for requests, and as many again for other copies, which a request "
                "may have to wait for");
  transfers.add("pieces-in-flight", {1, 1024}, FIELD(system.transfer_pieces.in_flight),
                "Most pieces under way in each direction for requests, and as many again for other copies");
  live(transfers.add("make-room-bandwidth", FIELD(system.lane_rates[static_cast<std::size_t>(Urgency::make_room)]),
                     "Most bytes per second between device and host for copies that free slots ahead of requests; 0: no limit"));
  live(transfers.add("store-bandwidth", FIELD(system.lane_rates[static_cast<std::size_t>(Urgency::store)]),
                     "Most bytes per second between device and host for copies on their way to storage; 0: no limit"));
}

void add_storage(std::vector<Option>& all) {
  const Table table{all, "storage"};
  const Table storage{all, "storage", Needs::storage};
  const Table files{all, "storage", Needs::files};
  const Table guard{all, "storage", Needs::guard};
  common(with_flag(
      table.add("where", Type::storage, FIELD(storage), "none, memory:, file:DIR (blocks that DIR holds from before are hits)"),
      "--storage"));
  common(optional(
      storage.add("capacity", more_than_0, FIELD(storage_capacity), "Capacity of the storage tier; mandatory with storage"),
      "there is no storage", "\"1TiB\""));
  files.add("floor", FIELD(file.floor), "Free space to keep in the file system of file:DIR");
  files.add("name", Type::text, FIELD(file.name), "The store's own directory in file:DIR: digits, lower-case letters and '-'");
  files.add("label", Type::text, FIELD(file.label),
            "Whose store it is, for people: engine, model, revision. terrace store stat shows it");
  files.add("stripe", FIELD(stripe),
            "Further directories, on other disks, that file:DIR is striped over; the flag may be given several times");
  files.add("stripe-size", more_than_0, FIELD(file.stripe_bytes),
            "Bytes that lie side by side in one directory before the next one follows");
  files.add("accept-lost", FIELD(file.accept_lost_directories),
            "Start without the directories that cannot be used: what they held is lost");
  files.add("bandwidth", FIELD(file.bandwidth),
            "Most bytes read and written per second with file:DIR, to imitate a slower disk; 0: no limit");
  files.add("io", FIELD(file.io), "How files are read and written: auto (io_uring if it is available), uring, threads");
  files.add("io-threads", {1, 1024}, FIELD(file.io_threads), "Threads for I/O by threads");
  storage.add("flush-interval", up_to_a_day, FIELD(system.flush_interval),
              "Longest time that a stored block waits for a flush; 0: only at the end and for durable jobs");
  files.add("guard", FIELD(guarded),
            "Failed operations on file:DIR are retried, and file:DIR is not used while it keeps failing");
  guard.add("retries", {0, 100}, FIELD(guard.read_retries),
            "How often a failed read or write of file:DIR is retried, if that may help");
  guard.add("retry-delay", some_time, FIELD(guard.back_off_first),
            "Time from a failure to the first retry; each failure doubles it");
  guard.add("retry-delay-max", some_time, FIELD(guard.back_off_max), "Longest time between retries");
  guard.add("retries-waiting-max", {0, 65'536}, FIELD(guard.waiting_max),
            "Most operations that wait for a retry; further ones fail");
  guard.add("breaker-failures", {1, 100'000}, FIELD(guard.breaker.failures_max),
            "Failures in a row after which file:DIR is not used for a while");
  guard.add("breaker-window", some_time, FIELD(guard.breaker.window), "Time within which these failures must come");
  guard.add("breaker-probe", some_time, FIELD(guard.breaker.probe_first),
            "Time until one operation tests whether file:DIR works again; each failed test doubles it");
  guard.add("breaker-probe-max", some_time, FIELD(guard.breaker.probe_max), "Longest time between two tests");
}

void add_shared(std::vector<Option>& all) {
  const Table table{all, "shared"};
  const Table shared{all, "shared", Needs::shared};
  const Table server{all, "shared", Needs::server};
  const Table tls{all, "shared", Needs::tls};
  with_flag(table.add("url", Type::shared, FIELD(shared),
                      "Store that several machines share: none, memory: (of this process), "
                      "redis://[USER@]HOST[:PORT][,...][?cluster=1], rediss:// (the same over TLS)"),
            "--shared");
  optional(server.add("password-file", FIELD(shared_storage.password_file), "File whose first line is the password of the user"),
           "the variable TERRACE_SHARED_PASSWORD, or none", "\"/etc/terrace/shared-password\"");
  optional(tls.add("ca-file", FIELD(shared_storage.ca_file), "Certificates of the authorities that are trusted, PEM"),
           "those of the system", "\"/etc/terrace/ca.pem\"");
  optional(shared.add("secret-file", FIELD(shared_storage.secret_file),
                      "File with the secret of the deployment, at least 32 bytes: blocks are encrypted with it, and "
                      "nobody without it can make some"),
           "blocks are not encrypted", "\"/etc/terrace/shared-secret\"");
  shared.add("prefix", Type::text, FIELD(shared_storage.prefix),
             "Beginning of the names of all values: letters, digits and \"-_.:/\"");
  optional(shared.add("weights-revision", Type::text, FIELD(shared_storage.weights_revision),
                      "Name of the model's weights; blocks that were computed with others are not there"),
           "the fingerprint alone says which weights", "\"2026-11-25\"");
  shared.add("expiry", some_months, FIELD(shared_storage.expiry), "How long a block stays that nobody uses");
  shared.add("expiry-per-depth", up_to_a_day, FIELD(shared_storage.expiry_per_depth),
             "This much less for each block before it in its prefix, down to the half");
  server.add("connections-per-node", {1, 64}, FIELD(shared_storage.connections_per_node), "Connections to each server");
  server.add("window-bytes", more_than_0, FIELD(shared_storage.window_bytes),
             "Bytes that a connection sends or expects at a time; a larger block goes alone");
  shared.add("probe-deadline", some_time, FIELD(shared_storage.probe_deadline),
             "Longest time that a request waits for the answer which blocks are there");
  shared
      .add("write-policy", Type::name, FIELD(shared_storage.write_policy),
           "Which blocks are written: none, selective (blocks that were hit), write-through (computed blocks)")
      .names = {"none", "selective", "write-through"};
  shared.add("selective-hits", {1, 255}, FIELD(shared_storage.selective_hits),
             "Write policy selective writes a block at this hit");
  shared.add("bytes-in-flight", more_than_0, FIELD(shared_storage.bytes_in_flight),
             "Most bytes of blocks that are being written at a time");
  shared.add("write-bandwidth", FIELD(shared_storage.write_bandwidth), "Most bytes per second that are written; 0: no limit");
  shared.add("daily-writes", FIELD(shared_storage.daily_write_bytes), "Most bytes per day that are written; 0: no limit");
}

void add_log(std::vector<Option>& all) {
  const Table log{all, "log"};
  log.add("level", FIELD(system.log.least), "Least level of messages that are logged");
  log.add("per-period", {1, UINT32_MAX}, FIELD(system.log.per_period), "Most messages on one topic within a period");
  log.add("period", some_time, FIELD(system.log.period), "Length of a period");
  log.add("waiting-max", {1, 65'536}, FIELD(system.log.waiting_max),
          "Most messages that wait for a slow log; further ones are counted, not written");
}

void add_admin(std::vector<Option>& all) {
  const Table admin{all, "admin"};
  optional(with_flag(admin.add("listen", Type::text, FIELD(system.admin.listen),
                               "Endpoint for operators: unix:PATH, tcp:127.0.0.1:PORT, or unix: (a name of its own in the "
                               "folder where `terrace` looks for processes)"),
                     "--admin"),
           "no endpoint", "\"unix:/run/terrace/engine.sock\"");
  optional(admin.add("token-file", FIELD(system.admin.token_file), "File with the token that requests over TCP must bring"),
           "none", "\"/etc/terrace/token\"");
  admin.add("commands", FIELD(system.admin.commands), "If off, the endpoint answers questions and refuses commands");
  admin.add("interval", some_time, FIELD(system.admin.publish_interval),
            "How often the cache publishes what the endpoint answers from");
  admin.add("command-deadline", some_time, FIELD(system.admin.command_deadline),
            "How long a command waits for the cache before it is withdrawn");
  admin.add("connections-max", {1, 1024}, FIELD(system.admin.connections_max), "Most connections to the endpoint at a time");
  admin.add("block-tokens", any_count, FIELD(system.admin.block_tokens),
            "Tokens of a hash unit, so that metrics count tokens in a cache without groups; 0: they count blocks");
}

void add_trace(std::vector<Option>& all) {
  const Table trace{all, "trace"};
  optional(with_flag(trace.add("out", FIELD(system.trace_out),
                               "File for trace events of the whole run, which Perfetto (ui.perfetto.dev) shows"),
                     "--trace-out"),
           "none", "\"trace.json\"");
}

#undef FIELD

constexpr std::array without_option{
    FieldWithoutOption{"ranks.regions", "they are memory of the engine, at addresses of its own process"},
    FieldWithoutOption{"ranks.device.CustomDevice", "it is an object of the program"},
    FieldWithoutOption{"ranks.device.InstantGpu", "a program that uses it calls the cache in another way, without an event loop"},
    FieldWithoutOption{"ranks.device.link.stall", "only tests need a link that stalls"},
    FieldWithoutOption{"ranks.device.link.stall_every", "only tests need a link that stalls"},
    FieldWithoutOption{"ranks.device.link.fail_every", "only tests need a link that fails"},
    FieldWithoutOption{"ranks.device.faults", "only tests plant faults (`terrace replay --inject`)"},
    FieldWithoutOption{"pools.host_rows", "it is memory of the engine, at an address of its own process"},
    FieldWithoutOption{"pools.host_rows_owner", "it is an object of the program"},
    FieldWithoutOption{"host_touch.cancel", "it is a variable of the program"},
    FieldWithoutOption{"host_touch.count_huge", "the count is for programs that touch memory themselves"},
    FieldWithoutOption{"memory_limits", "it is a function of the program"},
    FieldWithoutOption{"storage.CustomStorage", "the stores are objects of the program"},
    FieldWithoutOption{"shared.password", "it is a secret: the variable TERRACE_SHARED_PASSWORD has it, or a file"},
    FieldWithoutOption{"shared.store", "it is an object of the program"},
    FieldWithoutOption{"lane_rates.request", "it must be 0: requests wait for their transfers"},
    FieldWithoutOption{"log.sink", "it is an object of the program"},
    FieldWithoutOption{"admin.config", "it is the configuration itself"},
};

}  // namespace

std::span<const FieldWithoutOption> fields_without_option() { return without_option; }

const std::vector<Option>& options() {
  static const std::vector<Option> all = [] {
    std::vector<Option> rows;
    add_general(rows);
    add_arrays(rows);
    add_tiers(rows);
    add_storage(rows);
    add_shared(rows);
    add_log(rows);
    add_admin(rows);
    add_trace(rows);
    return rows;
  }();
  return all;
}

}  // namespace config
}  // namespace terrace
