#include "runtime/system/engine_memory.hpp"

#include "terrace/types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace terrace {
namespace {

/// Calls a function of a device that may throw std::invalid_argument, and logs a failure.
template <class F>
Result<void> told(Log& log, std::uint32_t rank, F call) {
  Result<void> done;
  std::string why;
  try {
    done = call();
    if (!done) why = done.error().message();
  } catch (const std::invalid_argument& error) {
    done = Errc::invalid_argument;
    why = error.what();
  }
  if (!done) log.write(LogLevel::error, "relocation", [&] { return fmt::format("rank {}: {}", rank, why); });
  return done;
}

}  // namespace

EngineMemory::EngineMemory(const CacheSystemOptions& options) : pools_of_groups_{pools_of_groups(options)} {
  for (const RankOptions& rank : options.ranks) {
    auto& places = places_.emplace_back();
    for (std::size_t pool = 0; pool < options.pools.size(); ++pool) {
      places.push_back(regions_of(pool, rank.regions, pools_of_groups_));
    }
  }
}

/// Throws std::invalid_argument with a sentence for the user.
std::vector<EngineMemory::Move> EngineMemory::moves(std::span<const RankRegions> ranks) const {
  std::vector<Move> moves;
  for (const RankRegions& each : ranks) {
    if (each.rank >= places_.size()) {
      throw std::invalid_argument{fmt::format("there is no rank {}: the number of ranks is {}", each.rank, places_.size())};
    }
    if (std::ranges::find(moves, each.rank, &Move::rank) != moves.end()) {
      throw std::invalid_argument{fmt::format("rank {} is named twice", each.rank)};
    }
    check_regions(each.rank, each.regions, pools_of_groups_);
    Move& move = moves.emplace_back();
    move.rank = each.rank;
    for (std::size_t pool = 0; pool < places_[each.rank].size(); ++pool) {
      std::vector<DeviceRegion> to = regions_of(pool, each.regions, pools_of_groups_);
      if (to.empty()) continue;
      const PoolId id{static_cast<std::uint16_t>(pool)};
      move.to.push_back({id, std::move(to)});
      move.back.push_back({id, regions(each.rank, pool)});
    }
  }
  return moves;
}

Result<void> EngineMemory::relocate(std::span<const RankRegions> ranks, const RankDevices& devices, Log& log) {
  std::vector<Move> all;
  try {
    all = moves(ranks);
  } catch (const std::invalid_argument& error) {
    log.write(LogLevel::error, "relocation", [&] { return std::string{error.what()}; });
    return Errc::invalid_argument;
  }
  for (const Move& move : all) {
    const Result<void> accepted = told(log, move.rank, [&] { return devices.at(move.rank).check_relocation(move.to); });
    if (!accepted) return accepted;
  }
  const auto place = [this](std::uint32_t rank, const std::vector<RelocatedPool>& pools) {
    for (const RelocatedPool& pool : pools) places_[rank][pool.pool.value()] = pool.regions;
  };
  for (std::size_t next = 0; next < all.size(); ++next) {
    const Move& move = all[next];
    const Result<void> moved = told(log, move.rank, [&] { return devices.at(move.rank).relocate(move.to); });
    if (moved) {
      place(move.rank, move.to);
      continue;
    }
    for (const Move& before : std::span{all}.first(next)) {
      if (told(log, before.rank, [&] { return devices.at(before.rank).relocate(before.back); })) place(before.rank, before.back);
    }
    return moved;
  }
  return {};
}

}  // namespace terrace
