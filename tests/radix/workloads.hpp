#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace terrace::test {

/// Requests made up from a seed: each is the names of its blocks, from the first. `size` is that of the cache they are meant
/// for, in blocks: what a workload does to a cache depends on how much of it fits.
using Requests = std::vector<std::vector<std::uint64_t>>;

struct WorkloadShape {
  std::uint32_t size = 0;
  std::uint64_t seed = 0;
  std::uint64_t blocks = 0;  ///< ends with the request that reaches so many
};

/// Shared prompts of popularity 1/rank, each with a tail nobody asks for again.
[[nodiscard]] Requests zipf(const WorkloadShape& shape);
/// Round and round over half as many blocks again as fit: least recently used never hits.
[[nodiscard]] Requests loop(const WorkloadShape& shape);
/// Conversations that go on for some turns, each turn with all that was said before; several go on at a time, about so many as
/// fit. What was used last is used next.
[[nodiscard]] Requests conversations(const WorkloadShape& shape);
/// A hot set, nine tenths of what fits, in any order.
[[nodiscard]] Requests hot_set(const WorkloadShape& shape);
/// Nothing comes twice.
[[nodiscard]] Requests scan(const WorkloadShape& shape);
/// Uses of a window of blocks that moves on: what was used most is soon not used any more.
[[nodiscard]] Requests drift(const WorkloadShape& shape);
/// A hot set with a scan beside it, ten blocks of scan to one of the hot set.
[[nodiscard]] Requests hot_set_and_scan(const WorkloadShape& shape);
/// All of the others by turns, in an order made up from the seed, each for a while and with names of its own.
[[nodiscard]] Requests phases(const WorkloadShape& shape);

struct Workload {
  std::string name;
  Requests (*make)(const WorkloadShape&);
};
[[nodiscard]] const std::vector<Workload>& all_workloads();

}  // namespace terrace::test
