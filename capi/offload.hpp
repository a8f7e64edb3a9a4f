#pragma once

#include "capi/open.hpp"
#include "capi/status.hpp"
#include "terrace.h"
#include "terrace/offload_cache.hpp"
#include "terrace/options.hpp"
#include "terrace/system.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

/// A cache, and the arrays that its calls have returned.
struct terrace_offload {
  terrace_offload(const terrace::CacheSystemOptions& options, std::unique_ptr<terrace::capi::FunctionSink> log)
      : sink{std::move(log)}, system{options} {
    offload.emplace(system.cache());
    for (const terrace::PoolOptions& pool : options.pools) block_bytes.push_back(terrace::count(pool.block_bytes));
    points.resize(options.ranks.size());
    for (const terrace::RankOptions& rank : options.ranks) {
      has_streams.push_back(std::holds_alternative<terrace::CudaGpu>(rank.device));
    }
  }

  static constexpr const char* name = "cache";
  /// The idle service does not run during a turn.
  [[nodiscard]] terrace::Turn take_turn() const { return system.take_turn(); }
  [[nodiscard]] bool is_here() const { return system.is_of_this_process(); }
  [[nodiscard]] terrace::Cache& cache() const { return offload->cache(); }

  std::unique_ptr<terrace::capi::FunctionSink> sink;
  terrace::CacheSystem system;
  /// Mutable because look-ups of const calls need scratch memory. It is empty only at the end.
  mutable std::optional<terrace::OffloadCache> offload;

  std::vector<uint64_t> points;                ///< by rank: the last point of terrace_offload_signal()
  std::vector<bool> has_streams;               ///< by rank: C can name streams of the device
  std::vector<uint64_t> block_bytes;           ///< by pool
  std::vector<std::span<std::byte>> memory;    ///< scratch
  std::vector<terrace_offload_event> drained;  ///< events that a drain has collected, for the next poll
  std::vector<terrace_offload_event> job_events;
  std::vector<terrace::KvEvent> changes;
  std::vector<terrace_cache_event> cache_events;
  std::vector<int64_t> expiries;  ///< expiries of these events
  std::vector<terrace_write_back_result> write_backs;
};
