#pragma once

#include "runtime/admin/mailbox.hpp"
#include "runtime/admin/observer.hpp"
#include "runtime/store/tier_batches.hpp"

#include <functional>
#include <string>

namespace terrace {

/// The calls of the endpoint about the shared store behind a TierStore. Empty functions: there is no shared store.
struct AdminShared {
  std::function<void(const std::string& weights_revision)> resume{};  ///< the same as TierStore::resume_shared()
  std::function<bool()> is_off{};                                     ///< the same as TierStore::shared_is_off()
};

/// Makes the interface of a TierStore for the admin endpoint: its counts, and its two commands. `complete` adds to a snapshot
/// what the batches do not know: the pool with the size of a block, the store and its health, and how I/O is done.
///
/// The observer gets samples of the blocks that the engine needs. Ownership: the batches and the observer must outlive the
/// subject. Threads: the thread of the store.
[[nodiscard]] admin::Publisher::Subject admin_subject(TierBatches& batches, admin::Observer& observer,
                                                      std::function<void(AdminSnapshot&)> complete, AdminShared shared = {});

}  // namespace terrace
