#pragma once

#include "runtime/residency/residency.hpp"
#include "runtime/tiering/storage_writer.hpp"
#include "runtime/types/config.hpp"
#include "runtime/types/request.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Write policy `selective`: a block that has been hit ManagerConfig::selective_hits times goes to storage, with its ancestors.
/// Those that wait for staging then go with the next batch.
///
/// Hits are counted in a table with a fixed number of places, as many as device and host had blocks at construction (a power of
/// two, 8 bytes each), of which a block's key names one. A block that comes to a place that another has takes it, and begins at
/// one: it may be stored later than it should, but not sooner. Threads: the manager's.
class HitCountWritePolicy {
 public:
  /// Throws std::invalid_argument where selective_hits is not 1 to 255.
  HitCountWritePolicy(const ManagerConfig& config, Residency& residency, StorageWriter& storage_writer, ManagerStats& stats);

  /// A request hit these blocks.
  void on_hits(Prefix prefix);

  [[nodiscard]] std::size_t bytes_held() const { return places_.capacity() * sizeof(Place); }

 private:
  struct Place {
    std::uint32_t name = 0;
    std::uint32_t hits = 0;
  };

  [[nodiscard]] std::uint32_t count(const BlockKey& key);

  bool on_;
  std::uint32_t hits_wanted_;
  Residency& residency_;
  StorageWriter& storage_writer_;
  ManagerStats& stats_;
  std::vector<Place> places_;  ///< none where the first hit is enough
};

}  // namespace terrace
