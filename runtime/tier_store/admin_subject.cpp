#include "runtime/tier_store/admin_subject.hpp"

#include <utility>
#include <variant>

namespace terrace {
namespace {

admin::Reply carry_out(TierBatches& batches, const admin::Command& command) {
  const auto* const clear = std::get_if<admin::Clear>(&command);
  if (clear == nullptr) return {404, admin::error_body(admin::store_only)};
  const ClearOptions& options = clear->options;
  if (options.keep_storage || options.keep_shared || options.wait) {
    return {400, admin::error_body("a store clears its storage, and nothing else: give no fields")};
  }
  if (const Result<void> cleared = batches.clear(); !cleared) return {409, admin::error_body(cleared.error().message())};
  return {200, "{\"cleared\":true}\n"};
}

}  // namespace

admin::Publisher::Subject admin_subject(TierBatches& batches, std::function<void(AdminSnapshot&)> complete) {
  return {.describe =
              [&batches, complete = std::move(complete)](AdminSnapshot& snapshot) {
                snapshot.tier_store = batches.statistics();
                snapshot.work.under_way = !batches.is_idle();
                complete(snapshot);
              },
          .carry_out = [&batches](const admin::Command& command) { return carry_out(batches, command); }};
}

}  // namespace terrace
