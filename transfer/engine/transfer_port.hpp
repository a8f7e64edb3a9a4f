#pragma once

#include "base/clock.hpp"
#include "transfer/device/transfer.hpp"

#include <cstddef>
#include <vector>

namespace terrace {

/// How the control plane reaches a transfer engine: transfers go down, completion records come up. Behind it stands an engine on
/// the caller's own thread (DirectTransfers), on a thread of its own (ThreadedTransfers), or later in another process.
/// Threads: one, the control plane's. No call blocks.
class TransferPort {
 public:
  virtual ~TransferPort() = default;
  /// Exactly one `finished` event follows, also where the transfer is refused (all blocks cancelled, error refused).
  virtual void submit(Transfer transfer) = 0;
  virtual void raise(TransferId id, Urgency urgency) = 0;
  virtual void cancel(TransferId id) = 0;
  /// From now on transfers of this urgency, in both directions together, move at most so many bytes a second; 0: as many as they
  /// can. Not for requests, which wait.
  virtual void limit(Urgency urgency, Bytes per_second) = 0;
  /// Appends the events that have arrived; returns how many.
  virtual std::size_t poll(std::vector<TransferEvent>& out) = 0;
  /// When poll() will have to be called though nothing wakes the caller; `never` where a thread sees to that itself.
  [[nodiscard]] virtual TimePoint next_deadline() const = 0;
  /// The device's points of these names; of several devices, those that hold for all.
  [[nodiscard]] virtual Fence reached() const = 0;
  [[nodiscard]] virtual Fence after_all_work() const = 0;
};

}  // namespace terrace
