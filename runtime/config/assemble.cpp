// Makes the options of a CacheSystem from single values: computes what depends on several options, and checks their combinations.

#include "runtime/config/givens.hpp"
#include "runtime/system/system_config.hpp"
#include "storage/redis/redis_options.hpp"
#include "storage/shared/shared_value.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace terrace::config {
namespace {

constexpr Bytes file_block_unit = KiB * 4;
constexpr std::string_view file_prefix = "file:";

/// Words in the URL of a shared store for which there is an option.
struct InUrl {
  std::string_view word;
  std::string_view option;
};
constexpr std::array in_url{InUrl{"password_file", "shared.password-file"},
                            InUrl{"ca_file", "shared.ca-file"},
                            InUrl{"prefix", "shared.prefix"},
                            InUrl{"expiry", "shared.expiry"},
                            InUrl{"window", "shared.window-bytes"},
                            InUrl{"connections", "shared.connections-per-node"}};

std::string exact(Bytes size) { return to_word(Type::size, count(size)); }
std::string exact(Duration duration) { return to_word(Type::duration, static_cast<std::uint64_t>(duration.count())); }

class Assembler {
 public:
  Assembler(const Givens& givens, std::span<const ConfigPolicy> policies)
      : givens_{givens}, policies_{policies}, draft_{draft_of(givens)} {}

  CacheSystemOptions run() {
    choose_ranks();
    choose_pools();
    check_payload();
    check_layers();
    check_owner();
    check_needs();
    choose_storage();
    check_writing();
    choose_shared();
    if (draft_.system.device_reserve_max >= 1) {
      refuse("{}: {} must be less than 1", name_of("device.reserve-max", level("device.reserve-max")),
             draft_.system.device_reserve_max);
    }
    check_watermarks("device", draft_.system.device_watermarks);
    check_watermarks("host", draft_.system.host_watermarks);
    choose_policy();
    draft_.system.unit_prefill_seconds = std::chrono::duration<double>(draft_.unit_prefill).count();
    if (draft_.fingerprint) draft_.system.fingerprint = *draft_.fingerprint;
    draft_.system.groups = draft_.groups;
    check_endpoint();
    check_as_at_start();
    return std::move(draft_.system);
  }

 private:
  template <class... Args>
  [[noreturn]] static void refuse(fmt::format_string<Args...> format, Args&&... args) {
    throw ConfigError{fmt::format(format, std::forward<Args>(args)...)};
  }

  /// The name of the option as its user wrote it; if it is not set, as the user of `other` would write it.
  [[nodiscard]] std::string name_of(const Option& option, ConfigLevel other, std::size_t n = 0) const {
    const Given* const given = givens_.find(option, n);
    return given != nullptr ? spelled(option, given->origin) : mention(option, other);
  }
  [[nodiscard]] std::string name_of(std::string_view name, ConfigLevel other, std::size_t n = 0) const {
    return name_of(option_named(name), other, n);
  }
  [[nodiscard]] ConfigLevel level(std::string_view name) const { return givens_.level(option_named(name)); }
  /// Returns true if a user wants this value: it is given as a flag, or differs from the default.
  [[nodiscard]] bool is_meant(const Option& option, std::size_t n = 0) const {
    const Given* const given = givens_.find(option, n);
    if (given == nullptr) return false;
    const std::optional<Value> usual = option.get(default_draft(1, 1, 0), 0);
    return given->origin.level == ConfigLevel::flag || !usual || *usual != given->value;
  }

  void choose_ranks() {
    std::vector<Draft::Rank>& ranks = draft_.ranks;
    const Option& device = option_named("rank.device");
    const ConfigLevel at = std::max(level("ranks"), givens_.level(device));
    if (const auto wanted = draft_.ranks_count; wanted && *wanted != ranks.size()) {
      if (ranks.size() > 1) {
        refuse("{} names {} devices, for {} rank{}", name_of(device, at), ranks.size(), *wanted, *wanted == 1 ? "" : "s");
      }
      const std::optional<int> first = ordinal(ranks.front().device);
      while (ranks.size() < *wanted) {
        ranks.push_back(ranks.front());
        if (first) ranks.back().device = fmt::format("cuda:{}", *first + static_cast<int>(ranks.size()) - 1);
      }
    }
    if (ranks.size() > RankedTransfers::ranks_max) {
      refuse("{}: {} devices are more than {}", name_of(device, at), ranks.size(), RankedTransfers::ranks_max);
    }
    draft_.system.ranks.clear();
    for (std::size_t n = 0; n < ranks.size(); ++n) {
      const std::optional<int> cuda = ordinal(ranks[n].device);
      check_device(n, cuda.has_value());
      RankOptions made;
      if (cuda) made.device = CudaGpu{.ordinal = *cuda, .calibration = ranks[n].calibration};
      else made.device = EmulatedGpu{.link = link_of(ranks[n]), .faults = {}};
      draft_.system.ranks.push_back(std::move(made));
    }
    const Option& payload = option_named("rank-payload");
    if (is_meant(payload) && !draft_.ranks_count && ranks.size() == 1) {
      const ConfigLevel own = givens_.level(payload);
      refuse("{} needs {}, or a {} for each", name_of(payload, own), mention(option_named("ranks"), own), mention(device, own));
    }
  }

