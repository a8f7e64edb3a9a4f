#pragma once

#include "terrace/clock.hpp"
#include "terrace/options.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace terrace::config {

/// The values of all options before they are checked together. Most of them are fields of CacheSystemOptions already; the others
/// become fields in assemble().
struct Draft {
  struct Pool {
    PoolOptions sizes;
    std::optional<Bytes> device_capacity;
    std::optional<Bytes> host_capacity;
  };
  struct Rank {
    std::string device = "emulated";
    std::string calibration;
  };

  CacheSystemOptions system;
  std::string policy = "adaptive";
  std::optional<std::uint32_t> ranks_count;
  Duration unit_prefill{};
  std::string storage = "none";  ///< none, memory:, file:DIR
  std::optional<Bytes> storage_capacity;
  std::vector<std::string> stripe;  ///< directories after the first
  FileStorage file;
  ResilienceOptions guard;
  std::vector<Pool> pools;  ///< in place of CacheSystemOptions::pools
  std::vector<Rank> ranks;
  std::vector<GroupConfig> groups;
};

/// The defaults of all options: those of CacheSystemOptions, except for the sizes of a pool, which have no default there.
[[nodiscard]] Draft default_draft(std::size_t pools, std::size_t ranks, std::size_t groups);

}  // namespace terrace::config
