#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/options.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
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
    LinkModel link;  ///< latency and jitter of swap_in are used for both directions
  };

  CacheSystemOptions system;
  std::string policy = "adaptive";
  std::optional<std::uint32_t> ranks_count;
  Duration unit_prefill{};
  std::optional<std::array<std::byte, 32>> fingerprint;
  std::string storage = "none";  ///< none, memory:, file:DIR
  std::optional<Bytes> storage_capacity;
  std::vector<std::string> stripe;  ///< directories after the first
  FileStorage file;
  bool guarded = true;  ///< true if `guard` is used
  ResilienceOptions guard;
  std::string shared = "none";  ///< none, or a URL
  SharedStorage shared_storage;
  std::vector<Pool> pools;  ///< in place of CacheSystemOptions::pools
  std::vector<Rank> ranks;
  std::vector<GroupConfig> groups;
};

/// The defaults of all options. They are the defaults of CacheSystemOptions, except for the sizes of a pool, which have no
/// default there.
[[nodiscard]] Draft default_draft(std::size_t pools, std::size_t ranks, std::size_t groups);

}  // namespace terrace::config