  [[nodiscard]] static LinkModel link_of(const Draft::Rank& rank) {
    LinkModel link = rank.link;
    link[Direction::swap_out].latency = link[Direction::swap_in].latency;
    link[Direction::swap_out].jitter_max = link[Direction::swap_in].jitter_max;
    return link;
  }

  /// Refuses options of a rank that its kind of device does not have.
  void check_device(std::size_t rank, bool is_cuda) const {
    for (const Option& option : options()) {
      if (option.scope() != Scope::rank || option.key == "device" || !is_meant(option, rank)) continue;
      if ((option.key == "calibration") == is_cuda) continue;
      refuse("{} is for rank.device {}", name_of(option, ConfigLevel::file, rank), is_cuda ? "emulated" : "cuda:N");
    }
  }

  /// The number in "cuda:N"; nothing for an emulated device.
  [[nodiscard]] static std::optional<int> ordinal(const std::string& device) {
    constexpr std::string_view prefix = "cuda:";
    if (!device.starts_with(prefix)) return std::nullopt;
    int number = 0;
    std::from_chars(device.data() + prefix.size(), device.data() + device.size(), number);
    return number;
  }

  void choose_pools() {
    if (draft_.pools.size() > 1) {
      for (const Option& option : options()) {
        const Given* const given = option.scope() == Scope::pool ? givens_.find(option) : nullptr;
        if (given == nullptr || given->origin.level <= ConfigLevel::file) continue;
        refuse("{}: there are {} pools; set {} in the [[pool]] tables of the file", given->origin.where, draft_.pools.size(),
               option.key);
      }
    }
    draft_.system.pools.clear();
    for (std::size_t n = 0; n < draft_.pools.size(); ++n) {
      Draft::Pool& pool = draft_.pools[n];
      choose_blocks(pool.sizes.device_blocks, "device", pool.device_capacity, pool.sizes.block_bytes, n);
      choose_blocks(pool.sizes.host_blocks, "host", pool.host_capacity, pool.sizes.block_bytes, n);
      if (pool.sizes.device_blocks_max != 0 && pool.sizes.device_blocks_max < pool.sizes.device_blocks) {
        refuse("{}: {} is less than the {} device blocks of the pool", name_of("pool.device-blocks-max", ConfigLevel::file, n),
               pool.sizes.device_blocks_max.value(), pool.sizes.device_blocks.value());
      }
      draft_.system.pools.push_back(pool.sizes);
    }
  }

  /// Replaces the number of blocks of `memory`, "device" or "host", if its capacity is given instead.
  void choose_blocks(Blocks& blocks, std::string_view memory, std::optional<Bytes> capacity, Bytes block_bytes,
                     std::size_t n) const {
    if (!capacity) return;
    const Option& in_blocks = *find_option("pool", fmt::format("{}-blocks", memory));
    const Option& in_bytes = *find_option("pool", fmt::format("{}-capacity", memory));
    const ConfigLevel at = givens_.level(in_bytes, n);
    if (const Given* const both = givens_.find(in_blocks, n); both != nullptr && both->origin.level == at) {
      const std::string where = at == ConfigLevel::file ? both->origin.where + ": " : "";
      refuse("{}give {} or {}, not both", where, mention(in_blocks, at), mention(in_bytes, at));
    }
    const std::string name = name_of(in_bytes, at, n);
    const std::uint64_t fitting = *capacity / block_bytes;
    if (fitting == 0 && *capacity != Bytes{}) {
      refuse("{}: {} is less than one block of {}", name, exact(*capacity), exact(block_bytes));
    }
    const std::uint64_t most = in_blocks.limits.max;
    if (fitting > most) refuse("{}: {} are {} blocks, more than {}", name, exact(*capacity), fitting, most);
    blocks = Blocks{static_cast<std::uint32_t>(fitting)};
  }

