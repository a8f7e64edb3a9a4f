#pragma once

#include "terrace/clock.hpp"
#include "terrace/policies.hpp"
#include "terrace/types.hpp"

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace::tools {

/// A request of a trace: when it comes, and the keys of the full blocks of its prompt.
struct RoomRequest {
  Duration arrival{};  ///< from the start of the trace
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::vector<BlockKey> keys;
};

struct RoomModel {
  std::uint32_t device_blocks = 3000;
  std::uint32_t host_blocks = 20'000;
  std::uint32_t block_tokens = 512;
  Bytes block_bytes = MiB * 2;
  BytesPerSecond link_bandwidth = per_second(GiB * 46);  ///< in each direction
  Duration notice = std::chrono::microseconds{60};       ///< from the end of a copy until the cache knows of it
  double prefill_speed = 20'000;                         ///< tokens a second of each request
  double output_speed = 50;                              ///< the same for its output
  double device_reserve_max = 0;
  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive;
  PolicyFactory policy = adaptive_policy;
};

/// Who waited for what, in virtual time. Blocks are those of the prompts' keys.
struct RoomResult {
  std::uint64_t served = 0;
  std::uint64_t never_fit = 0;  ///< prompts and outputs larger than the device
  std::uint64_t blocks = 0;     ///< of those that were served
  std::uint64_t device_hits = 0;
  std::uint64_t host_hits = 0;
  std::uint64_t queued = 0;  ///< came while others held all slots, and waited until one of them ended
  /// By request that waited for it: slots alone, while blocks of others were copied down; blocks from the host, and slots too.
  std::vector<Duration> slot_waits;
  std::vector<Duration> load_waits;
  std::vector<Duration> first_tokens;  ///< of each served request, from its arrival until its prompt was computed
  Bytes swapped_out{};
  Bytes swapped_in{};
  Duration lasted{};  ///< from the first arrival to the end of the last output
};

/// Serves the requests in virtual time: the real cache and transfer engine, over a device whose link takes its time but moves no
/// bytes (TimedDevice). What the control plane computes takes no time. Each request is computed on a GPU of its own, as soon as
/// its blocks are there; then its output, after which its blocks are free. Requests are in order of arrival. One that does not
/// find slots, because requests hold them, waits with all after it.
///
/// Throws std::invalid_argument for sizes that cannot be.
[[nodiscard]] RoomResult serve_in_virtual_time(std::span<const RoomRequest> requests, const RoomModel& model);

}  // namespace terrace::tools
