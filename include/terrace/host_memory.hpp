#pragma once

#include "terrace/export.hpp"
#include "terrace/types.hpp"

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>

namespace terrace {

/// Whether to ask the kernel for huge pages. Do not ask for memory of which only a little may be used: the first access to a huge
/// page allocates all of it.
enum class HugePages : bool { no, yes };

/// How the pages of new host memory are touched first.
struct TouchOptions {
  /// The number of threads that touch pages in parallel. 0: one for each processor, up to 8. More threads do not help, because
  /// the kernel clears pages at the speed of memory.
  unsigned threads = 0;
  /// The NUMA node on which the pages should lie. Nothing: the node of the thread that touches them.
  std::optional<unsigned> numa_node;
  HugePages huge_pages = HugePages::yes;
  /// If another thread sets this, touching ends early: each thread stops after its present slice of 8 MiB. May be null.
  const std::atomic<bool>* cancel = nullptr;
  /// Whether to count the huge pages afterwards. This reads /proc/self/smaps, which takes long if much memory is mapped.
  bool count_huge = false;
};

/// How much memory the system allows this process. An empty member means that there is no limit or that it is unknown.
struct MemoryLimits {
  std::optional<Bytes> available;  ///< available on the machine, including page cache that the kernel can drop
  /// the limit of the control group that leaves the least, of the process's group and its ancestors
  std::optional<Bytes> cgroup_max;
  Bytes cgroup_current{};        ///< the usage of that group, without page cache that the kernel can drop
  std::optional<Bytes> memlock;  ///< how much memory the process may lock
  Bytes locked{};                ///< how much it has locked
};

/// Reads the limits of this process from proc and sys/fs/cgroup (version 1, 2, or both) under `root`. Tests use a root other than
/// "/". A missing file sets no limit. This reads files, so do not call it on the step path.
[[nodiscard]] TERRACE_API MemoryLimits read_memory_limits(const std::filesystem::path& root = "/");

}  // namespace terrace
