#pragma once

#include "runtime/admin/size_effects.hpp"
#include "runtime/admin/snapshot.hpp"
#include "runtime/admin/status.hpp"
#include "terrace/clock.hpp"

#include <optional>
#include <span>
#include <string>

namespace terrace::admin {

/// The snapshot in Prometheus' text format (docs/metrics.md lists all metrics). Nothing: this build has no library for it.
/// Never throws for what a snapshot may contain.
[[nodiscard]] std::optional<std::string> metrics_text(const AdminSnapshot& snapshot, const Health& health, Duration age,
                                                      std::span<const SizeEffect> effects = {});

}  // namespace terrace::admin
