// In place of metrics.cpp in a build without prometheus-cpp.

#include "runtime/admin/metrics.hpp"

namespace terrace::admin {

std::optional<std::string> metrics_text(const AdminSnapshot&, const Health&, Duration, std::span<const SizeEffect>) {
  return std::nullopt;
}

}  // namespace terrace::admin
