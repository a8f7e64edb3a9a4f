#include "transfer/host/memory_limits.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string_view>

namespace terrace {
namespace {

namespace fs = std::filesystem;

/// Version 1 expresses "no limit" by a number that is larger than the memory of any machine.
constexpr std::uint64_t unlimited = std::uint64_t{1} << 60;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in{file};
  std::uint64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;  // also "max"
}

/// Returns the number after `name` in a file of lines "name number".
std::optional<std::uint64_t> field_in(const fs::path& file, std::string_view name) {
  std::ifstream in{file};
  for (std::string word; in >> word;) {
    std::uint64_t number = 0;
    if (word == name && in >> number) return number;
  }
  return std::nullopt;
}

std::optional<Bytes> kilobytes_in(const fs::path& file, std::string_view name) {
  const auto number = field_in(file, name);
  if (!number) return std::nullopt;
  return KiB * *number;
}

Bytes left_of(Bytes limit, Bytes taken) { return limit - std::min(limit, taken); }

/// The names that one version of control groups uses: the file of the limit, the file of the usage, and the field of memory.stat
/// that says how much of the usage is page cache that can be dropped.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* cache;
};

/// Looks at a control group and all its ancestors. Inside a container, the outermost group that is visible is at the root.
void look_at_groups(const fs::path& root, fs::path group, const GroupFiles& files, MemoryLimits& limits) {
  for (;; group = group.parent_path()) {
    const fs::path here = root / group.relative_path();
    const auto limit = number_in(here / files.limit);
    const auto used = number_in(here / files.usage);
    if (limit && used && *limit < unlimited) {
      const std::uint64_t cache = field_in(here / "memory.stat", files.cache).value_or(0);
      const Bytes taken{*used - std::min(*used, cache)};
      if (!limits.cgroup_max || left_of(Bytes{*limit}, taken) < left_of(*limits.cgroup_max, limits.cgroup_current)) {
        limits.cgroup_max = Bytes{*limit};
        limits.cgroup_current = taken;
      }
    }
    if (!group.has_relative_path()) return;
  }
}

/// Returns the soft limit from a line such as "Max locked memory   65536   65536   bytes".
std::optional<Bytes> memlock_in(const fs::path& file) {
  constexpr std::string_view name = "Max locked memory";
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const auto digits = line.find_first_not_of(' ', name.size());
    if (digits == std::string::npos || line[digits] < '0' || line[digits] > '9') return std::nullopt;  // "unlimited"
    return Bytes{std::stoull(line.substr(digits))};
  }
  return std::nullopt;
}

struct Bound {
  Bytes left;
  std::string text;
};

}  // namespace

MemoryLimits read_memory_limits(const fs::path& root) {
  MemoryLimits limits;
  const fs::path proc = root / "proc";
  limits.available = kilobytes_in(proc / "meminfo", "MemAvailable:");
  limits.memlock = memlock_in(proc / "self/limits");
  limits.locked = kilobytes_in(proc / "self/status", "VmLck:").value_or(Bytes{});

  constexpr GroupFiles version_1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
  constexpr GroupFiles version_2{"memory.max", "memory.current", "inactive_file"};
  const fs::path groups = root / "sys/fs/cgroup";
  std::ifstream in{proc / "self/cgroup"};
  // Lines of the form "4:memory:/path" (version 1) and "0::/path" (version 2).
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) look_at_groups(groups, group, version_2, limits);
    if (controllers == "memory") look_at_groups(groups / "memory", group, version_1, limits);
  }
  return limits;
}

std::optional<Bytes> memory_left(const MemoryLimits& limits) {
  std::optional<Bytes> left = limits.available;
  if (limits.cgroup_max) {
    const Bytes of_group = left_of(*limits.cgroup_max, limits.cgroup_current);
    left = std::min(left.value_or(of_group), of_group);
  }
  return left;
}

std::optional<std::string> preflight(const MemoryRequest& request, const MemoryLimits& limits) {
  TERRACE_CHECK(count(request.unit) > 0);
  std::optional<Bound> tightest;
  const auto bound = [&](Bytes left, Bytes spare, const std::string& text) {
    const Bytes usable = left_of(left, spare);
    if (!tightest || usable < tightest->left) tightest = Bound{usable, text};
  };
  if (limits.available) {
    bound(*limits.available, request.spare, fmt::format("the machine has {} available", to_string(*limits.available)));
  }
  if (limits.cgroup_max) {
    bound(left_of(*limits.cgroup_max, limits.cgroup_current), request.spare,
          fmt::format("the control group allows {}, of which {} are used", to_string(*limits.cgroup_max),
                      to_string(limits.cgroup_current)));
  }
  if (!tightest || request.bytes <= tightest->left) return std::nullopt;
  return fmt::format("{} do not fit: {}; the largest size that fits is {}", to_string(request.bytes), tightest->text,
                     to_string(request.unit * (tightest->left / request.unit)));
}

}  // namespace terrace
