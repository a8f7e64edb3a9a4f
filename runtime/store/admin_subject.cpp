#include "runtime/store/admin_subject.hpp"

#include <span>
#include <string>
#include <utility>
#include <variant>

namespace terrace {
namespace {

/// Carries out commands. Each call makes one reply.
class Runner {
 public:
  Runner(TierBatches& batches, const AdminShared& shared) : batches_{batches}, shared_{shared} {}

  admin::Reply operator()(const admin::Clear& wanted) {
    const ClearOptions& options = wanted.options;
    if (options.keep_storage || options.keep_shared || options.wait || options.release_host) {
      return {400, admin::error_body("a store clears its storage, and nothing else: give no fields")};
    }
    if (const Result<void> cleared = batches_.clear(); !cleared) return {409, admin::error_body(cleared.error().message())};
    return done();
  }
  admin::Reply operator()(const admin::Update& wanted) {
    if (!shared_.resume) {
      return {400, admin::error_body("this store has no shared store, so it does not need the name of its weights: clear it")};
    }
    admin::Reply reply = (*this)(admin::Clear{{.wait = wanted.wait}});
    if (reply.status >= 300) return reply;
    shared_.resume(wanted.weights_revision);
    return done();
  }
  template <class Other>
  admin::Reply operator()(const Other& /*of_a_cache*/) {
    return {404, admin::error_body(admin::store_only)};
  }

 private:
  [[nodiscard]] admin::Reply done() const {
    const bool off = shared_.is_off && shared_.is_off();
    return {202, std::string{"{\"cleared\":true,\"erasing\":true,\"shared_off\":"} + (off ? "true" : "false") + "}\n"};
  }

  TierBatches& batches_;
  const AdminShared& shared_;
};

}  // namespace

admin::Publisher::Subject admin_subject(TierBatches& batches, admin::Observer& observer,
                                        std::function<void(AdminSnapshot&)> complete, AdminShared shared) {
  observer.sample({});  // a block has one key
  batches.watch([&observer](std::span<const BlockKey> keys) { observer.on_offload_asked({}, keys); });
  return {.describe =
              [&batches, &observer, complete = std::move(complete)](AdminSnapshot& snapshot) {
                snapshot.tier_store = batches.statistics();
                snapshot.waits = batches.waits().totals();
                snapshot.waits_now = batches.waits().waiting(snapshot.made);
                snapshot.slowest = batches.waits().slowest(snapshot.made);
                snapshot.misses = batches.misses();
                snapshot.measured = observer.measured();
                observer.hand_over();
                snapshot.work.under_way = !batches.is_idle();
                snapshot.erasing = batches.is_erasing() || batches.erase_error();
                complete(snapshot);
              },
          .carry_out =
              [&batches, shared = std::move(shared)](const admin::Command& command) {
                return std::visit(Runner{batches, shared}, command);
              }};
}

}  // namespace terrace
