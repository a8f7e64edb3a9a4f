#pragma once

#include "runtime/admin/history/history.hpp"
#include "runtime/admin/snapshot.hpp"
#include "runtime/admin/status.hpp"

namespace terrace::admin {

/// The part of a snapshot that the history follows.
[[nodiscard]] Moment moment_of(const AdminSnapshot& snapshot, Health health);

}  // namespace terrace::admin
