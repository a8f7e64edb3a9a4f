#pragma once

#include "capi/open.hpp"
#include "capi/status.hpp"
#include "terrace.h"
#include "terrace/groups.hpp"
#include "terrace/keys.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/options.hpp"
#include "terrace/system.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

/// The keys of a sequence. A live request shares them, so that it outlives terrace_chain_destroy().
struct terrace_chain {
  struct Keys {
    terrace::KeyChain keys;
    bool in_use = false;  ///< by a live request

    [[nodiscard]] std::uint64_t tokens() const {
      return std::uint64_t{keys.keys().size()} * keys.block_tokens() + keys.tokens_waiting();
    }
    [[nodiscard]] terrace::TenantId tenant() const { return terrace::TenantId{keys.root().prefix64()}; }
  };
  std::shared_ptr<Keys> shared;
};

/// A cache of either kind, and the arrays that its calls have returned.
struct terrace_cache {
  /// A request of the engine.
  struct Live {
    terrace::Lease lease;
    std::shared_ptr<terrace_chain::Keys> chain;
    std::size_t committed = 0;  ///< keys that a step need not commit again
    std::uint64_t serial = 0;   ///< unlike the id, never that of an earlier request
  };

  terrace_cache(const terrace::CacheSystemOptions& options, std::unique_ptr<terrace::capi::FunctionSink> log)
      : sink{std::move(log)}, system{options} {
    if (options.engine_owns_slots) offload.emplace(system.cache());
    if (!options.groups.empty()) {
      unit_tokens = terrace::hash_unit(options.groups, options.hash_unit_tokens);
      units_per_block.clear();
      for (const terrace::GroupConfig& group : options.groups) {
        units_per_block.push_back(group.kind == terrace::GroupKind::cross ? 0 : group.block_tokens / unit_tokens);
      }
    }
    if (options.request_units_max > terrace::HashUnits{}) units_max = options.request_units_max.value();
    region_lists = options.groups.empty() ? options.pools.size() : options.groups.size();
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
  [[nodiscard]] terrace::Cache& cache() const { return system.cache(); }

  std::unique_ptr<terrace::capi::FunctionSink> sink;
  /// Mutable because queries of const calls need scratch memory, as does `offload`.
  mutable terrace::CacheSystem system;
  /// None if the cache owns the slots of its devices, and at the end.
  mutable std::optional<terrace::OffloadCache> offload;
  boost::unordered_flat_map<std::uint64_t, Live> live;  ///< by id
  std::uint64_t acquired = 0;                           ///< requests so far

  /// By group: hash units of a block; 0 for a group whose blocks are not of the sequence (cross attention).
  std::vector<std::uint32_t> units_per_block = {1};
  std::uint32_t units_max = std::numeric_limits<std::uint32_t>::max();  ///< the most units of a request
  std::uint32_t unit_tokens = 0;               ///< of a hash unit; 0: there are no groups, and tokens are not known
  std::size_t region_lists = 1;                ///< lists of regions of a rank: one for each group, or each pool
  std::vector<uint64_t> points;                ///< by rank: the last point of terrace_cache_signal()
  std::vector<bool> has_streams;               ///< by rank: C can name streams of the device
  std::vector<uint64_t> block_bytes;           ///< by pool
  std::vector<std::span<std::byte>> memory;    ///< scratch
  std::vector<terrace_offload_event> drained;  ///< events that a drain has collected, for the next poll
  std::vector<terrace_offload_event> job_events;
  std::vector<terrace_request_event> request_events;
  std::vector<terrace_duplicate> duplicates;
  std::vector<terrace_place> places;
  std::vector<std::uint8_t> sources;
  std::vector<uint32_t> slots_in_use;
  std::vector<terrace::KvEvent> changes;
  std::vector<terrace_cache_event> cache_events;
  std::vector<int64_t> expiries;  ///< expiries of these events
  std::vector<terrace_write_back_result> write_backs;
  std::string tree_text;
};

namespace terrace::capi {

/// Makes the system that the options describe. Throws.
[[nodiscard]] terrace_cache* make_cache(const terrace_open_options& given, bool engine_owns_slots);

/// Sources have the same numbers as the states of a key.
[[nodiscard]] inline uint32_t source_to_c(Source source) { return static_cast<uint32_t>(source) + 1; }

/// Throws if the device has not been marked up to this point.
void check_point(const terrace_cache& cache, uint64_t point, const char* name);
/// Returns the stream. Throws if it cannot belong to the rank's device.
[[nodiscard]] StreamRef stream_of(const terrace_cache& cache, void* stream, uint32_t rank);
/// Returns the cache of jobs. Throws if the cache owns the slots of its devices.
[[nodiscard]] OffloadCache& jobs_of(const terrace_cache& cache);
/// Appends the events of one poll of jobs.
void collect(terrace_cache& cache, std::vector<terrace_offload_event>& to);
/// Returns the regions of C, by rank and group. Throws if one of them names a rank or a group that does not exist.
[[nodiscard]] std::vector<RankRegions> regions_of(std::span<const terrace_device_region> regions, std::size_t ranks,
                                                  std::size_t groups);

}  // namespace terrace::capi
