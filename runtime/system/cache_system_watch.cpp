#include "runtime/system/cache_system_watch.hpp"

#include <fmt/format.h>

#include <chrono>

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

void CacheSystemWatch::begin(const WatchedParts& parts) {
  parts_ = parts;
  if (parts_.ranks != nullptr) ranks_.assign(parts_.ranks->ranks(), RankHealth::State::well);
  look();
}

void CacheSystemWatch::on_polled(TimePoint now) {
  if (now < next_look_) return;
  next_look_ = now + between_looks;
  look();
}

void CacheSystemWatch::look() {
  if (parts_.guard != nullptr) look_at_guard();
  if (parts_.files != nullptr) look_at_files();
  if (parts_.cache != nullptr) look_at_host();
  if (parts_.ranks != nullptr) look_at_ranks();
}

void CacheSystemWatch::look_at_guard() {
  const CircuitBreaker& reads = parts_.guard->read_breaker();
  const CircuitBreaker& writes = parts_.guard->write_breaker();
  const bool in_use = reads.state() == CircuitBreaker::State::closed && writes.state() == CircuitBreaker::State::closed;
  const std::uint64_t opened = reads.opened() + writes.opened();
  // Storage may have gone out of use and come back since the last look.
  if (opened != opened_ && in_use_) {
    log_.write(LogLevel::warning, "storage", [&] {
      return in_use ? std::string{"storage was not used in full for a moment, after failures"}
                    : fmt::format("storage is not used in full: {}", parts_.guard->health().reason);
    });
  } else if (in_use && !in_use_) {
    log_.write(LogLevel::warning, "storage", [] { return std::string{"storage is used in full again"}; });
  }
  opened_ = opened;
  in_use_ = in_use;
}

void CacheSystemWatch::look_at_files() {
  const StoreStat now = parts_.files->quick_stat();
  if (now.directories_lost > told_.directories_lost) {
    log_.write(LogLevel::error, "directories", [&] {
      return fmt::format("{} of {} directories of storage are lost until the next start: {}", now.directories_lost,
                         now.directories, first_of(parts_.files->lost_directories()));
    });
  }
  if (!durability_told_ && !parts_.files->durability_lost().empty()) {
    durability_told_ = true;
    log_.write(LogLevel::error, "durability", [&] { return parts_.files->durability_lost(); });
  }
  if (now.growth_stopped > told_.growth_stopped) {
    log_.write(LogLevel::warning, "growth", [&] {
      const bool floor = now.floor_stopped > told_.floor_stopped;
      return fmt::format("storage stopped growing at {} blocks: {}", now.capacity_blocks,
                         floor ? "the rest of the disk is to stay free" : now.growth_error.message());
    });
  }
  if (now.corrupt > told_.corrupt) {
    log_.write(LogLevel::warning, "damage", [&] {
      return fmt::format("{} stored blocks did not verify and were given up; {} since the start", now.corrupt - told_.corrupt,
                         now.corrupt);
    });
  }
  told_ = now;
}

void CacheSystemWatch::look_at_host() {
  const std::uint64_t failures = parts_.cache->host_growth_failures();
  if (failures > host_failures_) {
    log_.write(LogLevel::warning, "host memory", [&] {
      const HostMemory memory = parts_.cache->host_memory();
      return fmt::format("the host tier stopped growing at {} of {} blocks: {}", memory.usable, memory.wanted, memory.failure);
    });
  }
  host_failures_ = failures;
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

void CacheSystemWatch::on_flushed(ErrorCode error) {
  const bool failed = error && !flush_error_;
  flush_error_ = error;
  if (!failed) return;
  log_.write(LogLevel::error, "flushes", [&] {
    return fmt::format("storage could not be flushed: {}; a power failure may cost what was stored since the last flush",
                       error.message());
  });
}

}  // namespace terrace
