#pragma once

#include "terrace/device.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace terrace {

/// The pieces of each transfer that are on a device now. They allow a stream of an engine to wait for a transfer
/// (TransferPort::await) without a call to the thread that runs it. A transfer is recorded from submit() until its `finished`
/// event has been collected.
///
/// Threads: any. Each call takes a lock that is held for a few steps, and never during I/O or a call of a device. Bounds: those
/// of the port. After a warm-up, no call allocates memory, except for a transfer with more pieces under way than any before.
class OpenPieces {
 public:
  /// Records a submitted transfer. Its id differs from the ids of all transfers that have not ended. The calls below ignore an id
  /// that is not recorded.
  void begin(TransferId id);
  /// Records that the piece is submitted to the device.
  void start(const Piece& piece);
  /// Records that the piece has ended.
  void finish(TransferId id, std::uint64_t token, ErrorCode error);
  /// Records that the transfer has ended. `error` is the error of its blocks that are not done.
  void end(TransferId id, ErrorCode error);
  /// Removes the transfers whose `finished` events the control plane has collected.
  void forget_ended(std::span<const TransferEvent> events);

  /// Replaces the content of `tokens` by the commands for which a stream must wait until the leading `layers` layers of all
  /// blocks have been copied. Fails as TransferPort::await() does.
  [[nodiscard]] Result<void> find(TransferId id, std::uint32_t layers, std::vector<std::uint64_t>& tokens) const;

 private:
  struct Open {
    std::uint64_t token;
    std::uint32_t first_layer;
  };
  struct Entry {
    std::vector<Open> pieces;
    /// The number of leading layers of which every piece was submitted to the device, and the number of all layers. Both are 0
    /// before the first piece.
    std::uint32_t started = 0;
    std::uint32_t layers = 0;
    ErrorCode error;
    bool ended = false;
  };
  using Entries = std::unordered_map<TransferId, Entry>;

  mutable std::mutex mutex_;
  Entries entries_;
  std::vector<Entries::node_type> spare_;  ///< nodes for reuse
};

}  // namespace terrace
