#include "capi/keys.hpp"
#include "capi/open.hpp"
#include "capi/status.hpp"
#include "terrace.h"
#include "terrace/options.hpp"
#include "terrace/tier_store.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

using namespace terrace::capi;

namespace terrace::capi {
namespace {

/// Returns true for the configuration options that apply to a store. `name` is "pool.block-bytes", or "pool[0].block-bytes" for a
/// value.
bool is_of_a_store(std::string_view name) {
  constexpr std::array<std::string_view, 4> tables{"storage.", "log.", "admin.", "shared."};
  constexpr std::array<std::string_view, 4> others{"pool.block-bytes", "pool[0].block-bytes", "fingerprint", "idle-service"};
  if (name == "admin.block-tokens") return false;
  return std::ranges::any_of(tables, [name](std::string_view table) { return name.starts_with(table); }) ||
         std::ranges::find(others, name) != others.end();
}

TierStoreOptions store_options(const Config& config) {
  for (const ConfigOption& option : config.table()) {
    const std::string name = option.table.empty() ? option.key : option.table + "." + option.key;
    if (!is_of_a_store(name) && config.has(name)) {
      throw ConfigError{config.spelling(name) + " says nothing about a store; leave it out"};
    }
  }
  const CacheSystemOptions all = config.options();
  const auto* const files = std::get_if<FileStorage>(&all.storage);
  if (files == nullptr) throw ConfigError{"a store needs [storage] where = \"file:DIR\""};
  if (!config.has("pool.block-bytes")) throw ConfigError{"a store needs [[pool]] block-bytes = SIZE"};
  TierStoreOptions options;
  options.directories = files->directories;
  options.name = files->name;
  options.label = files->label;
  options.capacity = files->capacity;
  options.block_bytes = all.pools.front().block_bytes;
  options.fingerprint = all.fingerprint;
  options.floor = files->floor;
  options.stripe_bytes = files->stripe_bytes;
  options.accept_lost_directories = files->accept_lost_directories;
  options.io = files->io;
  options.io_threads = files->io_threads;
  options.bandwidth = files->bandwidth;
  options.resilience = all.storage_guard;
  options.flush_interval = all.flush_interval;
  options.log = all.log;
  options.admin = all.admin;
  if (config.has("idle-service")) options.idle_service = all.idle_service;
  if (all.shared) {
    options.shared = open_shared_store(*all.shared);
    options.shared_weights_revision = all.shared->weights_revision;
    options.shared_writes = all.shared->write_policy != WritePolicy::none;
  }
  std::erase_if(options.admin.config, [](const ConfigValue& value) { return !is_of_a_store(value.name); });
  return options;
}

}  // namespace
}  // namespace terrace::capi

struct terrace_store {
  terrace_store(terrace::TierStoreOptions options, std::unique_ptr<FunctionSink> log)
      : sink{std::move(log)}, store{[&] {
          options.log.sink = sink.get();
          return options;
        }()} {}

  static constexpr const char* name = "store";
  /// Nothing: the calls of a TierStore take their turns.
  [[nodiscard]] std::monostate take_turn() const { return {}; }
  [[nodiscard]] bool is_here() const { return store.is_of_this_process(); }

  std::unique_ptr<FunctionSink> sink;
  terrace::TierStore store;
  std::string io;
  std::string reason;

  // The results of the last calls. If there was no memory to return them, the next call returns them.
  std::size_t results_returned = 0;
  std::size_t events_returned = 0;
  std::vector<terrace::BatchResult> results;
  std::vector<terrace_batch_result> results_c;
  std::vector<terrace_status> statuses;
  std::vector<terrace::TierEvent> events;
  std::vector<terrace_store_event> events_c;
};

terrace_status terrace_store_open(const terrace_open_options* options, terrace_store** out) {
  return guarded(__func__, [&] {
    need(out, "out");
    *out = nullptr;
    const terrace_open_options given = read_struct("options", options, open_options_size);
    if (given.region_count > 0) throw std::invalid_argument{"a store has no device, so regions must be null"};
    if (given.host_rows != nullptr || given.host_rows_count > 0) {
      throw std::invalid_argument{"a store has no host tier, so host_rows must be null; terrace_store_register() names memory"};
    }
    auto sink = given.log == nullptr ? nullptr : std::make_unique<FunctionSink>(given.log, given.log_context);
    *out = new terrace_store{store_options(read_config(given)), std::move(sink)};
  });
}

void terrace_store_destroy(terrace_store* store) {
  if (store != nullptr && store->is_here()) delete store;
}

terrace_status terrace_store_close(terrace_store* store, int64_t timeout, terrace_close_report* report) {
  return on(store, __func__, [&] {
    if (report != nullptr) check_struct("report", report);  // the check comes before anything is done
    const terrace::TierCloseReport closed = store->store.close(time_from_now(timeout));
    if (report == nullptr) return;
    const terrace_close_report value{sizeof value, closed.closed ? 1 : 0, closed.batches_left, status_of(closed.error), 0};
    write_struct("report", value, report);
  });
}

