#include "capi/cache.hpp"
#include "capi/keys.hpp"
#include "capi/status.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace terrace::capi {
namespace {

void put_host_rows(const terrace_open_options& given, CacheSystemOptions& options) {
  for (const terrace_host_rows& rows : std::span{given.host_rows, given.host_rows_count}) {
    if (rows.pool >= options.pools.size()) {
      throw std::invalid_argument{"host_rows: there is no pool " + std::to_string(rows.pool)};
    }
    PoolOptions& pool = options.pools[rows.pool];
    if (pool.host_rows) throw std::invalid_argument{"host_rows: pool " + std::to_string(rows.pool) + " is named twice"};
    pool.host_rows = HostRows{static_cast<std::byte*>(rows.address), rows.rows, pool.block_bytes, Bytes{rows.stride}};
  }
}

}  // namespace

std::vector<RankRegions> regions_of(std::span<const terrace_device_region> regions, std::size_t ranks, std::size_t groups) {
  std::vector<RankRegions> named;
  for (const terrace_device_region& region : regions) {
    if (region.rank >= ranks || region.group >= groups) {
      throw std::invalid_argument{"regions: there are " + std::to_string(ranks) + " ranks and " + std::to_string(groups) +
                                  " groups, and a region names rank " + std::to_string(region.rank) + " and group " +
                                  std::to_string(region.group)};
    }
    auto rank = std::ranges::find(named, region.rank, &RankRegions::rank);
    if (rank == named.end()) {
      named.push_back({.rank = region.rank});
      rank = named.end() - 1;
      rank->regions.resize(groups);
    }
    rank->regions[region.group].push_back({region.base, region.stride, region.bytes, region.layer});
  }
  return named;
}

terrace_cache* make_cache(const terrace_open_options& given, bool engine_owns_slots) {
  Config config = read_config(given);
  config.set("--engine-owns-slots", engine_owns_slots ? "on" : "off");
  CacheSystemOptions options = config.options();
  if (!config.has("idle-service")) options.idle_service = true;
  const std::size_t lists = options.groups.empty() ? options.pools.size() : options.groups.size();
  for (RankRegions& named : regions_of({given.regions, given.region_count}, options.ranks.size(), lists))
    options.ranks[named.rank].regions = std::move(named.regions);
  put_host_rows(given, options);
  auto sink = given.log == nullptr ? nullptr : std::make_unique<FunctionSink>(given.log, given.log_context);
  options.log.sink = sink.get();
  return new terrace_cache{options, std::move(sink)};
}

void check_point(const terrace_cache& cache, uint64_t point, const char* name) {
  if (point <= *std::ranges::min_element(cache.points)) return;
  throw std::invalid_argument{std::string{name} + " is " + std::to_string(point) +
                              ", which terrace_cache_signal() has not returned for each rank"};
}

StreamRef stream_of(const terrace_cache& cache, void* stream, uint32_t rank) {
  if (stream == nullptr || rank >= cache.has_streams.size() || cache.has_streams[rank]) return StreamRef{stream};
  throw std::invalid_argument{"stream must be null, because the device of rank " + std::to_string(rank) + " is ordinary memory"};
}

}  // namespace terrace::capi

using namespace terrace::capi;

terrace_status terrace_cache_open(const terrace_open_options* options, terrace_cache** out) {
  return guarded(__func__, [&] {
    need(out, "out");
    *out = nullptr;
    *out = make_cache(read_struct("options", options, open_options_size), false);
  });
}

int32_t terrace_cache_destroy(terrace_cache* cache, int64_t timeout) {
  if (cache == nullptr || !cache->is_here()) return 1;
  {
    const terrace::Turn turn = cache->take_turn();
    for (auto& [id, live] : cache->live) {
      if (live.chain) live.chain->in_use = false;
    }
    cache->live.clear();
  }
  cache->offload.reset();
  const bool closed = cache->system.close(time_from_now(timeout)).closed;
  delete cache;
  return closed ? 1 : 0;
}

uint64_t terrace_cache_block_bytes(const terrace_cache* cache, uint16_t pool) {
  return cache == nullptr || pool >= cache->block_bytes.size() ? 0 : cache->block_bytes[pool];
}

terrace_status terrace_cache_relocate(terrace_cache* cache, const terrace_device_region* regions, size_t count) {
  return on(cache, __func__, [&] {
    if (count > 0) need(regions, "regions");
    return cache->system.relocate(regions_of({regions, count}, cache->points.size(), cache->region_lists));
  });
}

int terrace_cache_fd(const terrace_cache* cache) { return cache == nullptr || !cache->is_here() ? -1 : cache->cache().wake_fd(); }

int64_t terrace_cache_next_poll(const terrace_cache* cache) {
  if (cache == nullptr || !cache->is_here()) return TERRACE_NEVER;
  const terrace::Turn turn = cache->take_turn();
  return cache->drained.empty() ? until(cache->cache().next_deadline()) : 0;
}

terrace_status terrace_cache_wait(const terrace_cache* cache, int64_t timeout) {
  return guarded(__func__, [&] {
    check_handle(cache);  // without a turn, which would last as long as the wait
    return wait_for(terrace_cache_fd(cache), terrace_cache_next_poll(cache), timeout);
  });
}

terrace_status terrace_cache_pause_idle_service(terrace_cache* cache, int64_t longest) {
  return on(cache, __func__, [&] {
    constexpr int64_t hour = 3'600'000'000'000;
    if (longest < 0 || longest > hour) {
      throw std::invalid_argument{"longest is " + std::to_string(longest) + ", must be from 0 to an hour of nanoseconds"};
    }
    cache->system.pause_idle_service(std::chrono::nanoseconds{longest});
  });
}

terrace_status terrace_cache_drain(terrace_cache* cache, int64_t timeout) {
  return on(cache, __func__, [&]() -> terrace::Result<void> {
    const terrace::TimePoint end = time_from_now(timeout);
    if (!cache->offload) {
      if (cache->cache().drain_until(end).under_way) return terrace::Errc::deadline_exceeded;
      return {};
    }
    cache->cache().resume_transfers();
    collect(*cache, cache->drained);
    while (cache->offload->blocks_in_flight() > 0) {
      const int64_t left = until(end);
      if (left == 0) return terrace::Errc::deadline_exceeded;
      const int64_t next = until(cache->offload->next_deadline());
      if (const auto waited = wait_for(cache->offload->wake_fd(), next, left); !waited) return waited;
      collect(*cache, cache->drained);
      cache->cache().resume_transfers();  // an operator may have paused them meanwhile
    }
    return {};
  });
}

terrace_status terrace_cache_signal(terrace_cache* cache, void* stream, uint32_t rank, uint64_t* point) {
  return on(cache, __func__, [&] {
    need(point, "point");
    const terrace::Fence marked = value_of(cache->cache().signal(stream_of(*cache, stream, rank), rank));
    *point = cache->points[rank] = marked.value();
  });
}