  void check_payload() const {
    const std::size_t ranks = draft_.ranks.size();
    if (ranks == 1 || draft_.system.rank_payload == RankPayload::replicated) return;
    constexpr std::uint64_t word = 8;
    for (std::size_t n = 0; n < draft_.pools.size(); ++n) {
      const Bytes block = draft_.pools[n].sizes.block_bytes;
      if (count(block) % (word * ranks) == 0) continue;
      refuse("{}: {} cannot be divided among {} ranks: use a multiple of {} bytes",
             name_of("pool.block-bytes", std::max(level("ranks"), level("rank.device")), n), exact(block), ranks, word * ranks);
    }
  }

  void check_layers() const {
    const std::uint64_t shares = draft_.system.rank_payload == RankPayload::replicated ? 1 : draft_.ranks.size();
    for (std::size_t n = 0; n < draft_.pools.size(); ++n) {
      const PoolOptions& pool = draft_.pools[n].sizes;
      if (count(pool.block_bytes) % (shares * pool.layers) == 0) continue;
      refuse("{}: {} cannot be divided into {} layers: use a multiple of {} bytes",
             name_of("pool.block-bytes", givens_.level(option_named("pool.layers"), n), n), exact(pool.block_bytes), pool.layers,
             shares * pool.layers);
    }
  }

  /// Checks what depends on whether the engine owns the device slots.
  void check_owner() const {
    const Option& owns = option_named("engine-owns-slots");
    const Option& order = option_named("key-order");
    if (!draft_.system.engine_owns_slots) {
      if (draft_.system.key_order == KeyOrder::prefix) return;
      refuse("{} flat needs {} on", name_of(order, givens_.level(order)), mention(owns, givens_.level(order)));
    }
    const ConfigLevel at = givens_.level(owns);
    if (draft_.system.host_admission) {
      const Option& admission = option_named("host-admission");
      refuse("{} is about blocks that the cache evicts from the device: it cannot be combined with {}",
             name_of(admission, givens_.level(admission)), mention(owns, givens_.level(admission)));
    }
    for (std::size_t n = 0; n < draft_.pools.size(); ++n) {
      const PoolOptions& pool = draft_.pools[n].sizes;
      if (!pool.null_block && pool.first_slot == 0) continue;
      refuse("{} cannot be combined with {}: the engine numbers all slots of its device",
             name_of(pool.null_block ? "pool.null-block" : "pool.first-slot", at, n), mention(owns, at));
    }
  }

  void choose_storage() {
    const Option& where = option_named("storage.where");
    const bool in_files = draft_.storage.starts_with(file_prefix);
    const ConfigLevel at = givens_.level(where);
    if (draft_.storage == "none") return;
    const Option& capacity = option_named("storage.capacity");
    if (!draft_.storage_capacity) {
      refuse("{} {} needs {}", name_of(where, at), in_files ? "file:DIR" : "memory:", mention(capacity, at));
    }
    for (std::size_t n = 0; n < draft_.pools.size(); ++n) {
      const Bytes block_bytes = draft_.pools[n].sizes.block_bytes;
      if (*draft_.storage_capacity / block_bytes == 0) {
        refuse("{}: {} is less than one block of {}", name_of(capacity, at), exact(*draft_.storage_capacity), exact(block_bytes));
      }
      if (in_files && count(block_bytes) % count(file_block_unit) != 0) {
        refuse("{}: with file storage a multiple of {}, not {}", name_of("pool.block-bytes", at, n), exact(file_block_unit),
               exact(block_bytes));
      }
    }
    try {
      (void)storage_shares(*draft_.storage_capacity, draft_.system.pools);
    } catch (const std::invalid_argument& wrong) {
      refuse("{}: {}", name_of(capacity, at), wrong.what());
    }
    if (in_files) {
      choose_files();
    } else {
      draft_.system.storage = MemoryStorage{*draft_.storage_capacity};
    }
  }

