#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace terrace::test {

/// Random requests from a seed. Each request is the list of its block names, from the first. `size` is the size of the cache they
/// are made for, in blocks, because the effect of a workload depends on how much of it fits.
using Requests = std::vector<std::vector<std::uint64_t>>;

struct WorkloadShape {
  std::uint32_t size = 0;
  std::uint64_t seed = 0;
  std::uint64_t blocks = 0;  ///< the workload ends with the request that reaches this number
};

/// Shared prompts whose popularity is 1/rank, each with a tail that is used only once.
[[nodiscard]] Requests zipf(const WorkloadShape& shape);
/// A loop over 1.5 times as many blocks as fit: LRU never hits.
[[nodiscard]] Requests loop(const WorkloadShape& shape);
/// Conversations of several turns. Each turn has all earlier text. As many conversations run in parallel as about fit, so that
/// the most recently used blocks are used next.
[[nodiscard]] Requests conversations(const WorkloadShape& shape);
/// Random uses of a hot set that fills nine tenths of the cache.
[[nodiscard]] Requests hot_set(const WorkloadShape& shape);
/// No block is used twice.
[[nodiscard]] Requests scan(const WorkloadShape& shape);
/// Uses of a moving window of blocks: the most used blocks are soon not used any more.
[[nodiscard]] Requests drift(const WorkloadShape& shape);
/// A hot set and a scan in parallel, with ten blocks of scan per block of the hot set.
[[nodiscard]] Requests hot_set_and_scan(const WorkloadShape& shape);
/// All of the other workloads in turns. The order comes from the seed; each runs for a while with its own names.
[[nodiscard]] Requests phases(const WorkloadShape& shape);

struct Workload {
  std::string name;
  Requests (*make)(const WorkloadShape&);
};
[[nodiscard]] const std::vector<Workload>& all_workloads();

}  // namespace terrace::test
