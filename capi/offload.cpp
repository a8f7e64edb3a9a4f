#include "capi/offload.hpp"

#include "capi/keys.hpp"
#include "capi/status.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

using namespace terrace::capi;

namespace terrace::capi {
namespace {

static_assert(sizeof(SlotId) == sizeof(uint32_t));
static_assert(alignof(SlotId) == alignof(uint32_t));
static_assert(static_cast<int>(OffloadHit::storage) == TERRACE_STORAGE &&
              static_cast<int>(Source::storage) + 1 == TERRACE_STORAGE);
static_assert(static_cast<int>(Source::shared) + 1 == TERRACE_SHARED);
static_assert(no_host_slot.value() == TERRACE_NO_SLOT);
static_assert(static_cast<int>(OffloadEvent::Kind::ended) == TERRACE_OFFLOAD_ENDED);

/// Sources have the same numbers as the states of a key. The device, which has 0 in C++, is not a source here.
uint32_t source_of(Source source) { return static_cast<uint32_t>(source) + 1; }

void put_regions(const terrace_open_options& given, CacheSystemOptions& options) {
  const std::size_t lists = options.groups.empty() ? options.pools.size() : options.groups.size();
  for (const terrace_device_region& region : std::span{given.regions, given.region_count}) {
    if (region.rank >= options.ranks.size() || region.group >= lists) {
      throw std::invalid_argument{"regions: there are " + std::to_string(options.ranks.size()) + " ranks and " +
                                  std::to_string(lists) + " groups, and a region names rank " + std::to_string(region.rank) +
                                  " and group " + std::to_string(region.group)};
    }
    RankOptions& rank = options.ranks[region.rank];
    rank.regions.resize(lists);
    rank.regions[region.group].push_back({region.base, region.stride, region.bytes, region.layer});
  }
}

void put_host_rows(const terrace_open_options& given, CacheSystemOptions& options) {
  for (const terrace_host_rows& rows : std::span{given.host_rows, given.host_rows_count}) {
    if (rows.pool >= options.pools.size()) {
      throw std::invalid_argument{"host_rows: there is no pool " + std::to_string(rows.pool)};
    }
    PoolOptions& pool = options.pools[rows.pool];
    if (pool.host_rows) throw std::invalid_argument{"host_rows: pool " + std::to_string(rows.pool) + " is named twice"};
    pool.host_rows = HostRows{static_cast<std::byte*>(rows.address), rows.rows, pool.block_bytes, Bytes{rows.stride}};
  }
}

terrace_offload_event to_c(const OffloadEvent& event) {
  terrace_offload_event to{};
  to.job = event.job.value();
  to.kind = static_cast<uint32_t>(event.kind);
  to.block = event.block;
  to.status = status_of(event.error);
  to.source = source_of(event.source);
  to.layers = event.layers;
  to.moved = event.moved;
  to.failed = event.failed;
  return to;
}

/// The pool and the key order of a call, both of which are in its `pool` argument.
struct KeysIn {
  PoolId pool;
  KeyOrder order;
};
KeysIn keys_in(uint16_t pool) {
  return {PoolId{static_cast<uint16_t>(pool & ~TERRACE_ALONE)}, (pool & TERRACE_ALONE) != 0 ? KeyOrder::flat : KeyOrder::prefix};
}

/// The same. Throws if there is no such pool.
KeysIn keys_in_known(const terrace_offload& cache, uint16_t pool) {
  const KeysIn in = keys_in(pool);
  if (in.pool.value() < cache.block_bytes.size()) return in;
  throw std::invalid_argument{"there is no pool " + std::to_string(in.pool.value())};
}

/// Converts slots from C to C++; none if the pointer is null.
std::span<SlotId> slots_of(uint32_t* slots, std::size_t count) {
  return slots == nullptr ? std::span<SlotId>{} : std::span{reinterpret_cast<SlotId*>(slots), count};
}

/// The memory that an order must name.
enum class Names : unsigned char { slots_or_memory, anything, nothing };

/// Converts an order from C to C++. The spans refer to the caller's memory.
OffloadOrder read_order(terrace_offload& cache, const terrace_order* order, Names names) {
  const terrace_order given = read_struct("order", order, offsetof(terrace_order, beside));
  if (given.count > 0) need(given.keys, "order->keys");
  const bool neither = given.slots == nullptr && given.memory == nullptr;
  if ((given.slots != nullptr && given.memory != nullptr) || (neither && names == Names::slots_or_memory)) {
    throw std::invalid_argument{"exactly one of order->slots and order->memory must be given"};
  }
  if (!neither && names == Names::nothing) throw std::invalid_argument{"order->slots and order->memory must be null"};
  if (given.first > given.count) {
    throw std::invalid_argument{"order->first is " + std::to_string(given.first) + ", beyond the " + std::to_string(given.count) +
                                " keys"};
  }
  if (given.urgency > TERRACE_URGENCY_STORE) {
    throw std::invalid_argument{"order->urgency is " + std::to_string(given.urgency) + ", must be a TERRACE_URGENCY_ number"};
  }
  const KeysIn in = keys_in_known(cache, given.pool);
  // A job lives until its last event has been polled, even if a drain has collected the event.
  if (std::ranges::find(cache.drained, given.id, &terrace_offload_event::job) != cache.drained.end()) {
    throw Refusal{TERRACE_DUPLICATE_REQUEST,
                  "a job of id " + std::to_string(given.id) + " has ended in a drain: terrace_offload_poll() has its events"};
  }
  if (given.after > *std::ranges::min_element(cache.points)) {
    throw std::invalid_argument{"order->after is " + std::to_string(given.after) +
                                ", which terrace_offload_signal() has not returned for each rank"};
  }
  const std::size_t moved = given.count - given.first;
  OffloadOrder to;
  to.id = OffloadJobId{given.id};
  to.keys = keys_of(given.keys, given.count);
  to.first = given.first;
  to.pool = in.pool;
  to.key_order = in.order;
  to.tenant = TenantId{given.tenant};
  to.urgency = static_cast<Urgency>(given.urgency);
  to.deadline = deadline_of(given.deadline);
  to.after = Fence{given.after};
  to.by_layer = given.by_layer != 0;
  to.shared = given.shared != 0;
  if (given.beside_count > 0) need(given.beside, "order->beside");
  to.beside = keys_of(given.beside, given.beside_count);
  if (given.slots != nullptr) to.slots = {reinterpret_cast<const SlotId*>(given.slots), moved};
  if (given.memory == nullptr) return to;
  cache.memory.clear();
  for (void* const each : std::span{given.memory, moved}) {
    need(each, "an element of order->memory");
    cache.memory.emplace_back(static_cast<std::byte*>(each), cache.block_bytes[in.pool.value()]);
  }
  to.memory = cache.memory;
  return to;
}

/// Returns the stream. Throws if it cannot belong to the rank's device.
StreamRef stream_of(const terrace_offload& cache, void* stream, uint32_t rank) {
  if (stream == nullptr || rank >= cache.has_streams.size() || cache.has_streams[rank]) return StreamRef{stream};
  throw std::invalid_argument{"stream must be null, because the device of rank " + std::to_string(rank) + " is ordinary memory"};
}

/// Appends the events of one poll.
void collect(terrace_offload& cache, std::vector<terrace_offload_event>& to) {
  for (const OffloadEvent& event : cache.offload->poll()) to.push_back(to_c(event));
}

}  // namespace
}  // namespace terrace::capi

