#pragma once

#include "runtime/admin/history/history.hpp"
#include "runtime/admin/snapshot.hpp"
#include "runtime/admin/status.hpp"

namespace terrace::admin {

/// What the history follows of a snapshot.
[[nodiscard]] Moment moment_of(const AdminSnapshot& snapshot, Health health);

}  // namespace terrace::admin
