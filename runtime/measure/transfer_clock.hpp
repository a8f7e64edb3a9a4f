#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace terrace {

/// Measures how long transfers take, and reads and writes of storage, and counts transfers that have not ended. Its memory is
/// proportional to what is under way. Threads: that of the cache.
class TransferClock {
 public:
  void begin(const Transfer& transfer, TimePoint now);
  /// The transfer has become as urgent as this.
  void raise(TransferId id, Urgency urgency);
  /// Returns what is known of the transfer; nothing if it was not begun, or has ended.
  struct Ended {
    TimePoint ordered{};
    std::uint32_t blocks = 0;
  };
  std::optional<Ended> end(TransferId id, TimePoint now);

  /// A read or a write of one block in the store of the pool, by its token.
  enum class Access : bool { read, write };
  void begin(Access access, PoolId pool, std::uint64_t token, TimePoint now);
  /// Returns when it was ordered; nothing if it was not begun, or has ended.
  std::optional<TimePoint> end(Access access, PoolId pool, std::uint64_t token, TimePoint now);

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

  /// By pool and token.
  using Orders = boost::unordered_flat_map<std::pair<std::uint16_t, std::uint64_t>, TimePoint>;

  [[nodiscard]] Orders& orders(Access access) { return access == Access::read ? reads_ : writes_; }

  TransferTimes times_;
  Orders reads_;
  Orders writes_;
  boost::unordered_flat_map<TransferId, UnderWay, std::hash<TransferId>> under_way_;
};

}  // namespace terrace
