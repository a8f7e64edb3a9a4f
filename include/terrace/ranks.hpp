#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/export.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace terrace {

/// How ranks use a host slot.
enum class RankPayload : unsigned char {
  sharded,     ///< each rank has its own share; a block is on the host when every rank has copied its part
  replicated,  ///< all ranks have the same bytes, as with one latent head (MLA); one rank swaps out, all swap in
};

[[nodiscard]] TERRACE_API std::string_view to_string(RankPayload payload);

/// The most ranks of one cache.
inline constexpr std::size_t ranks_max = 64;

/// The health of one rank, for monitoring. health() looks at every transfer under way, so do not call it often.
struct RankHealth {
  enum class State : unsigned char {
    well,
    slow,  ///< it still owes a transfer that a rank finished RankedTransfersOptions::slow_after ago or earlier
    lost,  ///< lose() was called, because its process has ended
  };
  std::string_view name;
  State state = State::well;
  std::uint32_t transfers = 0;  ///< transfers of which it still owes `finished` or `confirmed`
  Duration oldest{};            ///< the time since the oldest of them was submitted
  Duration behind{};            ///< the longest time since one of them was finished by a rank
};

/// Work that is called once for each rank, on the compute timeline of that rank. Ranks may call it at the same time.
using RankWork = std::function<void(std::uint32_t rank, BlockAccess& access)>;

/// The devices of one cache, one for each rank, as the compute side uses them. Every rank launches the same steps in the same
/// order, and nothing else. So one fence names the same point on all ranks, and a transfer to all ranks needs only one fence.
///
/// Threads: those of Device's compute side.
class TERRACE_API RankDevices {
 public:
  /// There must be at least one device. The devices must outlive this object.
  explicit RankDevices(std::vector<Device*> devices);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(devices_.size()); }
  [[nodiscard]] Device& at(std::uint32_t rank) const { return *devices_.at(rank); }

  /// Launches the work on every rank. All ranks share `work`. Returns the point, which is the same on every rank.
  Fence launch(RankWork work);
  /// Returns the point that all ranks have reached.
  [[nodiscard]] Fence reached() const;

 private:
  std::vector<Device*> devices_;
};

}  // namespace terrace
