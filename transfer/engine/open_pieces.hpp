#pragma once

#include "terrace/device.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace terrace {

/// The pieces of each transfer that a device has now. With this, a stream of an engine can wait for a transfer
/// (TransferPort::await) without asking the thread that runs it. A transfer is here from submit() until its `finished` event has
/// been collected.
///
/// Threads: any. Each call takes a lock that is held for a few steps, and never during I/O or a call of a device. Bounds: those
/// of the port. Once warm, no call allocates memory, except for a transfer with more pieces under way than any before.
class OpenPieces {
 public:
  /// The transfer has been submitted. Its id differs from the ids of all transfers that have not ended. The calls below ignore an
  /// id that is not here.
  void begin(TransferId id);
  /// The piece goes to the device.
  void start(const Piece& piece);
  /// The piece has ended.
  void finish(TransferId id, std::uint64_t token, ErrorCode error);
  /// The transfer has ended. Its blocks that are not done have this error.
  void end(TransferId id, ErrorCode error);
  /// The `finished` event has been collected.
  void forget(TransferId id);

  /// Replaces the content of `tokens` by the commands for which a stream must wait, so that the leading `layers` layers of all
  /// blocks have been copied. Fails as TransferPort::await() does.
  [[nodiscard]] Result<void> find(TransferId id, std::uint32_t layers, std::vector<std::uint64_t>& tokens) const;

 private:
  struct Open {
    std::uint64_t token;
    std::uint32_t first_layer;
  };
  struct Entry {
    std::vector<Open> pieces;
    /// The number of leading layers of which every piece has gone to the device, and of all layers; 0 and 0: nothing has gone.
    std::uint32_t started = 0;
    std::uint32_t layers = 0;
    ErrorCode error;
    bool ended = false;
  };
  using Entries = std::unordered_map<TransferId, Entry>;

  mutable std::mutex mutex_;
  Entries entries_;
  std::vector<Entries::node_type> spare_;  ///< nodes to use again
};

}  // namespace terrace
