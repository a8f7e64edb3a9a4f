#pragma once

#include "base/bytes.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace terrace {

/// What the system lets this process have. Nothing stands where it does not say, or sets no bound.
struct MemoryLimits {
  std::optional<Bytes> available;   ///< on the machine, page cache that it would give back included
  std::optional<Bytes> cgroup_max;  ///< of the control group that leaves least: this process's, or one it is in
  Bytes cgroup_current{};           ///< used of that, without page cache that would be given back
  std::optional<Bytes> memlock;     ///< what the process may lock
  Bytes locked{};                   ///< and has locked
};

/// Of this process, from proc and sys/fs/cgroup (version 1, 2, or both) under `root`: another than "/" is for tests. A file that
/// is not there says nothing. Reads files: not for the step path.
[[nodiscard]] MemoryLimits read_memory_limits(const std::filesystem::path& root = "/");

/// What the machine and the control groups leave; nothing where neither says.
[[nodiscard]] std::optional<Bytes> memory_left(const MemoryLimits& limits);

/// Memory that somebody is about to take.
struct MemoryRequest {
  Bytes bytes{};
  Bytes unit{1};        ///< it comes in multiples of this
  bool locked = false;  ///< it will count against what the process may lock
  Bytes spare{};        ///< to be left to everything else
};

struct MemoryRefusal {
  Bytes fits{};          ///< the most that does, in whole units; asked for that, preflight() has no objection
  std::string sentence;  ///< what was asked for, what limits it, and what fits
};

/// Whether so much is to be had, before any of it is touched: a cgroup that is exceeded kills the process, and memory that is
/// nearly gone stalls everybody's. Nothing: it fits. Where several limits are exceeded, the tightest is named.
[[nodiscard]] std::optional<MemoryRefusal> preflight(const MemoryRequest& request, const MemoryLimits& limits);

}  // namespace terrace
