#include "runtime/system/cache_system_watch.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace terrace {
namespace {

constexpr Duration between_looks = std::chrono::milliseconds{250};

/// Returns for example "/mnt/a and 2 more".
std::string first_of(const std::vector<std::filesystem::path>& directories) {
  if (directories.empty()) return "?";
  const std::string first = directories.front().string();
  return directories.size() == 1 ? first : fmt::format("{} and {} more", first, directories.size() - 1);
}

}  // namespace

void CacheSystemWatch::begin(WatchedParts parts) {
  parts_ = std::move(parts);
  pools_.resize(parts_.pools.size());
  if (parts_.ranks != nullptr) ranks_.assign(parts_.ranks->ranks(), RankHealth::State::well);
  look();
}

void CacheSystemWatch::on_polled(TimePoint now) {
  looks_later_ = now < next_look_;
  if (looks_later_) return;
  next_look_ = now + between_looks;
  look(now);
}

void CacheSystemWatch::look(TimePoint now) {
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    if (parts_.pools[pool].guard != nullptr) look_at_guard(pool);
    if (parts_.pools[pool].files != nullptr) look_at_files(pool, now);
    if (parts_.cache != nullptr) look_at_host(pool);
  }
  if (parts_.cache != nullptr) look_at_link();
  if (parts_.ranks != nullptr) look_at_ranks();
}

void CacheSystemWatch::look_at_link() {
  const LinkHealth link = parts_.cache->link_health();
  // The link may have been out of use and in use again since the last call.
  if (link.stopped != link_stopped_ && link_in_use_) {
    log_.write(LogLevel::error, "link",
               [&] { return link.in_use ? std::string{"copies between device and host failed for a moment"} : link.reason; });
  } else if (link.in_use && !link_in_use_) {
    log_.write(LogLevel::warning, "link", [] { return std::string{"copies between device and host work again"}; });
  }
  link_stopped_ = link.stopped;
  link_in_use_ = link.in_use;
}

std::string CacheSystemWatch::of_pool(std::size_t pool, std::string sentence) const {
  return pools_.size() == 1 ? std::move(sentence) : fmt::format("pool {}: {}", pool, sentence);
}

void CacheSystemWatch::look_at_guard(std::size_t pool) {
  const ResilientStore& guard = *parts_.pools[pool].guard;
  Pool& told = pools_[pool];
  const CircuitBreaker& reads = guard.read_breaker();
  const CircuitBreaker& writes = guard.write_breaker();
  const bool in_use = reads.state() == CircuitBreaker::State::closed && writes.state() == CircuitBreaker::State::closed;
  const std::uint64_t opened = reads.opened() + writes.opened();
  // Storage may have been out of use and in use again since the last call.
  if (opened != told.opened && told.in_use) {
    log_.write(LogLevel::warning, "storage", [&] {
      return of_pool(pool, in_use ? std::string{"storage was not used in full for a moment, after failures"}
                                  : fmt::format("storage is not used in full: {}", guard.health().reason));
    });
  } else if (in_use && !told.in_use) {
    log_.write(LogLevel::warning, "storage", [&] { return of_pool(pool, "storage is used in full again"); });
  }
  told.opened = opened;
  told.in_use = in_use;
}

void CacheSystemWatch::look_at_files(std::size_t pool, TimePoint at) {
  const FileStore& files = *parts_.pools[pool].files;
  bool& durability_told = pools_[pool].durability_told;
  StoreStat& told = pools_[pool].told;
  const StoreStat now = files.quick_stat();
  if (now.directories_lost > told.directories_lost) {
    log_.write(LogLevel::error, "directories", [&] {
      return of_pool(pool, fmt::format("{} of {} directories of storage are lost until the next start: {}", now.directories_lost,
                                       now.directories, first_of(files.lost_directories())));
    });
  }
  if (!durability_told && !files.durability_lost().empty()) {
    durability_told = true;
    log_.write(LogLevel::error, "durability", [&] { return of_pool(pool, files.durability_lost()); });
  }
  if (now.growth_stopped > told.growth_stopped && now.growth_error) {
    log_.write(LogLevel::warning, "growth", [&] {
      const bool floor = now.floor_stopped > told.floor_stopped;
      return of_pool(pool, fmt::format("storage stopped growing at {} blocks: {}", now.capacity_blocks,
                                       floor ? "the rest of the disk is to stay free" : now.growth_error.message()));
    });
  }
  if (DamageNotice& damage = pools_[pool].damage; damage.is_due(now.corrupt, at)) {
    log_.write(LogLevel::warning, "damage", [&, text = damage.tell(now.corrupt, at)] { return of_pool(pool, text); });
  }
  told = now;
}

void CacheSystemWatch::look_at_host(std::size_t pool) {
  const PoolId id{static_cast<std::uint16_t>(pool)};
  const std::uint64_t failures = parts_.cache->host_growth_failures(id);
  if (failures > pools_[pool].host_failures) {
    log_.write(LogLevel::warning, "host memory", [&] {
      const HostMemory memory = parts_.cache->host_memory(id);
      return of_pool(pool, fmt::format("the host tier stopped growing at {} of {} blocks: {}", memory.usable, memory.wanted,
                                       memory.failure));
    });
  }
  pools_[pool].host_failures = failures;
}

void CacheSystemWatch::look_at_ranks() {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankHealth health = parts_.ranks->health(rank);
    if (health.state == ranks_[rank]) continue;
    ranks_[rank] = health.state;
    log_.write(health.state == RankHealth::State::lost ? LogLevel::error : LogLevel::warning, "ranks",
               [&] { return fmt::format("{} is {}", health.name, to_string(health.state)); });
  }
}

void CacheSystemWatch::on_flushed(ErrorCode error, PoolId pool) {
  ErrorCode& before = pools_[pool.value()].flush_error;
  const bool failed = error && !before;
  before = error;
  if (!failed) return;
  log_.write(LogLevel::error, "flushes", [&] {
    return of_pool(pool.value(),
                   fmt::format("storage could not be flushed: {}; a power failure may cost what was stored since the last flush",
                               error.message()));
  });
}

}  // namespace terrace
