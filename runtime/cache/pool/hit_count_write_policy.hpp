#pragma once

#include "runtime/cache/index/residency.hpp"
#include "runtime/cache/pool/hit_counts.hpp"
#include "runtime/cache/pool/storage_writer.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"

#include <cstddef>
#include <cstdint>

namespace terrace {

/// Write policy `selective`: a block that has been hit ManagerConfig::selective_hits times is stored, with its ancestors. With
/// any other write policy the class does nothing.
///
/// Hits are counted in a table (HitCounts) with one entry for each block of device and host at construction. So a block may be
/// stored after more hits than selective_hits, but never after fewer.
///
/// Threads: the manager's.
class HitCountWritePolicy {
 public:
  HitCountWritePolicy(const ManagerConfig& config, const PoolSizes& sizes, Residency& residency, StorageWriter& storage_writer,
                      ManagerStats& stats);

  /// Call this after the configuration was set or has changed. Makes the table if it is needed now. Hits counted so far are kept.
  void on_settings();
  /// A request has hit the blocks of this prefix.
  void on_hits(Prefix prefix);

  [[nodiscard]] std::size_t bytes_held() const { return hits_.bytes_held(); }

 private:
  [[nodiscard]] std::uint32_t count(const BlockKey& key);

  const ManagerConfig& config_;
  std::size_t places_wanted_;
  Residency& residency_;
  StorageWriter& storage_writer_;
  ManagerStats& stats_;
  HitCounts hits_;  ///< empty if the first hit is enough, or with another write policy
};

}  // namespace terrace
