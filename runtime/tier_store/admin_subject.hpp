#pragma once

#include "runtime/admin/publisher.hpp"
#include "runtime/tier_store/tier_batches.hpp"

#include <functional>

namespace terrace {

/// A TierStore as the admin endpoint sees it: its counts, and the one command that it has. `complete` adds to a snapshot what the
/// batches do not know: its pool with the size of a block, the store and its health, and how I/O is done.
///
/// Ownership: `batches` must outlive the subject. Threads: that of the store.
[[nodiscard]] admin::Publisher::Subject admin_subject(TierBatches& batches, std::function<void(AdminSnapshot&)> complete);

}  // namespace terrace
