#pragma once

#include "base/fifo.hpp"
#include "runtime/departures.hpp"
#include "runtime/persists.hpp"
#include "runtime/residency.hpp"
#include "runtime/swap_outs.hpp"

#include <cstdint>
#include <optional>

namespace terrace {

/// Finds host slots for device copies: a free one, or the least recently used leaf's. A leaf that lives nowhere else goes to
/// storage first where the write policy says so; until then whoever wants the slot waits here, first come first served.
/// Threads: the manager's.
class HostRoom {
 public:
  HostRoom(const ManagerConfig& config, Residency& residency, Departures& departures, SwapOuts& swap_outs, Persists& persists)
      : write_back_{config.storage && config.write_policy == WritePolicy::write_back},
        residency_{residency},
        departures_{departures},
        swap_outs_{swap_outs},
        persists_{persists} {}

  enum class Answer : std::uint8_t { begun, waiting, impossible };
  /// Copies the block's device copy to the host as soon as there is a slot; for evict it is leaving from now on. `impossible`:
  /// everything in the host tier is pinned; nothing was done.
  [[nodiscard]] Answer swap_out(BlockRef block, SwapOutPurpose purpose);
  /// A slot that can be had without waiting, for a block of this tenant.
  [[nodiscard]] std::optional<SlotId> take_now(Residency::PathOrder order, std::uint64_t tenant);
  /// Gives up the least recently used leaf, or begins to, though nobody waits for its room. False where there is none.
  [[nodiscard]] bool evict_ahead() { return evict_one(WriteBack::yes, std::nullopt) != Evicted::none; }
  /// Gives up this copy, which is ready and which nobody pins, as if it were the oldest.
  void give_up(BlockRef block) { (void)evict(block, SaveFirst::yes); }
  /// Serves who waits, and gives up what exceeds the tier's size. True where anything changed.
  bool pump();

  [[nodiscard]] bool idle() const { return wants_.empty(); }

 private:
  struct Want {
    BlockRef block;
    SwapOutPurpose purpose = SwapOutPurpose::evict;
  };
  enum class Evicted : std::uint8_t { now, later, none };
  enum class WriteBack : bool { no, yes };
  /// Whether what lives nowhere else is written to storage before it goes, where that is the policy.
  enum class SaveFirst : bool { no, yes };

  /// Gives up the least recently used leaf, or begins to. With WriteBack::no only where that costs no write. `tenant`: who asks.
  [[nodiscard]] Evicted evict_one(WriteBack write_back, std::optional<std::uint64_t> tenant);
  Evicted evict(BlockRef victim, SaveFirst save);
  [[nodiscard]] bool costs_a_write(BlockRef victim) const;
  /// Something in the host tier will become free or evictable without anybody's doing.
  [[nodiscard]] bool in_transition() const;
  bool shrink();

  bool write_back_;
  Residency& residency_;
  Departures& departures_;
  SwapOuts& swap_outs_;
  Persists& persists_;
  Fifo<Want> wants_;
};

}  // namespace terrace
