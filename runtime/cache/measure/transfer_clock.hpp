#pragma once

#include "base/slab.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/statistics.hpp"
#include "transfer/device/transfer.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace terrace {

/// Measures the times of transfers, and of reads and writes of storage, and counts transfers that have not ended. Its memory is
/// proportional to the number of operations under way. Threads: the thread of the cache.
class TransferClock {
 public:
  void begin(const Transfer& transfer, TimePoint now);
  /// The transfer has become as urgent as this.
  void raise(TransferId id, Urgency urgency);
  /// Returns false if the transfer was begun, has not ended, and no request waits for it.
  [[nodiscard]] bool is_urgent(TransferId id) const;
  /// Returns the record of the transfer, and ends it; nothing if it was not begun, or has ended.
  struct Ended {
    TimePoint ordered{};
    std::uint32_t blocks = 0;
  };
  std::optional<Ended> end(TransferId id, TimePoint now);

  /// A read or a write of one block in storage.
  enum class Access : bool { read, write };
  /// Returns the number of the read or write until it ends.
  [[nodiscard]] std::uint32_t begin(Access access, TimePoint now) { return accesses_.add({access, now}); }
  /// Returns the time at which it was ordered.
  TimePoint end(std::uint32_t number, TimePoint now);

  [[nodiscard]] const TransferTimes& times() const { return times_; }
  /// One entry for each direction and urgency. Looks at all transfers under way.
  [[nodiscard]] std::vector<TransferQueue> queues(TimePoint now) const;

 private:
  struct UnderWay {
    Direction direction = Direction::swap_out;
    Urgency urgency = Urgency::request;
    std::uint32_t blocks = 0;
    TimePoint ordered{};
  };

  struct Ordered {
    Access access = Access::read;
    TimePoint at{};
  };

  TransferTimes times_;
  Slab<Ordered> accesses_;
  boost::unordered_flat_map<TransferId, UnderWay, std::hash<TransferId>> under_way_;
};

}  // namespace terrace