terrace_status terrace_offload_open(const terrace_open_options* options, terrace_offload** out) {
  return guarded(__func__, [&] {
    need(out, "out");
    *out = nullptr;
    const terrace_open_options given = read_struct("options", options, open_options_size);
    terrace::Config config = read_config(given);
    config.set("--engine-owns-slots", "on");
    terrace::CacheSystemOptions all = config.options();
    if (!config.has("idle-service")) all.idle_service = true;
    put_regions(given, all);
    put_host_rows(given, all);
    auto sink = given.log == nullptr ? nullptr : std::make_unique<FunctionSink>(given.log, given.log_context);
    all.log.sink = sink.get();
    *out = new terrace_offload{all, std::move(sink)};
  });
}

int32_t terrace_offload_destroy(terrace_offload* cache, int64_t timeout) {
  if (cache == nullptr || !cache->is_here()) return 1;
  cache->offload.reset();
  const bool closed = cache->system.close(time_from_now(timeout)).closed;
  delete cache;
  return closed ? 1 : 0;
}

uint64_t terrace_offload_block_bytes(const terrace_offload* cache, uint16_t pool) {
  return cache == nullptr || pool >= cache->block_bytes.size() ? 0 : cache->block_bytes[pool];
}

terrace_status terrace_offload_look_up(const terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                       uint8_t* states) {
  return on(cache, __func__, [&] {
    if (count == 0) return terrace::Result<void>{};
    need(keys, "keys");
    need(states, "states");
    static_assert(sizeof(terrace::OffloadHit) == sizeof *states);
    const KeysIn in = keys_in(pool);
    const std::span<terrace::OffloadHit> hits{reinterpret_cast<terrace::OffloadHit*>(states), count};
    return cache->offload->look_up(keys_of(keys, count), hits, in.pool, in.order);
  });
}

