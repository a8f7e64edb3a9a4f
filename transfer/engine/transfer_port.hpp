#pragma once

#include "base/failure.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/result.hpp"
#include "transfer/device/transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace {

inline constexpr auto& no_such_rank =
    failure<Errc::invalid_argument, "there is no such rank: ranks count from 0, in the order of CacheSystemOptions::ranks">;

/// Returns the event of a transfer that was refused.
[[nodiscard]] inline TransferEvent not_taken(Transfer transfer, ErrorCode why) {
  TransferEvent event = event_of(transfer, TransferEvent::Kind::finished);
  event.outcomes.assign(block_count(transfer.runs), BlockOutcome::cancelled);
  event.error = why;
  event.runs = std::move(transfer.runs);
  return event;
}

/// The interface through which the control plane uses transfer engines: it submits transfers and collects completion records. The
/// implementation is an engine on the caller's thread (TransferEngine), an engine on its own thread (ThreadedTransfers), or one
/// engine for each rank (RankedTransfers).
///
/// Threads: one, the control plane's. No call blocks.
class TransferPort {
 public:
  static constexpr std::uint32_t all_layers = 0xFFFF'FFFF;

  virtual ~TransferPort() = default;
  /// Submits a transfer. Exactly one `finished` event follows. If the transfer is refused, the event says that all blocks are
  /// cancelled, and its error says why.
  virtual void submit(Transfer transfer) = 0;
  virtual void raise(TransferId id, Urgency urgency) = 0;
  virtual void postpone(TransferId id, TimePoint deadline) = 0;
  virtual void cancel(TransferId id) = 0;
  /// Limits the transfers of this urgency, in both directions together, to `per_second` bytes per second; 0: no limit. `urgency`
  /// must not be `request`, because requests wait for their transfers.
  virtual void limit(Urgency urgency, BytesPerSecond per_second) = 0;
  /// Makes the engine process the calls above at once. Otherwise it processes them at most a millisecond later. So a caller that
  /// makes several calls wakes the thread only once.
  virtual void wake_transfers() {}
  /// Appends the events that have arrived, and returns their number.
  virtual std::size_t poll(std::vector<TransferEvent>& out) = 0;
  /// Returns the time at which poll() must be called even if nothing wakes the caller. Returns `never` if a thread of the engine
  /// handles deadlines.
  [[nodiscard]] virtual TimePoint next_deadline() const = 0;
  /// Returns when the device got the oldest copy that has not ended; `never` if it has none. The copy of a transfer that was
  /// reported at its deadline counts until it ends. Transfers that wait here, for example because of a rate limit, do not count.
  [[nodiscard]] virtual TimePoint oldest_copy() const { return never; }
  /// Makes a stream of this rank's engine wait, on the device, until the leading `layers` layers of all blocks of the transfer
  /// have been copied (all_layers, or more than there are: the whole blocks). Work that is put on the stream afterwards starts
  /// after them. So a kernel can be launched for a load that has not ended, or for a slot that is still being copied out. A
  /// transfer that is not by layer counts as one layer. A rank that takes no part in the transfer has nothing to wait for.
  ///
  /// The stream continues even if a copy fails later. So check the transfer's event before you use the result of the work.
  ///
  /// Fails: not_ready (some of the copies are not on the device yet: try again after the next poll(), which happens when the
  /// engine has been woken, or wait for the event on the host), unknown_request (no such transfer is open; its `finished` event,
  /// if it was collected, has the result), the error of the transfer if a part of it has failed or was dropped, and the errors of
  /// Device::await(): invalid_argument (the stream is being captured or is none of this device's, or there is no such rank),
  /// io_failed. A port without access to the devices can neither make a stream wait nor mark it.
  [[nodiscard]] virtual Result<void> await(TransferId, std::uint32_t /*layers*/, StreamRef, std::uint32_t /*rank*/) {
    return Errc::not_ready;
  }
  /// Marks all work that is on a stream of this rank's engine now (Device::signal). Fails as Device::signal(), and with
  /// invalid_argument if there is no such rank. Threads: the thread of Device::launch(), which may differ from the control
  /// plane's.
  [[nodiscard]] virtual Result<Fence> signal(StreamRef, std::uint32_t /*rank*/) { return Errc::invalid_argument; }
  /// The same as the functions of Device with these names. For several devices, the point holds for all of them.
  [[nodiscard]] virtual Fence reached() const = 0;
  [[nodiscard]] virtual Fence after_all_work() const = 0;
  [[nodiscard]] virtual bool given_out(Fence point) const { return point <= after_all_work(); }
};

}  // namespace terrace
