#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// How far the flushes of a store are. A round makes the data files durable and writes the catalog's pages, side by side; then it
/// makes the catalog durable and checks that all files are still there; then who asked for it is told. Who asks meanwhile shares
/// the next round, however many they are (group commit). Does no I/O. Threads: one.
///
/// The catalog comes last because the promise does: records may reach the device before the data they speak of all the same,
/// whenever the system writes pages back, and such a record does not verify.
class GroupFlush {
 public:
  void ask(std::uint64_t token) { asked_.push_back(token); }
  /// Asked for, and not at its end.
  [[nodiscard]] std::size_t in_flight() const { return asked_.size() + (phase_ == Phase::idle ? 0 : served_.size()); }

  [[nodiscard]] bool wants_to_begin() const { return phase_ == Phase::idle && !asked_.empty(); }
  /// A round for all who have asked; so many syncs of data files go with it.
  void begin(std::uint32_t data_syncs);
  [[nodiscard]] bool data_are_synced() const { return phase_ == Phase::data && operations_ == 0; }
  /// So many operations make the catalog durable and check the files.
  void begin_catalog(std::uint32_t operations);
  [[nodiscard]] bool catalog_is_done() const { return phase_ == Phase::catalog && operations_ == 0; }
  /// One of the phase's operations.
  void operation_ended() { --operations_; }
  /// Whom the round was for; valid until begin().
  [[nodiscard]] std::span<const std::uint64_t> end();

 private:
  enum class Phase : unsigned char { idle, data, catalog };

  Phase phase_ = Phase::idle;
  std::uint32_t operations_ = 0;  ///< of this phase, under way
  std::vector<std::uint64_t> asked_;
  std::vector<std::uint64_t> served_;
};

}  // namespace terrace
