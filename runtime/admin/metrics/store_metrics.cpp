// The metric families of storage, of a shared store, and of a TierStore.

#include "runtime/admin/metrics/families.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

namespace terrace::admin {
namespace {

void add_shared_nodes(Families& all, std::span<const SharedNode> nodes) {
  Rows<SharedNode> rows;
  for (const SharedNode& node : nodes) {
    rows.emplace_back(label("node", node.address), &node);
    all.states("terrace_shared_node_breaker", "1 for the state of the circuit breaker of this server, 0 for the others",
               {BreakerState::closed, BreakerState::half_open, BreakerState::open}, node.breaker, rows.back().first);
  }
  all.gauges("terrace_shared_node_connections", "Connections to this server that can be used", rows, &SharedNode::connections);
  all.gauges("terrace_shared_node_in_flight_bytes", "Bytes that are being sent to this server or expected from it", rows,
             [](const SharedNode& node) { return count(node.in_flight); });
  all.counters("terrace_shared_node_reconnects_total", "Connections to this server that were made again", rows,
               &SharedNode::reconnects);
  all.counters("terrace_shared_node_redirections_total", "Answers of this server that named another one", rows,
               &SharedNode::redirections);
  all.counters("terrace_shared_node_failures_total", "Operations that failed at this server", rows, &SharedNode::failed);
}

}  // namespace

void add_storage(Families& all, const AdminSnapshot& snapshot) {
  Rows<StoreStat> stores;
  Rows<StoreHealth> healths;
  for (std::size_t pool = 0; pool < snapshot.pools.size(); ++pool) {
    if (const auto& health = snapshot.pools[pool].health) healths.emplace_back(of_pool(pool), &*health);
    const std::optional<StoreStat>& store = snapshot.pools[pool].store;
    if (!store) continue;
    stores.emplace_back(of_pool(pool), &*store);
    for (const auto& [state, blocks] : {std::pair{"stored", store->blocks}, std::pair{"writing", store->writing},
                                        std::pair{"quarantined", store->quarantined}, std::pair{"free", store->free}}) {
      all.gauge("terrace_storage_blocks", "Slots of storage by how they are used", blocks,
                {{"pool", std::to_string(pool)}, {"tier", "storage"}, {"state", state}});
    }
  }
  all.gauges("terrace_storage_blocks_wanted", "Blocks that storage should hold", stores, &StoreStat::wanted_blocks);
  all.gauges("terrace_storage_directories", "Directories over which storage is striped", stores, &StoreStat::directories);
  all.gauges("terrace_storage_directories_lost", "Directories that are out of use until the next start", stores,
             &StoreStat::directories_lost);
  all.counters("terrace_storage_corrupt_total", "Blocks that did not verify when they were read", stores, &StoreStat::corrupt);
  all.counters("terrace_storage_io_errors_total", "Reads and writes of storage that failed", stores, &StoreStat::io_errors);
  all.counters("terrace_storage_growth_stopped_total", "How often storage stopped growing before its size", stores,
               &StoreStat::growth_stopped);
  all.gauges("terrace_storage_up", "1 if storage is used in full", healths, &StoreHealth::used_in_full);
  all.counters("terrace_storage_breaker_opened_total", "How often storage was taken out of use after failures", healths,
               &StoreHealth::opened);
  all.counters("terrace_storage_retries_total", "Operations that were tried again after a failure", healths,
               &StoreHealth::retried);
  all.counters("terrace_storage_declined_total", "Operations that were not tried, because storage was out of use", healths,
               &StoreHealth::declined);
}

void add_shared_store(Families& all, const SharedStoreSnapshot& shared) {
  const SharedStoreStat& stat = shared.stat;
  all.gauge("terrace_shared_up", "1 if all servers of the shared store answer", shared.health.state == StoreState::well ? 1 : 0);
  all.counter("terrace_shared_probes_total", "Probes that have ended, which ask for the blocks of one prefix", stat.probes);
  all.counter("terrace_shared_probed_blocks_total", "Blocks that probes asked for", stat.keys_asked);
  all.counter("terrace_shared_probed_blocks_there_total", "Leading blocks of probes that were there", stat.keys_there);
  all.counters("terrace_shared_reads_total", "Blocks read from the shared store, by result", "result",
               {{"read", stat.reads}, {"missing", stat.reads_missing}, {"corrupt", stat.corrupt()}});
  all.counters("terrace_shared_writes_total", "Blocks written to the shared store, by result", "result",
               {{"written", stat.writes}, {"full", stat.full}});
  all.counters_by<SharedMismatch>("terrace_shared_corrupt_total",
                                  "Blocks that did not verify when they were read from the shared store, by reason", "reason",
                                  stat.mismatches);
  all.counters(
      "terrace_shared_failures_total",
      "Operations of the shared store that failed: at their deadline, by an error, or declined while a breaker is open or "
      "too much is under way",
      "reason", {{"timed_out", stat.timed_out}, {"error", stat.failed}, {"declined", stat.declined}});
  all.counters("terrace_shared_bytes_total", "Bytes of blocks that were read from the shared store, or written to it",
               "direction", {{"read", count(stat.read)}, {"write", count(stat.written)}});
  all.counter("terrace_shared_renewed_total", "Blocks whose expiry was renewed in the shared store", stat.renewed);
  all.counter("terrace_shared_removed_total", "Blocks that were asked to be removed from the shared store", stat.removed);
  add_shared_nodes(all, shared.health.nodes);
}

void add_shared_cache(Families& all, const SharedStoreSnapshot& shared) {
  const SharedTotals& totals = shared.totals;
  all.counter("terrace_shared_look_ups_total", "Requests that asked the shared store for blocks", totals.look_ups);
  all.counter("terrace_shared_look_ups_joined_total", "Of these, requests that waited for the answer to another",
              totals.look_ups_joined);
  all.counter("terrace_shared_look_ups_late_total", "Of these, requests that went on without an answer", totals.look_ups_late);
  all.counter("terrace_shared_look_ups_skipped_total",
              "Requests that did not ask, because the shared store had just said that it lacks the block",
              totals.look_ups_skipped);
  all.counter("terrace_shared_asked_blocks_total", "Blocks that requests asked the shared store for", totals.asked);
  all.counter("terrace_shared_found_blocks_total", "Of these, blocks that were there", totals.there);
  all.counters(
      "terrace_shared_not_read_total", "Blocks that were there and could not be read, by reason", "reason",
      {{"gone", totals.read_gone}, {"corrupt", totals.read_corrupt}, {"late", totals.read_late}, {"error", totals.read_failed}});
  all.counter("terrace_shared_wishes_total", "Prefixes that were to be written to the shared store", totals.wishes);
  all.counter("terrace_shared_wished_total", "Blocks of these that were not known to be there", totals.wished);
  all.gauge("terrace_shared_waiting_blocks", "Blocks of these that wait or are being written", shared.waiting_blocks);
  all.counter("terrace_shared_present_total", "Blocks of these that the shared store had already", totals.present);
  all.counters("terrace_shared_not_written_total", "Blocks of these that were not written, by reason", "reason",
               {{"skipped", totals.drop_bound},
                {"gone", totals.drop_gone},
                {"failed", totals.drop_failed},
                {"full", totals.drop_full},
                {"over_budget", totals.drop_budget},
                {"off", totals.drop_off}});
  all.gauge("terrace_shared_off", "1 if the shared store is not used since the cache was cleared", shared.off ? 1 : 0);
  all.gauge("terrace_shared_round_trip_seconds", "Recent time of a probe of the shared store; 0: none was measured yet",
            shared.round_trip_seconds);
}

void add_shared_tier_store(Families& all, const TierStatistics& store) {
  all.counters("terrace_store_shared_gets_total", "Blocks of gets that only the shared store could have, by result", "result",
               {{"hit", store.shared_hits}, {"miss", store.shared_misses}, {"declined", store.shared_gets_declined}});
  all.counters("terrace_store_shared_puts_total", "Blocks of puts at the shared store, by result", "result",
               {{"stored", store.shared_stored},
                {"present", store.shared_present},
                {"not_stored", store.shared_not_stored},
                {"cancelled", store.shared_puts_cancelled},
                {"declined", store.shared_puts_declined}});
}

void add_tier_store(Families& all, const TierStatistics& store) {
  all.counters("terrace_store_gets_total", "Blocks that the engine asked to read, by result", "result",
               {{"hit", store.hits},
                {"miss", store.misses},
                {"corrupt", store.corrupt},
                {"error", store.get_failures},
                {"cancelled", store.gets_cancelled},
                {"late", store.gets_late}});
  all.counters(
      "terrace_store_puts_total", "Blocks that the engine asked to store, by result", "result",
      {{"stored", store.stored}, {"error", store.put_failures}, {"cancelled", store.puts_cancelled}, {"late", store.puts_late}});
  all.counter("terrace_store_asked_total", "Keys in questions about what is there", store.asked);
  all.counter("terrace_store_found_total", "Of these, keys that were there", store.found);
  const Moved read{.blocks = store.hits, .bytes = store.read};
  const Moved written{.blocks = store.stored, .bytes = store.written};
  add_moved_totals(all, rows_of<Moved>("direction", {{"storage_read", &read}, {"storage_write", &written}}));
  all.counter("terrace_store_unaligned_total", "Blocks in rows that are not aligned, which were copied once more",
              store.unaligned);
  all.counter("terrace_store_without_parent_total", "Blocks that were stored without their parent, because it was not there",
              store.without_parent);
  all.counter("terrace_store_batches_refused_total", "Batches that were refused, because too much was under way", store.refused);
  all.gauge("terrace_store_batches", "Batches that have not ended", store.batches);
  all.gauges("terrace_store_batch_blocks", "Blocks of batches that have not ended, by whether the disk has begun them", "state",
             {{"waiting", store.waiting}, {"under_way", store.under_way}});
  all.counters("terrace_store_flushes_total", "Flushes that have ended, by result", "result",
               {{"flushed", store.flushes - std::min(store.flushes, store.flush_failures)}, {"error", store.flush_failures}});
  all.gauge("terrace_store_blocks_not_flushed", "Stored blocks that a power failure may cost", store.not_flushed);
  all.counter("terrace_store_events_dropped_total", "Events that were dropped, because the engine did not take them",
              store.events_dropped);
  all.gauge("terrace_store_regions", "Regions of memory that are registered", store.regions);
}

}  // namespace terrace::admin
