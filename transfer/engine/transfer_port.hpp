#pragma once

#include "terrace/clock.hpp"
#include "transfer/device/transfer.hpp"

#include <cstddef>
#include <vector>

namespace terrace {

/// The interface through which the control plane uses transfer engines: transfers go in, completion records come out. Behind it
/// is an engine on the caller's own thread (DirectTransfers), an engine on a thread of its own (ThreadedTransfers), or one engine
/// for each rank (RankedTransfers).
///
/// Threads: one, the control plane's. No call blocks.
class TransferPort {
 public:
  virtual ~TransferPort() = default;
  /// Submits a transfer. Exactly one `finished` event follows. If the transfer is refused, the event says that all blocks are
  /// cancelled, and its error says why.
  virtual void submit(Transfer transfer) = 0;
  virtual void raise(TransferId id, Urgency urgency) = 0;
  virtual void postpone(TransferId id, TimePoint deadline) = 0;
  virtual void cancel(TransferId id) = 0;
  /// Limits the transfers of this urgency, in both directions together, to `per_second` bytes per second; 0: no limit. `urgency`
  /// must not be `request`, because requests wait for their transfers.
  virtual void limit(Urgency urgency, Bytes per_second) = 0;
  /// Appends the events that have arrived, and returns their number.
  virtual std::size_t poll(std::vector<TransferEvent>& out) = 0;
  /// Returns the time at which poll() must be called although nothing wakes the caller. Returns `never` if a thread of the engine
  /// sees to that.
  [[nodiscard]] virtual TimePoint next_deadline() const = 0;
  /// The same as the functions of Device with these names. For several devices, the point holds for all of them.
  [[nodiscard]] virtual Fence reached() const = 0;
  [[nodiscard]] virtual Fence after_all_work() const = 0;
};

}  // namespace terrace
