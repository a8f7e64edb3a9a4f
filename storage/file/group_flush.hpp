#pragma once

#include "base/check.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// The progress of a store's flushes. A round first makes the data files durable and at the same time writes the catalog's pages.
/// Then it makes the catalog durable and checks that all files are still in place. Then all flush requests of this round end.
/// Requests that come meanwhile share the next round (group commit). It does no I/O. Threads: one.
///
/// The catalog comes last, because after a flush every durable record must match durable data. Outside of a flush, the operating
/// system may write a record before its data; such a record does not match the data, and the block fails verification.
class GroupFlush {
 public:
  void ask(std::uint64_t token) { asked_.push_back(token); }
  /// The number of flush requests that have not ended.
  [[nodiscard]] std::size_t in_flight() const { return asked_.size() + (phase_ == Phase::idle ? 0 : served_.size()); }

  [[nodiscard]] bool wants_to_begin() const { return phase_ == Phase::idle && !asked_.empty(); }
  /// Begins a round for all requested flushes. `data_syncs` is the number of its syncs of data files.
  void begin(std::uint32_t data_syncs) {
    TERRACE_CHECK(wants_to_begin());
    served_.clear();
    served_.swap(asked_);
    operations_ = data_syncs;
    phase_ = Phase::data;
  }
  [[nodiscard]] bool data_are_synced() const { return phase_ == Phase::data && operations_ == 0; }
  /// Begins the second phase. `operations` is the number of operations that sync the catalog and check the files.
  void begin_catalog(std::uint32_t operations) {
    TERRACE_CHECK(data_are_synced());
    operations_ = operations;
    phase_ = Phase::catalog;
  }
  [[nodiscard]] bool catalog_is_done() const { return phase_ == Phase::catalog && operations_ == 0; }
  /// Reports the end of one operation of the current phase.
  void operation_ended() { --operations_; }
  /// Ends the round. Returns the tokens of its flushes; the span is valid until begin().
  [[nodiscard]] std::span<const std::uint64_t> end() {
    TERRACE_CHECK(catalog_is_done());
    phase_ = Phase::idle;
    return served_;
  }

 private:
  enum class Phase : unsigned char { idle, data, catalog };

  Phase phase_ = Phase::idle;
  std::uint32_t operations_ = 0;  ///< operations of the current phase that are under way
  std::vector<std::uint64_t> asked_;
  std::vector<std::uint64_t> served_;
};

}  // namespace terrace
