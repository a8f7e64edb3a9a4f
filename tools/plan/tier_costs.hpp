#pragma once

#include "terrace/policies.hpp"
#include "terrace/types.hpp"
#include "tools/plan/hit_counts.hpp"

#include <cstdint>
#include <optional>

namespace terrace::tools {

/// The sizes of the tiers, in blocks, and how their copies relate. A tier of size 0 does not exist.
struct TierSizes {
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  std::uint64_t storage = 0;
  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive;
  WritePolicy write_policy = WritePolicy::write_through;  ///< or write_back
};

/// The machine: its speeds, what a block is, and the endurance of its disk.
struct PlanMachine {
  std::uint32_t block_tokens = 0;
  Bytes block_bytes{};
  BytesPerSecond link = per_second(GiB * 50);  ///< host to device
  BytesPerSecond disk = per_second(GiB * 3);   ///< reads of storage
  double prefill_speed = 20'000;               ///< tokens computed in a second
  double drive_writes_per_day = 1;             ///< how often the disk can be written as a whole each day, for five years
};

/// The costs of a workload with tiers of certain sizes and one eviction policy.
///
/// Model: requests come one at a time, and no request waits for copies of others. All tiers evict in one common order. So two
/// tiers together hit like one tier of as many blocks as there are different ones in both:
///
/// - Inclusive device and host, and write-through: the lower tier has what is above, so that is the larger size.
/// - Exclusive and lazy-exclusive device and host: the sum of the sizes.
/// - Non-inclusive device and host, and write-back: a copy below stays when its block returns. So the sum is less those blocks
///   above that came from below. Their share above is taken to be that among all blocks that get there.
///
/// For LRU, the hits of exclusive, lazy-exclusive and inclusive tiers are exact, and those of non-inclusive ones an estimate. For
/// OPT they are the bound for all of them. For the default policy they are an estimate, because each of its tiers decides for
/// itself.
///
/// Under exclusive copies, each eviction from the device is a copy down; under lazy-exclusive ones that is the most. Otherwise a
/// block goes down once after it was computed.
struct TierCosts {
  std::uint64_t device_hits = 0;  ///< blocks
  std::uint64_t host_hits = 0;
  std::uint64_t storage_hits = 0;
  std::uint64_t misses = 0;

  // Blocks moved. Reads and writes of storage pass through the host.
  std::uint64_t swap_out = 0;
  std::uint64_t swap_in = 0;
  std::uint64_t storage_reads = 0;
  std::uint64_t storage_writes = 0;

  double prefill_seconds = 0;      ///< for all tokens that are not hit
  double saved_seconds = 0;        ///< of prefill, for the tokens that are hit
  double first_token_seconds = 0;  ///< mean, without waiting for other requests: loads and prefill, one after the other

  // Wear. Nothing if there is no storage, or if the workload takes no time.
  std::optional<double> drive_writes_per_day;  ///< what is written in a day, in sizes of storage
  std::optional<double> drive_years;           ///< until the endurance is used up; nothing if nothing is written, too

  [[nodiscard]] std::uint64_t hits() const { return device_hits + host_hits + storage_hits; }
};

[[nodiscard]] TierCosts tier_costs(const RequestLog& log, HitCounts& counts, PlanPolicy policy, const TierSizes& sizes,
                                   const PlanMachine& machine);

}  // namespace terrace::tools
