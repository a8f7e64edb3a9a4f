#include "runtime/admin/moment.hpp"

#include "runtime/admin/command.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::admin {
namespace {

namespace json = boost::json;

/// The failures so far, as events of the history.
void add_troubles(const AdminSnapshot& snapshot, std::vector<Moment::Total>& troubles) {
  for (std::size_t number = 0; number < snapshot.pools.size(); ++number) {
    const AdminSnapshot::Pool& pool = snapshot.pools[number];
    const auto add = [&](std::string_view name, std::uint64_t amount) {
      troubles.push_back({of_pool(snapshot, number, name), amount});
    };
    add("the host tier could not grow", pool.host_growth_failures);
    if (!pool.store) continue;
    add("storage could not grow", pool.store->growth_stopped);
    add("reads or writes of storage failed", pool.store->io_errors);
    add("stored blocks did not verify", pool.store->corrupt);
  }
  if (snapshot.shared) {
    troubles.push_back({"the shared store did not answer in time", snapshot.shared->stat.timed_out});
    troubles.push_back({"requests to the shared store failed", snapshot.shared->stat.failed});
  }
  if (snapshot.tier_store) {
    troubles.push_back({"gets were not answered in time", snapshot.tier_store->gets_late});
    troubles.push_back({"puts were not answered in time", snapshot.tier_store->puts_late});
    return;
  }
  const ManagerStats& stats = snapshot.stats;
  troubles.push_back({"copies of blocks were dropped by a clear", stats.cleared});
  troubles.push_back({"requests were refused: no room", stats.refused_no_room});
  troubles.push_back({"requests were refused: they never fit", stats.refused_never_fits});
  troubles.push_back({"requests were refused: the cache was paused", stats.refused_paused});
  troubles.push_back({"blocks did not arrive", stats.load_failures});
  troubles.push_back({"waits ended with an error", snapshot.waits.failed});
  troubles.push_back({"blocks were not stored: the daily budget was spent", stats.store_over_budget});
  troubles.push_back({"blocks were not stored: too many were waiting", stats.store_skipped});
}

}  // namespace

Moment moment_of(const AdminSnapshot& snapshot, Health health) {
  Moment moment{.reasons = std::move(health.reasons)};
  add_troubles(snapshot, moment.troubles);
  for (std::size_t number = 0; number < snapshot.pools.size(); ++number) {
    const AdminSnapshot::Pool& pool = snapshot.pools[number];
    const auto add = [&](std::string_view name, std::uint64_t blocks) {
      moment.values.push_back({of_pool(snapshot, number, name), std::to_string(blocks)});
    };
    if (!snapshot.tier_store) {
      add("device blocks", pool.device.blocks - std::min(pool.device.retiring, pool.device.blocks));
      add("host blocks", pool.host_memory.wanted);
    }
    if (pool.store) add("storage blocks", pool.store->wanted_blocks);
  }
  const WaitTotals& waits = snapshot.waits;
  moment.ready_at_once = waits.at_once;
  moment.waits = {{"room", waits.room.requests, waits.room.seconds}, {"looking", waits.looking.requests, waits.looking.seconds}};
  for (const Source source : all_sources) {
    if (source == Source::device) continue;
    moment.waits.push_back({terrace::to_string(source), waits.loads[source].requests, waits.loads[source].seconds});
  }
  for (const SlowRequest& request : snapshot.slowest)
    moment.slowest.push_back({request.id.value(), request.seconds, waited_for(request), request.ended});
  moment.waiting = snapshot.waits_now.requests;
  moment.waiting_seconds = snapshot.waits_now.oldest_seconds;
  if (snapshot.tier_store) {
    const TierStatistics& store = *snapshot.tier_store;
    moment.queued_blocks = store.waiting;
    moment.moved_bytes = {{"storage_reads", count(store.read)}, {"storage_writes", count(store.written)}};
    return moment;
  }
  for (const TransferQueue& queue : snapshot.queues) {
    moment.queued_blocks += queue.blocks;
    moment.queued_seconds = std::max(moment.queued_seconds, queue.oldest_seconds);
  }
  const MovedTotals& moved = snapshot.moved;
  moment.moved_bytes = {
      {"swap_out", count(moved.swap_out.bytes)},           {"swap_in", count(moved.swap_in.bytes)},
      {"storage_reads", count(moved.storage_reads.bytes)}, {"storage_writes", count(moved.storage_writes.bytes)},
      {"shared_reads", count(moved.shared_reads.bytes)},   {"shared_writes", count(moved.shared_writes.bytes)}};
  for (const auto& [name, value] : to_json(snapshot.settings)) {
    moment.values.push_back({name, value.is_string() ? std::string{value.as_string()} : json::serialize(value)});
  }
  for (const WriteBackProgress& job : snapshot.jobs) {
    moment.values.push_back({fmt::format("write-back job {} ({} to {})", job.id.value(), terrace::to_string(job.scope),
                                         terrace::to_string(job.target)),
                             std::string{terrace::to_string(job.state)}});
  }
  return moment;
}

}  // namespace terrace::admin