  /// Refuses options of storage that the chosen storage does not have. An option that is set on a lower level than the storage
  /// itself is accepted: it is for the storage of the lower level. A file may keep the options of storage that it switches off.
  /// The same is true for a shared store.
  void check_needs() const {
    for (const Option& option : options()) {
      const std::string_view needed = missing(option.needs);
      if (needed.empty() || !is_meant(option)) continue;
      const bool is_shared = option.table == "shared";
      const bool none = (is_shared ? draft_.shared : draft_.storage) == "none";
      const Option& where = option_named(is_shared ? "shared.url" : "storage.where");
      const ConfigLevel chosen = givens_.level(where);
      const ConfigLevel own = givens_.level(option);
      if (own < chosen || (none && own == chosen && own == ConfigLevel::file)) continue;
      if (none) refuse("{} is given, but no {}", name_of(option, own), mention(where, own));
      refuse("{} is for {} {}", name_of(option, own), mention(where, own), needed);
    }
  }

  /// The storage or shared store that is needed but not configured. Empty if it is configured.
  [[nodiscard]] std::string_view missing(Needs needs) const {
    const auto unless = [](bool there, std::string_view needed) { return there ? std::string_view{} : needed; };
    const bool over_tls = draft_.shared.starts_with("rediss:");
    switch (needs) {
      case Needs::nothing: return {};
      case Needs::storage: return unless(draft_.storage != "none", "memory: or file:DIR");
      case Needs::files:
      case Needs::guard: return unless(draft_.storage.starts_with(file_prefix), "file:DIR");
      case Needs::shared: return unless(draft_.shared != "none", "URL");
      case Needs::server: return unless(over_tls || draft_.shared.starts_with("redis:"), "redis://HOST or rediss://HOST");
      case Needs::tls: return unless(over_tls, "rediss://HOST");
    }
    return {};
  }

  void choose_files() {
    FileStorage& file = draft_.file;
    constexpr std::string_view letters = "0123456789abcdefghijklmnopqrstuvwxyz-";
    constexpr std::size_t name_letters_max = 64;
    if (file.name.size() > name_letters_max || file.name.find_first_not_of(letters) != std::string::npos) {
      refuse("{}: \"{}\" is not a name of at most {} digits, lower-case letters and '-'",
             name_of("storage.name", level("storage.name")), one_line(file.name), name_letters_max);
    }
    file.directories = {draft_.storage.substr(file_prefix.size())};
    file.directories.insert(file.directories.end(), draft_.stripe.begin(), draft_.stripe.end());
    file.capacity = *draft_.storage_capacity;
    for (const std::string_view name : {"storage.stripe-size", "storage.accept-lost"}) {
      if (!draft_.stripe.empty() || !is_meant(option_named(name))) continue;
      if (name == "storage.accept-lost" && !file.accept_lost_directories) continue;
      refuse("{} is for storage with {}", name_of(name, level(name)), mention(option_named("storage.stripe"), level(name)));
    }
    if (file.io == IoChoice::uring && file.bandwidth != BytesPerSecond{}) {
      const ConfigLevel at = level("storage.bandwidth");
      refuse("{} needs {} threads, or auto", name_of("storage.bandwidth", at), mention(option_named("storage.io"), at));
    }
    draft_.system.storage = std::move(file);
    choose_guard();
  }

  void choose_guard() {
    if (!draft_.guarded) {
      for (const Option& option : options()) {
        if (option.needs != Needs::guard || !is_meant(option)) continue;
        const ConfigLevel at = givens_.level(option);
        refuse("{} needs {} on", name_of(option, at), mention(option_named("storage.guard"), at));
      }
      draft_.system.storage_guard.reset();
      return;
    }
    ResilienceOptions& guard = draft_.guard;
    guard.write_retries = guard.read_retries;
    raise(guard.breaker.probe_max, guard.breaker.probe_first, "storage.breaker-probe-max");
    raise(guard.back_off_max, guard.back_off_first, "storage.retry-delay-max");
    draft_.system.storage_guard = guard;
  }

  /// Raises `most` to `first` if it has its default. If the user has set it, a lower value is refused.
  void raise(Duration& most, Duration first, std::string_view name) const {
    if (most >= first) return;
    if (givens_.find(option_named(name)) != nullptr) {
      refuse("{}: {} is less than the first time, {}", name_of(name, level(name)), exact(most), exact(first));
    }
    most = first;
  }

