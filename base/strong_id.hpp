#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace terrace {

/// An integer with a meaning of its own: ids of two kinds do not mix and do no arithmetic by accident.
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

/// A place of one block's size in one tier's pool (device, host arena). Which pool is said by the context.
using SlotId = StrongId<struct SlotIdTag>;
/// Layers that share a block table and an attention kind.
using GroupId = StrongId<struct GroupIdTag, std::uint16_t>;
/// The number of a TieredPool: the pools of one block size in all tiers.
using PoolId = StrongId<struct PoolIdTag, std::uint16_t>;
/// Whose blocks these are, for quotas, statistics and jobs: the first eight bytes of the root key (BlockKey::prefix64).
using TenantId = StrongId<struct TenantIdTag, std::uint64_t>;
/// A caller's request, unique among those alive.
using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;
/// One transfer. Its maker numbers it; no two transfers that have not ended have the same id.
using TransferId = StrongId<struct TransferIdTag, std::uint64_t>;
/// A point on a device's compute timeline; work that waits for it starts after everything recorded up to it. 0: nothing to
/// wait for.
using Fence = StrongId<struct FenceTag, std::uint64_t>;
/// Raised by a reset or a weight update; what belongs to an older epoch publishes nothing.
using Epoch = StrongId<struct EpochTag>;

}  // namespace terrace

template <class Tag, class Rep>
struct std::hash<terrace::StrongId<Tag, Rep>> {
  std::size_t operator()(terrace::StrongId<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value()); }
};