terrace_status terrace_offload_leading(const terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                       size_t* leading) {
  return on(cache, __func__, [&] {
    need(leading, "leading");
    if (count > 0) need(keys, "keys");
    const KeysIn in = keys_in_known(*cache, pool);
    *leading = cache->offload->leading(keys_of(keys, count), in.pool, in.order);
  });
}

terrace_status terrace_offload_contains(const terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                        uint64_t* bitmap) {
  return on(cache, __func__, [&] {
    if (count == 0) return terrace::Result<void>{};
    need(keys, "keys");
    need(bitmap, "bitmap");
    const KeysIn in = keys_in(pool);
    return cache->offload->bitmap(keys_of(keys, count), words_of(bitmap, count), in.pool, in.order);
  });
}

terrace_status terrace_offload_find(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count, size_t* leading,
                                    int32_t* looking) {
  return on(cache, __func__, [&] {
    need(leading, "leading");
    need(looking, "looking");
    if (count > 0) need(keys, "keys");
    const KeysIn in = keys_in_known(*cache, pool);
    const terrace::OffloadFound found = cache->offload->find(keys_of(keys, count), in.pool, in.order);
    *leading = found.blocks;
    *looking = found.looking ? 1 : 0;
  });
}

terrace_status terrace_offload_load(terrace_offload* cache, const terrace_order* order) {
  return on(cache, __func__, [&] { return cache->offload->load(read_order(*cache, order, Names::anything)); });
}

terrace_status terrace_offload_store(terrace_offload* cache, const terrace_order* order) {
  return on(cache, __func__, [&] { return cache->offload->store(read_order(*cache, order, Names::slots_or_memory)); });
}

terrace_status terrace_offload_cancel(terrace_offload* cache, uint64_t job) {
  return on(cache, __func__, [&] { return cache->offload->cancel(terrace::OffloadJobId{job}); });
}

terrace_status terrace_offload_pin(terrace_offload* cache, uint64_t job, uint16_t pool, const terrace_key* keys, size_t count,
                                   uint32_t* pinned) {
  return on(cache, __func__, [&] {
    const KeysIn in = keys_in(pool);
    const terrace::Result<std::uint32_t> blocks =
        cache->offload->pin(terrace::OffloadJobId{job}, keys_of(keys, count), in.pool, {}, in.order);
    if (pinned != nullptr) *pinned = blocks ? *blocks : 0;
    return blocks;
  });
}

terrace_status terrace_offload_pin_slots(terrace_offload* cache, const terrace_order* order, uint32_t* host_slots) {
  return on(cache, __func__, [&] {
    const terrace::OffloadOrder given = read_order(*cache, order, Names::nothing);
    if (!given.beside.empty()) throw std::invalid_argument{"order->beside is for stores and reservations; it must be null"};
    const std::size_t meant = given.keys.size() - given.first;
    if (meant > 0) need(host_slots, "host_slots");
    return cache->offload->pin(given.id, given.keys, given.pool, slots_of(host_slots, meant), given.key_order);
  });
}

terrace_status terrace_offload_unpin(terrace_offload* cache, uint64_t job) {
  return on(cache, __func__, [&] { return cache->offload->unpin(terrace::OffloadJobId{job}); });
}

terrace_status terrace_offload_touch(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count) {
  return on(cache, __func__, [&] {
    const KeysIn in = keys_in(pool);
    return cache->offload->touch(keys_of(keys, count), in.pool, in.order);
  });
}

terrace_status terrace_offload_end_request(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                           uint64_t output_tokens) {
  return on(cache, __func__, [&] {
    const KeysIn in = keys_in(pool);
    return cache->offload->end_request(keys_of(keys, count), output_tokens, in.pool, in.order);
  });
}

