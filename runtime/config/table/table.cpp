#include "runtime/config/table/table.hpp"

#include "radix/tree/copy.hpp"
#include "terrace/block_store.hpp"
#include "terrace/device.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <filesystem>
#include <iterator>
#include <type_traits>

namespace terrace::config {
namespace {

// Enumerations with names that are words of the configuration.

std::string_view to_string(HostWarmUp warm_up) {
  return warm_up == HostWarmUp::before_serving ? "before-serving" : "while-serving";
}
std::string_view to_string(KeyOrder order) { return order == KeyOrder::prefix ? "prefix" : "flat"; }
std::string_view to_string(LoadPolicy loads) { return loads == LoadPolicy::measured ? "measured" : "always"; }
template <class E>
constexpr std::array<E, 0> all_of{};
template <>
constexpr std::array all_of<InclusionPolicy>{InclusionPolicy::non_inclusive, InclusionPolicy::exclusive,
                                             InclusionPolicy::inclusive, InclusionPolicy::lazy_exclusive};
template <>
constexpr std::array all_of<WritePolicy>{WritePolicy::none, WritePolicy::write_through, WritePolicy::selective,
                                         WritePolicy::write_back};
template <>
constexpr std::array all_of<KeyOrder>{KeyOrder::prefix, KeyOrder::flat};
template <>
constexpr std::array all_of<LoadPolicy>{LoadPolicy::measured, LoadPolicy::always};
template <>
constexpr std::array all_of<RankPayload>{RankPayload::sharded, RankPayload::replicated};
template <>
constexpr std::array all_of<IoChoice>{IoChoice::automatic, IoChoice::uring, IoChoice::threads};
template <>
constexpr std::array all_of<HostWarmUp>{HostWarmUp::before_serving, HostWarmUp::while_serving};
template <>
constexpr std::array all_of<LogLevel>{LogLevel::info, LogLevel::warning, LogLevel::error};
template <>
constexpr std::array all_of<GroupKind>{GroupKind::full, GroupKind::sliding_window, GroupKind::chunked_local, GroupKind::recurrent,
                                       GroupKind::cross};

template <class E>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  names.reserve(std::size(all_of<E>));
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
template <class T>
void write_field(T& field, const Value& value) {
  field = field_of<T>(value);
}
template <class T>
void write_field(std::optional<T>& field, const Value& value) {
  field = field_of<T>(value);
}

/// Makes a row. `Access` is a lambda that returns the field of a Draft.
template <class Access>
Option row(std::string_view table, std::string_view key, Type type, Limits limits, Access, std::string_view help) {
  Option option{.table = table, .key = key, .type = type, .limits = limits, .help = help};
  option.get = [](const Draft& draft, std::size_t n) { return read_field(Access{}(draft, n)); };
  option.set = [](Draft& draft, std::size_t n, const Value& value) { write_field(Access{}(draft, n), value); };
  return option;
}
template <class Access>
Option named(std::string_view table, std::string_view key, Access, std::string_view help) {
  using E = std::remove_cvref_t<decltype(Access{}(std::declval<Draft&>(), 0))>;
  Option option = row(table, key, Type::name, {}, Access{}, help);
  option.names = names_of<E>();
  return option;
}

/// Changes to a row, in the order of reading: `common(row(...))`.
Option common(Option option) {
  option.common = true;
  return option;
}
Option live(Option option) {
  option.live = true;
  return option;
}
Option with_flag(Option option, std::string_view flag, std::string_view alias = {}) {
  option.flag = flag;
  option.flag_alias = alias;
  return option;
}
Option needing(Needs needs, Option option) {
  option.needs = needs;
  return option;
}
Option optional(Option option, std::string_view otherwise, std::string_view example) {
  option.otherwise = otherwise;
  option.example = example;
  return option;
}
Option only_in_files(Option option) {
  option.only_in_files = true;
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
constexpr Limits any{};
constexpr Limits more_than_0{1};

void add_general(std::vector<Option>& all) {
  Option policy = row("", "policy", Type::name, any, FIELD(policy),
                      "Eviction policy of device and host: adaptive follows the rule that has lately hit most");
  policy.names = {"adaptive", "lru"};
  all.push_back(live(common(std::move(policy))));
  Option inclusion = named("", "inclusion", FIELD(system.inclusion),
                           "How device and host copies of a block relate: lazy-exclusive (a host copy stays after a swap-in, and "
                           "goes first), exclusive (a block is in one of the two), non-inclusive (a host copy stays as long as "
                           "others that are as new), inclusive (the host has every computed block too)");
  inclusion.old_name = "keep";
  all.push_back(with_flag(std::move(inclusion), "--inclusion", "--relation"));
  all.push_back(
      live(common(named("", "write-policy", FIELD(system.write_policy.value()),
                        "Which blocks reach storage: none, write-through (computed blocks), selective (blocks that were hit), "
                        "write-back (evicted blocks); with storage the default is write-through"))));
  all.push_back(live(row("", "selective-hits", Type::whole, {1, 255}, FIELD(system.selective_hits),
                         "Write policy selective stores a block at this hit")));
  all.push_back(live(row("", "daily-writes", Type::size, any, FIELD(system.daily_write_bytes),
                         "Most bytes per day that are written to storage; 0: no limit")));
  all.push_back(
      live(named("", "loads", FIELD(system.loads),
                 "Which hits below the device are loaded: measured, if loading is expected to be faster than computing; "
                 "always")));
  all.push_back(row("", "unit-prefill", Type::duration, up_to_a_day, FIELD(unit_prefill),
                    "Time in which the engine computes one hash unit of a prompt; 0: the cache learns it"));
  all.push_back(row("", "caching", Type::yes_no, any, FIELD(system.caching),
                    "If off, no request finds a hit, and no block stays cached after its request"));
  all.push_back(row("", "store-uncached", Type::yes_no, any, FIELD(system.store_uncached),
                    "With caching off: blocks still reach storage and the shared store, for other instances that read them"));
  all.push_back(row("", "request-units-max", Type::whole, any_count, FIELD(system.request_units_max),
                    "Most blocks of one request, in hash units; 0: what the pools hold"));
  all.push_back(row("", "pinned-blocks-max", Type::whole, any_blocks, FIELD(system.pinned_blocks_max),
                    "Most blocks of a pool that pins keep from eviction; 0: half of the device blocks"));
  all.push_back(row("", "retained-units-max", Type::whole, any_blocks, FIELD(system.retained_units_max),
                    "Most blocks that retentions name, in hash units; 0: the device blocks of the first pool"));
  all.push_back(row("", "write-back-blocks-ahead", Type::whole, {1, blocks_max}, FIELD(system.write_back_blocks_ahead),
                    "Most blocks that a write-back job over everything has under way"));
  all.push_back(row("", "evictions-in-flight-max", Type::whole, any_blocks, FIELD(system.evictions_in_flight_max),
                    "Most blocks of a pool that are copied to the host at a time to free slots for requests; 0: no limit"));
  all.push_back(optional(row("", "ranks", Type::whole, {1, RankedTransfers::ranks_max}, FIELD(ranks_count),
                             "Devices that share each block, under one manager"),
                         "as many as devices are named", "2"));
  all.push_back(named("", "rank-payload", FIELD(system.rank_payload),
                      "What a rank holds: sharded, its part of each block; replicated, all ranks have the same bytes"));
  all.push_back(row("", "engine-owns-slots", Type::yes_no, any, FIELD(system.engine_owns_slots),
                    "The device slots belong to the engine, which names them in the orders of an OffloadCache"));
  all.push_back(
      named("", "key-order", FIELD(system.key_order),
            "The keys of an order of an OffloadCache: prefix, the blocks of a prefix from the first one on; flat, every "
            "block stands alone"));
  all.push_back(optional(row("", "fingerprint", Type::digest, any, FIELD(fingerprint),
                             "Identifies the model and its geometry, 64 hexadecimal digits; a store with another one is refused"),
                         "64 zeros", "\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\""));
  all.push_back(row("", "idle-service", Type::yes_no, any, FIELD(system.idle_service),
                    "A thread goes on with the work of the cache, operators' commands among it, while its engine makes no call; "
                    "caches and stores that are opened from C or Python have one unless this is off"));
  all.push_back(
      row("", "poison", Type::yes_no, any, FIELD(system.poison), "For tests: slots are overwritten as they become free"));
}

void add_arrays(std::vector<Option>& all) {
  all.push_back(common(
      with_flag(row("rank", "device", Type::device, any, FIELD(ranks[n].device),
                    "emulated, cuda, cuda:N. One stands for all ranks (GPUs with consecutive numbers); a flag or variable may "
                    "list one for each: cuda:0,cuda:2"),
                "--device")));
  all.push_back(only_in_files(optional(row("rank", "calibration", Type::path, any, FIELD(ranks[n].calibration),
                                           "File with the measured copy methods of the GPU, from terrace doctor"),
                                       "the file of terrace doctor, or built-in figures", "\"/var/cache/terrace/gpu.json\"")));
  const auto link = [&](Option option) { all.push_back(only_in_files(std::move(option))); };
  link(row("rank", "swap-in-bandwidth", Type::bandwidth, any, FIELD(ranks[n].link[Direction::swap_in].bytes_per_second),
           "Most bytes per second from the host to an emulated device; 0: no limit"));
  link(row("rank", "swap-out-bandwidth", Type::bandwidth, any, FIELD(ranks[n].link[Direction::swap_out].bytes_per_second),
           "Most bytes per second from an emulated device to the host; 0: no limit"));
  link(row("rank", "link-latency", Type::duration, up_to_a_day, FIELD(ranks[n].link[Direction::swap_in].latency),
           "Time before the bytes of a copy to or from an emulated device move"));
  link(row("rank", "link-jitter", Type::duration, up_to_a_day, FIELD(ranks[n].link[Direction::swap_in].jitter_max),
           "Most random time by which such a copy takes longer"));
  link(row("rank", "link-seed", Type::whole, any, FIELD(ranks[n].link.seed), "Seed of these random times"));
  const auto pool = [&](std::string_view flag, Option option) { all.push_back(with_flag(std::move(option), flag)); };
  pool("--block-bytes", row("pool", "block-bytes", Type::size, {1, count(MiB * 512)}, FIELD(pools[n].sizes.block_bytes),
                            "Size of a block, all layers and ranks together; with file storage a multiple of 4KiB"));
  pool("--layers", row("pool", "layers", Type::whole, {1, 65'536}, FIELD(pools[n].sizes.layers),
                       "Layers of a block, of equal size and adjacent"));
  pool("--device-blocks", row("pool", "device-blocks", Type::whole, {1, blocks_max}, FIELD(pools[n].sizes.device_blocks),
                              "Blocks of device memory, instead of a capacity"));
  pool("--device-capacity", common(optional(row("pool", "device-capacity", Type::size, more_than_0,
                                                FIELD(pools[n].device_capacity), "Device memory for blocks"),
                                            "device-blocks says how many", "\"64GiB\"")));
  pool("--device-blocks-max", row("pool", "device-blocks-max", Type::whole, any_blocks, FIELD(pools[n].sizes.device_blocks_max),
                                  "Device blocks to which the pool can grow while it serves; 0: it cannot grow"));
  pool("--host-blocks", row("pool", "host-blocks", Type::whole, any_blocks, FIELD(pools[n].sizes.host_blocks),
                            "Blocks of host memory, instead of a capacity; 0: no host tier"));
  pool("--host-capacity", common(optional(row("pool", "host-capacity", Type::size, any, FIELD(pools[n].host_capacity),
                                              "Host memory for blocks; 0: no host tier"),
                                          "host-blocks says how many", "\"256GiB\"")));
  pool("--staging-blocks", row("pool", "staging-blocks", Type::whole, any_blocks, FIELD(pools[n].sizes.staging_blocks),
                               "Slots through which blocks pass between device and storage; 0: chosen automatically"));
  pool("--null-block", row("pool", "null-block", Type::yes_no, any, FIELD(pools[n].sizes.null_block),
                           "The first slot stands for blocks that a group does not need"));
  pool("--first-slot", row("pool", "first-slot", Type::whole, any_blocks, FIELD(pools[n].sizes.first_slot),
                           "Number of the first device slot; lower ones belong to other caches that share the device's memory"));
  const auto group = [&](Option option) { all.push_back(only_in_files(std::move(option))); };
  group(named("group", "kind", FIELD(groups[n].kind), "The kind of attention"));
  group(row("group", "block-tokens", Type::whole, {1, UINT32_MAX}, FIELD(groups[n].block_tokens), "Tokens of a block"));
  group(row("group", "span-tokens", Type::whole, any_count, FIELD(groups[n].span_tokens),
            "Tokens of the window of sliding-window, or of the chunk of chunked-local; 0 for other kinds"));
  group(row("group", "optional", Type::yes_no, any, FIELD(groups[n].optional),
            "The group never shortens a hit, as for the layers of a draft model"));
  group(row("group", "pool", Type::whole, {0, UINT16_MAX}, FIELD(groups[n].pool), "The [[pool]] of the group, counted from 0"));
}

void add_tiers(std::vector<Option>& all) {
  all.push_back(live(row("device", "reserve-max", Type::share, any, FIELD(system.device_reserve_max),
                         "Largest share of device slots kept free ahead of requests; how many, the cache learns; 0: none")));
  all.push_back(live(row("device", "low-watermark", Type::share, any, FIELD(system.device_watermarks.low),
                         "Share of free device slots under which the cache evicts to the host in the background; 0: never")));
  all.push_back(live(row("device", "high-watermark", Type::share, any, FIELD(system.device_watermarks.high),
                         "Share of free device slots at which the background eviction ends")));
  all.push_back(live(row("host", "low-watermark", Type::share, any, FIELD(system.host_watermarks.low),
                         "Share of free host slots under which the cache evicts in the background; 0: never")));
  all.push_back(live(row("host", "high-watermark", Type::share, any, FIELD(system.host_watermarks.high),
                         "Share of free host slots at which the background eviction ends")));
  all.push_back(named("host", "warm-up", FIELD(system.host_warm_up),
                      "When the memory of the host tier is touched first: before-serving, or while-serving with a tier that "
                      "grows"));
  all.push_back(row("host", "touch-threads", Type::whole, {0, 1024}, FIELD(system.host_touch.threads),
                    "Threads that touch host memory first; 0: one for each processor, up to 8"));
  all.push_back(optional(
      row("host", "numa-node", Type::whole, {0, 1023}, FIELD(system.host_touch.numa_node), "NUMA node for the host tier"),
      "the node next to the GPUs, or that of the thread that touches the memory", "0"));
  all.push_back(row("host", "huge-pages", Type::yes_no, any, FIELD(system.host_touch.huge_pages),
                    "Ask the kernel for huge pages for the host tier"));
  all.push_back(row("transfers", "piece-bytes", Type::size, more_than_0, FIELD(system.transfer_pieces.bytes),
                    "Size of the pieces that transfers are cut into"));
  all.push_back(row("transfers", "bytes-in-flight", Type::size, more_than_0, FIELD(system.transfer_pieces.bytes_in_flight),
                    "Most bytes under way in each direction for requests, and as many again for other copies, which a request "
                    "may have to wait for"));
  all.push_back(row("transfers", "pieces-in-flight", Type::whole, {1, 1024}, FIELD(system.transfer_pieces.in_flight),
                    "Most pieces under way in each direction for requests, and as many again for other copies"));
  all.push_back(
      live(row("transfers", "make-room-bandwidth", Type::bandwidth, any,
               FIELD(system.lane_rates[static_cast<std::size_t>(Urgency::make_room)]),
               "Most bytes per second between device and host for copies that free slots ahead of requests; 0: no limit")));
  all.push_back(live(row("transfers", "store-bandwidth", Type::bandwidth, any,
                         FIELD(system.lane_rates[static_cast<std::size_t>(Urgency::store)]),
                         "Most bytes per second between device and host for copies on their way to storage; 0: no limit")));
}

void add_storage(std::vector<Option>& all) {
  const auto files = [&](Option option) { all.push_back(needing(Needs::files, std::move(option))); };
  const auto guard = [&](Option option) { all.push_back(needing(Needs::guard, std::move(option))); };
  all.push_back(common(with_flag(row("storage", "where", Type::storage, any, FIELD(storage),
                                     "none, memory:, file:DIR (blocks that DIR holds from before are hits)"),
                                 "--storage")));
  all.push_back(
      common(needing(Needs::storage, optional(row("storage", "capacity", Type::size, more_than_0, FIELD(storage_capacity),
                                                  "Capacity of the storage tier; mandatory with storage"),
                                              "there is no storage", "\"1TiB\""))));
  files(row("storage", "floor", Type::size, any, FIELD(file.floor), "Free space to keep in the file system of file:DIR"));
  files(row("storage", "name", Type::text, any, FIELD(file.name),
            "The store's own directory in file:DIR: digits, lower-case letters and '-'"));
  files(row("storage", "label", Type::text, any, FIELD(file.label),
            "Whose store it is, for people: engine, model, revision. terrace store stat shows it"));
  files(row("storage", "stripe", Type::paths, any, FIELD(stripe),
            "Further directories, on other disks, that file:DIR is striped over; the flag may be given several times"));
  files(row("storage", "stripe-size", Type::size, more_than_0, FIELD(file.stripe_bytes),
            "Bytes that lie side by side in one directory before the next one follows"));
  files(row("storage", "accept-lost", Type::yes_no, any, FIELD(file.accept_lost_directories),
            "Start without the directories that cannot be used: what they held is lost"));
  files(row("storage", "bandwidth", Type::bandwidth, any, FIELD(file.bandwidth),
            "Most bytes read and written per second with file:DIR, to imitate a slower disk; 0: no limit"));
  files(named("storage", "io", FIELD(file.io),
              "How files are read and written: auto (io_uring if it is available), uring, threads"));
  files(row("storage", "io-threads", Type::whole, {1, 1024}, FIELD(file.io_threads), "Threads for I/O by threads"));
  all.push_back(
      needing(Needs::storage, row("storage", "flush-interval", Type::duration, up_to_a_day, FIELD(system.flush_interval),
                                  "Longest time that a stored block waits for a flush; 0: only at the end and for "
                                  "durable jobs")));
  files(row("storage", "guard", Type::yes_no, any, FIELD(guarded),
            "Failed operations on file:DIR are retried, and file:DIR is not used while it keeps failing"));
  guard(row("storage", "retries", Type::whole, {0, 100}, FIELD(guard.read_retries),
            "How often a failed read or write of file:DIR is retried, if that may help"));
  guard(row("storage", "retry-delay", Type::duration, some_time, FIELD(guard.back_off_first),
            "Time from a failure to the first retry; each failure doubles it"));
  guard(row("storage", "retry-delay-max", Type::duration, some_time, FIELD(guard.back_off_max), "Longest time between retries"));
  guard(row("storage", "retries-waiting-max", Type::whole, {0, 65'536}, FIELD(guard.waiting_max),
            "Most operations that wait for a retry; further ones fail"));
  guard(row("storage", "breaker-failures", Type::whole, {1, 100'000}, FIELD(guard.breaker.failures_max),
            "Failures in a row after which file:DIR is not used for a while"));
  guard(row("storage", "breaker-window", Type::duration, some_time, FIELD(guard.breaker.window),
            "Time within which these failures must come"));
  guard(row("storage", "breaker-probe", Type::duration, some_time, FIELD(guard.breaker.probe_first),
            "Time until one operation tests whether file:DIR works again; each failed test doubles it"));
  guard(row("storage", "breaker-probe-max", Type::duration, some_time, FIELD(guard.breaker.probe_max),
            "Longest time between two tests"));
}

void add_shared(std::vector<Option>& all) {
  const auto add = [&](Needs needs, Option option) { all.push_back(needing(needs, std::move(option))); };
  all.push_back(with_flag(row("shared", "url", Type::shared, any, FIELD(shared),
                              "Store that several machines share: none, memory: (of this process), "
                              "redis://[USER@]HOST[:PORT][,...][?cluster=1], rediss:// (the same over TLS)"),
                          "--shared"));
  add(Needs::server, optional(row("shared", "password-file", Type::path, any, FIELD(shared_storage.password_file),
                                  "File whose first line is the password of the user"),
                              "the variable TERRACE_SHARED_PASSWORD, or none", "\"/etc/terrace/shared-password\""));
  add(Needs::tls, optional(row("shared", "ca-file", Type::path, any, FIELD(shared_storage.ca_file),
                               "Certificates of the authorities that are trusted, PEM"),
                           "those of the system", "\"/etc/terrace/ca.pem\""));
  add(Needs::shared, optional(row("shared", "secret-file", Type::path, any, FIELD(shared_storage.secret_file),
                                  "File with the secret of the deployment, at least 32 bytes: blocks are encrypted with it, and "
                                  "nobody without it can make some"),
                              "blocks are not encrypted", "\"/etc/terrace/shared-secret\""));
  add(Needs::shared, row("shared", "prefix", Type::text, any, FIELD(shared_storage.prefix),
                         "Beginning of the names of all values: letters, digits and \"-_.:/\""));
  add(Needs::shared, optional(row("shared", "weights-revision", Type::text, any, FIELD(shared_storage.weights_revision),
                                  "Name of the model's weights; blocks that were computed with others are not there"),
                              "the fingerprint alone says which weights", "\"2026-11-25\""));
  add(Needs::shared, row("shared", "expiry", Type::duration, some_months, FIELD(shared_storage.expiry),
                         "How long a block stays that nobody uses"));
  add(Needs::shared, row("shared", "expiry-per-depth", Type::duration, up_to_a_day, FIELD(shared_storage.expiry_per_depth),
                         "This much less for each block before it in its prefix, down to the half"));
  add(Needs::server, row("shared", "connections-per-node", Type::whole, {1, 64}, FIELD(shared_storage.connections_per_node),
                         "Connections to each server"));
  add(Needs::server, row("shared", "window-bytes", Type::size, more_than_0, FIELD(shared_storage.window_bytes),
                         "Bytes that a connection sends or expects at a time; a larger block goes alone"));
  add(Needs::shared, row("shared", "probe-deadline", Type::duration, some_time, FIELD(shared_storage.probe_deadline),
                         "Longest time that a request waits for the answer which blocks are there"));
  Option policy = row("shared", "write-policy", Type::name, any, FIELD(shared_storage.write_policy),
                      "Which blocks are written: none, selective (blocks that were hit), write-through (computed blocks)");
  policy.names = {"none", "selective", "write-through"};
  add(Needs::shared, std::move(policy));
  add(Needs::shared, row("shared", "selective-hits", Type::whole, {1, 255}, FIELD(shared_storage.selective_hits),
                         "Write policy selective writes a block at this hit"));
  add(Needs::shared, row("shared", "bytes-in-flight", Type::size, more_than_0, FIELD(shared_storage.bytes_in_flight),
                         "Most bytes of blocks that are being written at a time"));
  add(Needs::shared, row("shared", "write-bandwidth", Type::bandwidth, any, FIELD(shared_storage.write_bandwidth),
                         "Most bytes per second that are written; 0: no limit"));
  add(Needs::shared, row("shared", "daily-writes", Type::size, any, FIELD(shared_storage.daily_write_bytes),
                         "Most bytes per day that are written; 0: no limit"));
}

void add_log(std::vector<Option>& all) {
  all.push_back(named("log", "level", FIELD(system.log.least), "Least level of messages that are logged"));
  all.push_back(row("log", "per-period", Type::whole, {1, UINT32_MAX}, FIELD(system.log.per_period),
                    "Most messages on one topic within a period"));
  all.push_back(row("log", "period", Type::duration, some_time, FIELD(system.log.period), "Length of a period"));
  all.push_back(row("log", "waiting-max", Type::whole, {1, 65'536}, FIELD(system.log.waiting_max),
                    "Most messages that wait for a slow log; further ones are counted, not written"));
}

void add_admin(std::vector<Option>& all) {
  all.push_back(
      optional(with_flag(row("admin", "listen", Type::text, any, FIELD(system.admin.listen),
                             "Endpoint for operators: unix:PATH, tcp:127.0.0.1:PORT, or unix: (a name of its own in the "
                             "folder where `terrace` looks for processes)"),
                         "--admin"),
               "no endpoint", "\"unix:/run/terrace/engine.sock\""));
  all.push_back(optional(row("admin", "token-file", Type::path, any, FIELD(system.admin.token_file),
                             "File with the token that requests over TCP must bring"),
                         "none", "\"/etc/terrace/token\""));
  all.push_back(row("admin", "commands", Type::yes_no, any, FIELD(system.admin.commands),
                    "If off, the endpoint answers questions and refuses commands"));
  all.push_back(row("admin", "interval", Type::duration, some_time, FIELD(system.admin.publish_interval),
                    "How often the cache publishes what the endpoint answers from"));
  all.push_back(row("admin", "command-deadline", Type::duration, some_time, FIELD(system.admin.command_deadline),
                    "How long a command waits for the cache before it is withdrawn"));
  all.push_back(row("admin", "connections-max", Type::whole, {1, 1024}, FIELD(system.admin.connections_max),
                    "Most connections to the endpoint at a time"));
  all.push_back(row("admin", "block-tokens", Type::whole, any_count, FIELD(system.admin.block_tokens),
                    "Tokens of a hash unit, so that metrics count tokens in a cache without groups; 0: they count blocks"));
}

void add_trace(std::vector<Option>& all) {
  all.push_back(optional(with_flag(row("trace", "out", Type::path, any, FIELD(system.trace_out),
                                       "File for trace events of the whole run, which Perfetto (ui.perfetto.dev) shows"),
                                   "--trace-out"),
                         "none", "\"trace.json\""));
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

}  // namespace terrace::config
