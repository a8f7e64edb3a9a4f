#pragma once

#include "terrace/types.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace terrace {

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
[[nodiscard]] MemoryLimits read_memory_limits(const std::filesystem::path& root = "/");

/// Returns how much memory the machine and the control groups leave, or nothing if neither is known.
[[nodiscard]] std::optional<Bytes> memory_left(const MemoryLimits& limits);

/// A request for memory that is going to be taken.
struct MemoryRequest {
  Bytes bytes{};
  Bytes unit{1};        ///< the memory is taken in multiples of this
  bool locked = false;  ///< it counts against the limit of locked memory
  Bytes spare{};        ///< how much must be left for everything else
};

struct MemoryRefusal {
  Bytes fits{};          ///< the largest size that preflight() would accept, in whole units
  std::string sentence;  ///< the requested size, the limit, and the size that fits
};

/// Checks, before memory is touched, whether a request fits the limits. The kernel kills a process that exceeds its control
/// group, and a machine that is nearly out of memory becomes slow for all processes. Returns nothing if the request fits. If
/// several limits are exceeded, the tightest is named.
[[nodiscard]] std::optional<MemoryRefusal> preflight(const MemoryRequest& request, const MemoryLimits& limits);

}  // namespace terrace