uint64_t terrace_store_block_bytes(const terrace_store* store) {
  return store == nullptr ? 0 : count(store->store.block_bytes());
}

terrace_status terrace_store_register(terrace_store* store, void* address, uint32_t rows, uint64_t stride, uint32_t* region) {
  return on(store, __func__, [&] {
    need(region, "region");
    const terrace::HostRows memory{static_cast<std::byte*>(address), rows, store->store.block_bytes(), terrace::Bytes{stride}};
    *region = value_of(store->store.register_region(memory)).value();
  });
}

terrace_status terrace_store_unregister(terrace_store* store, uint32_t region) {
  return on(store, __func__, [&] { return store->store.unregister_region(terrace::HostRegionId{region}); });
}

terrace_status terrace_store_contains(const terrace_store* store, const terrace_key* keys, size_t count, uint64_t* bitmap) {
  return on(store, __func__, [&] {
    if (count == 0) return terrace::Result<void>{};
    need(keys, "keys");
    need(bitmap, "bitmap");
    return store->store.look_up(keys_of(keys, count), words_of(bitmap, count));
  });
}

terrace_status terrace_store_leading(const terrace_store* store, const terrace_key* keys, size_t count, size_t* leading) {
  return on(store, __func__, [&] {
    need(leading, "leading");
    *leading = store->store.leading(keys_of(keys, count));
  });
}

terrace_status terrace_store_touch(terrace_store* store, const terrace_key* keys, size_t count) {
  return on(store, __func__, [&] { store->store.touch(keys_of(keys, count)); });
}

namespace {

terrace_batch read_batch(const terrace_batch* batch) {
  const terrace_batch given = read_struct("batch", batch);
  if (given.count == 0) return given;
  need(given.keys, "batch->keys");
  need(given.rows, "batch->rows");
  return given;
}

/// Converts what a put and a get have in common. The spans refer to the caller's memory.
template <class To>
To batch_of(const terrace_batch& given) {
  To to;
  to.id = terrace::BatchId{given.id};
  to.keys = keys_of(given.keys, given.count);
  to.region = terrace::HostRegionId{given.region};
  to.rows = {given.rows, given.count};
  to.deadline = deadline_of(given.deadline);
  return to;
}

}  // namespace

terrace_status terrace_store_put(terrace_store* store, const terrace_batch* batch) {
  return on(store, __func__, [&] {
    const terrace_batch given = read_batch(batch);
    auto put = batch_of<terrace::TierPut>(given);
    if (given.parents != nullptr) put.parents = keys_of(given.parents, given.count);
    return store->store.submit_put(put);
  });
}

terrace_status terrace_store_get(terrace_store* store, const terrace_batch* batch) {
  return on(store, __func__, [&] {
    const terrace_batch given = read_batch(batch);
    if (given.parents != nullptr) throw std::invalid_argument{"a get has no parents; set batch->parents to null"};
    return store->store.submit_get(batch_of<terrace::TierGet>(given));
  });
}

terrace_status terrace_store_probe(terrace_store* store, const terrace_probe* probe) {
  return on(store, __func__, [&] {
    const terrace_probe given = read_struct("probe", probe);
    const auto keys = keys_of(given.keys, given.count, "probe->keys");
    return store->store.submit_probe({terrace::BatchId{given.id}, keys, deadline_of(given.deadline)});
  });
}

terrace_status terrace_store_flush(terrace_store* store, uint64_t id) {
  return on(store, __func__, [&] { return store->store.submit_flush(terrace::BatchId{id}); });
}

terrace_status terrace_store_cancel(terrace_store* store, uint64_t id) {
  return on(store, __func__, [&] { return store->store.cancel(terrace::BatchId{id}); });
}

terrace_status terrace_store_poll(terrace_store* store, const terrace_batch_result** results, size_t* count) {
  return on(store, __func__, [&] {
    give("results", results, count, [&]() -> auto& {
      auto& taken = store->results;
      taken.erase(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(store->results_returned));
      store->results_returned = 0;
      store->results_c.clear();
      store->statuses.clear();
      store->store.poll(taken);
      for (const terrace::BatchResult& result : taken) {
        for (const terrace::ErrorCode& error : result.errors) store->statuses.push_back(status_of(error));
      }
      const terrace_status* at = store->statuses.data();
      for (const terrace::BatchResult& result : taken) {
        terrace_batch_result& to = store->results_c.emplace_back();
        to.id = result.id.value();
        to.bytes = terrace::count(result.bytes);
        to.duration = static_cast<uint64_t>(std::chrono::nanoseconds{result.duration}.count());
        to.statuses = at;
        to.count = static_cast<uint32_t>(result.errors.size());
        to.succeeded = result.succeeded;
        to.kind = static_cast<uint32_t>(result.kind);
        to.memory_in_use = result.memory_in_use ? 1 : 0;
        at += result.errors.size();
      }
      store->results_returned = taken.size();
      return store->results_c;
    });
  });
}