terrace_status terrace_offload_expect_use(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                          int64_t in) {
  return on(cache, __func__, [&] {
    if (in < 0) throw std::invalid_argument{"in is " + std::to_string(in) + ", must be nanoseconds from 0 on, or TERRACE_NEVER"};
    const KeysIn known = keys_in(pool);
    const terrace::Duration after = in == TERRACE_NEVER ? terrace::no_use : terrace::Duration{in};
    return cache->offload->expect_use(keys_of(keys, count), after, known.pool, known.order);
  });
}

terrace_status terrace_offload_reserve(terrace_offload* cache, const terrace_order* order, uint32_t* host_slots,
                                       uint32_t* reserved) {
  return on(cache, __func__, [&] {
    need(reserved, "reserved");
    *reserved = 0;
    const terrace::OffloadOrder given = read_order(*cache, order, Names::nothing);
    const std::size_t moved = given.keys.size() - given.first;
    if (moved > 0) need(host_slots, "host_slots");
    const terrace::Result<std::uint32_t> blocks = cache->offload->reserve(given, slots_of(host_slots, moved));
    if (blocks) *reserved = *blocks;
    return blocks;
  });
}

terrace_status terrace_offload_publish(terrace_offload* cache, uint64_t job, int32_t filled) {
  return on(cache, __func__, [&] { return cache->offload->publish(terrace::OffloadJobId{job}, filled != 0); });
}

terrace_status terrace_offload_poll(terrace_offload* cache, const terrace_offload_event** events, size_t* count) {
  return on(cache, __func__, [&] {
    give("events", events, count, [&]() -> auto& {
      cache->job_events.clear();
      cache->job_events.swap(cache->drained);
      collect(*cache, cache->job_events);
      return cache->job_events;
    });
  });
}

int terrace_offload_fd(const terrace_offload* cache) {
  return cache == nullptr || !cache->is_here() ? -1 : cache->offload->wake_fd();
}

int64_t terrace_offload_next_poll(const terrace_offload* cache) {
  if (cache == nullptr || !cache->is_here()) return TERRACE_NEVER;
  const terrace::Turn turn = cache->system.take_turn();
  return cache->drained.empty() ? until(cache->offload->next_deadline()) : 0;
}

terrace_status terrace_offload_wait(const terrace_offload* cache, int64_t timeout) {
  return guarded(__func__, [&] {
    check_handle(cache);  // without a turn, which would last as long as the wait
    return wait_for(terrace_offload_fd(cache), terrace_offload_next_poll(cache), timeout);
  });
}

void terrace_offload_stop(terrace_offload* cache) {
  if (cache == nullptr || !cache->is_here()) return;
  const terrace::Turn turn = cache->system.take_turn();
  cache->offload->stop_accepting();
}

terrace_status terrace_offload_pause_idle_service(terrace_offload* cache, int64_t longest) {
  return on(cache, __func__, [&] {
    constexpr int64_t hour = 3'600'000'000'000;
    if (longest < 0 || longest > hour) {
      throw std::invalid_argument{"longest is " + std::to_string(longest) + ", must be from 0 to an hour of nanoseconds"};
    }
    cache->system.pause_idle_service(std::chrono::nanoseconds{longest});
  });
}

terrace_status terrace_offload_drain(terrace_offload* cache, int64_t timeout) {
  return on(cache, __func__, [&]() -> terrace::Result<void> {
    const terrace::TimePoint end = time_from_now(timeout);
    cache->cache().resume_transfers();
    collect(*cache, cache->drained);
    while (cache->offload->blocks_in_flight() > 0) {
      const int64_t left = until(end);
      if (left == 0) return terrace::Errc::deadline_exceeded;
      const int64_t next = until(cache->offload->next_deadline());
      if (const auto waited = wait_for(cache->offload->wake_fd(), next, left); !waited) return waited;
      collect(*cache, cache->drained);
      cache->cache().resume_transfers();  // an operator may have paused them meanwhile
    }
    return {};
  });
}

terrace_status terrace_offload_signal(terrace_offload* cache, void* stream, uint32_t rank, uint64_t* point) {
  return on(cache, __func__, [&] {
    need(point, "point");
    const terrace::Fence marked = value_of(cache->offload->signal(stream_of(*cache, stream, rank), rank));
    *point = cache->points[rank] = marked.value();
  });
}

terrace_status terrace_offload_await(terrace_offload* cache, uint64_t job, uint32_t layers, void* stream, uint32_t rank) {
  return on(cache, __func__,
            [&] { return cache->offload->await(terrace::OffloadJobId{job}, layers, stream_of(*cache, stream, rank), rank); });
}
