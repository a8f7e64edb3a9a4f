#pragma once

#include "runtime/admin/publisher.hpp"
#include "runtime/tier_store/tier_batches.hpp"

#include <functional>
#include <string>

namespace terrace {

/// The shared store behind a TierStore, as the endpoint needs it. Empty functions: there is none.
struct AdminShared {
  std::function<void(const std::string& weights_revision)> resume{};  ///< as TierStore::resume_shared()
  std::function<bool()> is_off{};                                     ///< as TierStore::shared_is_off()
};

/// A TierStore as the admin endpoint sees it: its counts, and the two commands that it has. `complete` adds to a snapshot what
/// the batches do not know: its pool with the size of a block, the store and its health, and how I/O is done.
///
/// Ownership: `batches` must outlive the subject. Threads: that of the store.
[[nodiscard]] admin::Publisher::Subject admin_subject(TierBatches& batches, std::function<void(AdminSnapshot&)> complete,
                                                      AdminShared shared = {});

}  // namespace terrace
