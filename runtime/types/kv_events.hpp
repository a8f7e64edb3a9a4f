#pragma once

#include "base/block_key.hpp"
#include "base/tier.hpp"
#include "radix/tree/copy.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// What routers and other watchers of the cache are told, in the order in which it happened.
struct KvEvent {
  enum class Kind : std::uint8_t {
    stored,   ///< the block can be served from the tier now
    removed,  ///< it cannot any more
    cleared,  ///< nothing that was stored before can; no `removed` follows for it. Only `kind` is set.
  };

  Kind kind = Kind::stored;
  Tier tier = Tier::device;
  GroupId group;
  std::uint32_t depth = 0;  ///< in its prefix; 0 is the first block
  TenantId tenant;          ///< as in AcquireRequest
  BlockKey key;
  std::optional<BlockKey> parent;  ///< the key before it; nothing for a first block

  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

/// Collects events until they are taken. Off until somebody asks for them; from then on it keeps every one, so take them as
/// often as the engine steps. Threads: one.
class KvEvents {
 public:
  void record_from_now_on() { on_ = true; }
  [[nodiscard]] bool on() const { return on_; }
  void add(KvEvent event) { waiting_.push_back(event); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  /// All since the last call. Swaps, so that the caller's vector is re-used.
  void take(std::vector<KvEvent>& events) {
    events.clear();
    events.swap(waiting_);
  }

 private:
  bool on_ = false;
  std::vector<KvEvent> waiting_;
};

}  // namespace terrace
