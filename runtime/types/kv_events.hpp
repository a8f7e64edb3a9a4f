#pragma once

#include "base/block_key.hpp"
#include "base/tier.hpp"
#include "radix/tree/copy.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// A change of what is cached, for routers and other observers. Events are reported in the order in which they happened.
struct KvEvent {
  enum class Kind : std::uint8_t {
    stored,   ///< the block can be served from the tier now
    removed,  ///< the block can no longer be served from the tier
    cleared,  ///< no block that was stored before can be served; no `removed` event follows for them. Only `kind` is set.
  };

  Kind kind = Kind::stored;
  Tier tier = Tier::device;
  GroupId group;
  std::uint32_t depth = 0;  ///< index in its prefix; 0 is the first block
  TenantId tenant;          ///< as in AcquireRequest
  BlockKey key;
  std::optional<BlockKey> parent;  ///< the key of the block before it; none for a first block

  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

/// Collects events until they are taken. Callers call add() only if on() is true, which record_from_now_on() makes so. It keeps
/// every event, so take them as often as the engine steps. Threads: one.
class KvEvents {
 public:
  void record_from_now_on() { on_ = true; }
  [[nodiscard]] bool on() const { return on_; }
  void add(KvEvent event) { waiting_.push_back(event); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  /// Moves all events since the last call into `events`. The two vectors are swapped, so that their memory is used again.
  void take(std::vector<KvEvent>& events) {
    events.clear();
    events.swap(waiting_);
  }

 private:
  bool on_ = false;
  std::vector<KvEvent> waiting_;
};

}  // namespace terrace