terrace_status terrace_store_events(terrace_store* store, const terrace_store_event** events, size_t* count) {
  return on(store, __func__, [&] {
    give("events", events, count, [&]() -> auto& {
      auto& taken = store->events;
      taken.erase(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(store->events_returned));
      store->events_returned = 0;
      store->events_c.clear();
      store->store.poll_events(taken);
      for (const terrace::TierEvent& event : taken) {
        store->events_c.push_back({key_to_c(event.key), event.batch.value(), static_cast<uint32_t>(event.kind), 0});
      }
      store->events_returned = taken.size();
      return store->events_c;
    });
  });
}

int terrace_store_fd(const terrace_store* store) { return store == nullptr || !store->is_here() ? -1 : store->store.wake_fd(); }

int64_t terrace_store_next_poll(const terrace_store* store) {
  return store == nullptr || !store->is_here() ? TERRACE_NEVER : until(store->store.next_deadline());
}

terrace_status terrace_store_wait(const terrace_store* store, int64_t timeout) {
  return on(store, __func__, [&] { return wait_for(terrace_store_fd(store), terrace_store_next_poll(store), timeout); });
}

namespace {

terrace::Result<void> explained(const terrace::Result<void>& erased) {
  if (erased || erased.error() == terrace::Errc::no_room || erased.error() == terrace::Errc::stopped) return erased;
  const bool is_late = erased.error() == terrace::Errc::deadline_exceeded;
  const std::string why = is_late ? "the disk has not confirmed it in time" : "the flush has failed: " + erased.error().message();
  throw Refusal{status_of(erased.error()), "the blocks are not served any more, but after a crash they may be there again (" +
                                               why + "); call it once more to make sure"};
}

}  // namespace

terrace_status terrace_store_remove(terrace_store* store, const terrace_key* keys, size_t count) {
  return on(store, __func__, [&] { return explained(store->store.remove(keys_of(keys, count))); });
}

terrace_status terrace_store_clear(terrace_store* store) {
  return on(store, __func__, [&] { return explained(store->store.clear()); });
}

terrace_status terrace_store_resume_shared(terrace_store* store, const char* weights_revision) {
  return on(store, __func__, [&] {
    return weights_revision == nullptr ? store->store.resume_shared() : store->store.resume_shared(std::string{weights_revision});
  });
}

void terrace_store_stop(terrace_store* store) {
  if (store != nullptr && store->is_here()) store->store.stop_accepting();
}

terrace_status terrace_store_drain(terrace_store* store, int64_t timeout) {
  return on(store, __func__, [&] {
    if (!store->store.drain(time_from_now(timeout))) throw Refusal{terrace::Errc::deadline_exceeded};
  });
}

terrace_status terrace_store_read_statistics(const terrace_store* store, terrace_store_statistics* out) {
  return on(store, __func__, [&] {
    const terrace::TierStatistics now = store->store.statistics();
    const terrace::StoreStat stat = store->store.stat();
    terrace_store_statistics value{};
    value.gets = now.gets;
    value.hits = now.hits;
    value.misses = now.misses;
    value.corrupt = now.corrupt;
    value.get_failures = now.get_failures;
    value.gets_cancelled = now.gets_cancelled;
    value.gets_late = now.gets_late;
    value.puts = now.puts;
    value.stored = now.stored;
    value.put_failures = now.put_failures;
    value.puts_cancelled = now.puts_cancelled;
    value.puts_late = now.puts_late;
    value.read_bytes = count(now.read);
    value.written_bytes = count(now.written);
    value.unaligned_blocks = now.unaligned;
    value.refused = now.refused;
    value.without_parent = now.without_parent;
    value.flushes = now.flushes;
    value.flush_failures = now.flush_failures;
    value.not_flushed = now.not_flushed;
    value.events_dropped = now.events_dropped;
    value.batches = now.batches;
    value.waiting = now.waiting;
    value.under_way = now.under_way;
    value.capacity_blocks = stat.capacity_blocks;
    value.blocks = stat.blocks;
    value.evicted = stat.evicted;
    value.shared_hits = now.shared_hits;
    value.shared_misses = now.shared_misses;
    value.shared_stored = now.shared_stored;
    value.shared_present = now.shared_present;
    value.shared_not_stored = now.shared_not_stored;
    value.shared_gets = now.shared_gets;
    value.shared_gets_declined = now.shared_gets_declined;
    value.shared_puts = now.shared_puts;
    value.shared_puts_cancelled = now.shared_puts_cancelled;
    value.shared_puts_declined = now.shared_puts_declined;
    value.asked = now.asked;
    value.found = now.found;
    write_struct("out", value, out);
  });
}

terrace_status terrace_store_health(terrace_store* store, int32_t* health, const char** reason) {
  return on(store, __func__, [&] {
    need(health, "health");
    need(reason, "reason");
    terrace::StoreHealth now = store->store.health();
    store->reason = now.state == terrace::StoreState::well ? std::string{} : std::move(now.reason);
    *health = static_cast<int32_t>(now.state);
    *reason = store->reason.c_str();
  });
}

const char* terrace_store_io(terrace_store* store) {
  if (store == nullptr || !store->is_here()) return "";
  const terrace_status made = guarded(__func__, [&] { store->io = store->store.io(); });
  return made == TERRACE_OK ? store->io.c_str() : "";
}