  void check_writing() const {
    const CacheSystemOptions& system = draft_.system;
    const bool has_storage = draft_.storage != "none";
    const Option& where = option_named("storage.where");
    const ConfigLevel policy_level = level("write-policy");
    if (!has_storage && system.write_policy != WritePolicy::none && policy_level >= givens_.level(where)) {
      refuse("{} {} needs {}", name_of("write-policy", policy_level), to_string(system.write_policy.value()),
             mention(where, policy_level));
    }
    if (system.host_admission && system.inclusion == InclusionPolicy::inclusive) {
      refuse("{} leaves blocks out of the host, but {} inclusive copies all of them",
             name_of("host-admission", level("host-admission")), mention(option_named("inclusion"), level("host-admission")));
    }
    if (!system.store_uncached) return;
    const ConfigLevel at = level("store-uncached");
    const std::string name = name_of("store-uncached", at);
    if (!has_storage && draft_.shared == "none") {
      refuse("{} needs {} or {}", name, mention(where, at), mention(option_named("shared.url"), at));
    }
    if (system.caching) refuse("{} needs {} off", name, mention(option_named("caching"), at));
    if (system.inclusion == InclusionPolicy::inclusive) {
      refuse("{} keeps no copies in the host, but {} inclusive needs them there", name, mention(option_named("inclusion"), at));
    }
  }

  void choose_shared() {
    const Option& where = option_named("shared.url");
    const std::string& url = draft_.shared;
    if (url == "none") return;
    SharedStorage& shared = draft_.shared_storage;
    if (!SharedValueNames::is_prefix(shared.prefix)) {
      refuse("{}: \"{}\" is not 1 to 64 letters, digits or characters of -_.:/", name_of("shared.prefix", level("shared.prefix")),
             one_line(shared.prefix));
    }
    // A value with an option must not be in the URL, so that it is set in one place only.
    const ConfigLevel at = givens_.level(where);
    std::string_view query = std::string_view{url}.substr(std::min(url.find('?'), url.size()));
    while (!query.empty()) {
      query.remove_prefix(1);
      const std::string_view word = query.substr(0, query.find_first_of("=&"));
      query.remove_prefix(std::min(query.find('&'), query.size()));
      const auto known = std::ranges::find(in_url, word, &InUrl::word);
      if (known == in_url.end()) continue;
      refuse("{}: {} in the URL has an option of its own, {}", name_of(where, at), word,
             mention(option_named(known->option), at));
    }
    try {
      if (url != "memory:") (void)parse_redis_url(url);
    } catch (const std::invalid_argument& wrong) {
      refuse("{}: {}", name_of(where, at), one_line(wrong.what()));
    }
    shared.url = url;
    draft_.system.shared = std::move(shared);
  }

  void check_watermarks(std::string_view table, const Watermarks& marks) const {
    const Option& low = *find_option(table, "low-watermark");
    const Option& high = *find_option(table, "high-watermark");
    if (marks.high >= 1) refuse("{}: {} must be less than 1", name_of(high, givens_.level(high)), marks.high);
    if (marks.low <= marks.high) return;
    const ConfigLevel at = givens_.level(low);
    refuse("{}: {} is more than {}, which is {}", name_of(low, at), marks.low, mention(high, at), marks.high);
  }

  void choose_policy() {
    if (draft_.policy == "adaptive") draft_.system.policy = adaptive_policy;
    if (draft_.policy == "lru") draft_.system.policy = lru_policy;
    const auto more = std::ranges::find(policies_, draft_.policy, &ConfigPolicy::name);
    if (more != policies_.end()) draft_.system.policy = more->make;
  }

  /// The same checks as at the start of a CacheSystem, so that a file that passes can be used.
  void check_endpoint() const {
    try {
      check_admin(draft_.system.admin);
    } catch (const std::invalid_argument& wrong) {
      const Given* const given = givens_.find(option_named("admin.listen"), 0);
      refuse("{}: {}", given == nullptr ? "" : given->origin.where, wrong.what());
    }
  }

  void check_as_at_start() const {
    try {
      (void)manager_config(draft_.system);
    } catch (const std::invalid_argument& wrong) {
      throw ConfigError{place_of_arrays() + wrong.what()};
    }
  }

  /// "terrace.toml:12: ", the first place of a group or pool in a file.
  [[nodiscard]] std::string place_of_arrays() const {
    for (const Scope scope : {Scope::group, Scope::pool}) {
      for (const Option& option : options()) {
        const Given* const given = option.scope() == scope ? givens_.find_any(option) : nullptr;
        if (given != nullptr && given->origin.level == ConfigLevel::file) return given->origin.where + ": ";
      }
    }
    return "";
  }

  const Givens& givens_;
  std::span<const ConfigPolicy> policies_;
  Draft draft_;
};

}  // namespace

CacheSystemOptions assemble(const Givens& givens, std::span<const ConfigPolicy> policies) {
  return Assembler{givens, policies}.run();
}

}  // namespace terrace::config
