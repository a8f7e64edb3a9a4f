#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace terrace {

/// An integer with a meaning of its own. Ids of two kinds cannot be mixed, and ids have no arithmetic.
template <class Tag, class Rep = std::uint32_t>
class StrongId {
 public:
  using rep = Rep;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_{value} {}

  [[nodiscard]] constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Rep value_{};
};

/// The number of a slot: a place for one block in the pool of one tier. The context says which pool.
using SlotId = StrongId<struct SlotIdTag>;
/// The number of a KV cache group: layers that share a block table and have the same kind of attention.
using GroupId = StrongId<struct GroupIdTag, std::uint16_t>;
/// The number of a TieredPool: the pools of one block size in all tiers.
using PoolId = StrongId<struct PoolIdTag, std::uint16_t>;
/// The owner of blocks, for quotas, statistics and write-back jobs. It is the first eight bytes of the root key
/// (BlockKey::prefix64).
using TenantId = StrongId<struct TenantIdTag, std::uint64_t>;
/// A caller's request. No two requests that have not ended have the same id.
using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;
/// One transfer. Its creator chooses the id. No two transfers that have not ended have the same id.
using TransferId = StrongId<struct TransferIdTag, std::uint64_t>;
/// A point on a device's compute timeline. Work that waits for a fence starts after everything that was recorded before that
/// point. The value 0 means that there is nothing to wait for.
using Fence = StrongId<struct FenceTag, std::uint64_t>;
/// A counter that is increased by a reset or a weight update. The results of work from an older epoch are dropped.
using Epoch = StrongId<struct EpochTag>;

}  // namespace terrace

template <class Tag, class Rep>
struct std::hash<terrace::StrongId<Tag, Rep>> {
  std::size_t operator()(terrace::StrongId<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value()); }
};
