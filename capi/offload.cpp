#include "capi/cache.hpp"

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

terrace_offload_event to_c(const OffloadEvent& event) {
  terrace_offload_event to{};
  to.job = event.job.value();
  to.kind = static_cast<uint32_t>(event.kind);
  to.block = event.block;
  to.status = status_of(event.error);
  to.source = source_to_c(event.source);
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
KeysIn keys_in_known(const terrace_cache& cache, uint16_t pool) {
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
OffloadOrder read_order(terrace_cache& cache, const terrace_order* order, Names names) {
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
  check_point(cache, given.after, "order->after");
  const std::size_t moved = given.count - given.first;
  OffloadOrder to;
  to.id = OffloadJobId{given.id};
  to.keys = keys_of(given.keys, given.count);
  to.first = given.first;
  to.pool = in.pool;
  to.key_order = in.order;
  to.use = given.use;
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

/// Makes a call on a cache with jobs.
template <class Call>
terrace_status on_jobs(const terrace_cache* cache, std::string_view function, const Call& call) {
  return on(cache, function, [&] { return call(jobs_of(*cache)); });
}

}  // namespace

OffloadCache& jobs_of(const terrace_cache& cache) {
  if (cache.offload) return *cache.offload;
  throw std::invalid_argument{"this cache owns the slots of its devices; jobs are for one that terrace_offload_open() has made"};
}

void collect(terrace_cache& cache, std::vector<terrace_offload_event>& to) {
  for (const OffloadEvent& event : cache.offload->poll()) to.push_back(to_c(event));
}

}  // namespace terrace::capi

terrace_status terrace_offload_open(const terrace_open_options* options, terrace_offload** out) {
  return guarded(__func__, [&] {
    need(out, "out");
    *out = nullptr;
    *out = make_cache(read_struct("options", options, open_options_size), true);
  });
}

terrace_status terrace_offload_look_up(const terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                       uint8_t* states) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    if (count == 0) return terrace::Result<void>{};
    need(keys, "keys");
    need(states, "states");
    static_assert(sizeof(terrace::OffloadHit) == sizeof *states);
    const KeysIn in = keys_in(pool);
    const std::span<terrace::OffloadHit> hits{reinterpret_cast<terrace::OffloadHit*>(states), count};
    return jobs.look_up(keys_of(keys, count), hits, in.pool, in.order);
  });
}

terrace_status terrace_offload_leading(const terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                       size_t* leading) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    need(leading, "leading");
    if (count > 0) need(keys, "keys");
    const KeysIn in = keys_in_known(*cache, pool);
    *leading = jobs.leading(keys_of(keys, count), in.pool, in.order);
  });
}

terrace_status terrace_offload_contains(const terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                        uint64_t* bitmap) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    if (count == 0) return terrace::Result<void>{};
    need(keys, "keys");
    need(bitmap, "bitmap");
    const KeysIn in = keys_in(pool);
    return jobs.bitmap(keys_of(keys, count), words_of(bitmap, count), in.pool, in.order);
  });
}

terrace_status terrace_offload_find(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count, size_t* leading,
                                    int32_t* looking) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    need(leading, "leading");
    need(looking, "looking");
    if (count > 0) need(keys, "keys");
    const KeysIn in = keys_in_known(*cache, pool);
    const terrace::OffloadFound found = jobs.find(keys_of(keys, count), in.pool, in.order);
    *leading = found.blocks;
    *looking = found.looking ? 1 : 0;
  });
}

terrace_status terrace_offload_new_use(terrace_offload* cache, uint64_t* use) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    need(use, "use");
    *use = jobs.new_use();
  });
}

terrace_status terrace_offload_load(terrace_offload* cache, const terrace_order* order) {
  return on_jobs(cache, __func__,
                 [&](terrace::OffloadCache& jobs) { return jobs.load(read_order(*cache, order, Names::anything)); });
}

terrace_status terrace_offload_store(terrace_offload* cache, const terrace_order* order) {
  return on_jobs(cache, __func__,
                 [&](terrace::OffloadCache& jobs) { return jobs.store(read_order(*cache, order, Names::slots_or_memory)); });
}

terrace_status terrace_offload_cancel(terrace_offload* cache, uint64_t job) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) { return jobs.cancel(terrace::OffloadJobId{job}); });
}

terrace_status terrace_offload_pin(terrace_offload* cache, uint64_t job, uint16_t pool, const terrace_key* keys, size_t count,
                                   uint32_t* pinned) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    const KeysIn in = keys_in(pool);
    const terrace::Result<std::uint32_t> blocks =
        jobs.pin(terrace::OffloadJobId{job}, keys_of(keys, count), in.pool, {}, in.order);
    if (pinned != nullptr) *pinned = blocks ? *blocks : 0;
    return blocks;
  });
}

terrace_status terrace_offload_pin_slots(terrace_offload* cache, const terrace_order* order, uint32_t* host_slots) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    const terrace::OffloadOrder given = read_order(*cache, order, Names::nothing);
    if (!given.beside.empty()) throw std::invalid_argument{"order->beside is for stores and reservations; it must be null"};
    const std::size_t meant = given.keys.size() - given.first;
    if (meant > 0) need(host_slots, "host_slots");
    return jobs.pin(given.id, given.keys, given.pool, slots_of(host_slots, meant), given.key_order, given.use);
  });
}

terrace_status terrace_offload_unpin(terrace_offload* cache, uint64_t job) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) { return jobs.unpin(terrace::OffloadJobId{job}); });
}

terrace_status terrace_offload_touch(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    const KeysIn in = keys_in(pool);
    return jobs.touch(keys_of(keys, count), in.pool, in.order);
  });
}

terrace_status terrace_offload_end_request(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                           uint64_t output_tokens) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    const KeysIn in = keys_in(pool);
    return jobs.end_request(keys_of(keys, count), output_tokens, in.pool, in.order);
  });
}

terrace_status terrace_offload_expect_use(terrace_offload* cache, uint16_t pool, const terrace_key* keys, size_t count,
                                          int64_t in) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    const KeysIn known = keys_in(pool);
    return jobs.expect_use(keys_of(keys, count), expected_after(in), known.pool, known.order);
  });
}

terrace_status terrace_offload_reserve(terrace_offload* cache, const terrace_order* order, uint32_t* host_slots,
                                       uint32_t* reserved) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    need(reserved, "reserved");
    *reserved = 0;
    const terrace::OffloadOrder given = read_order(*cache, order, Names::nothing);
    const std::size_t moved = given.keys.size() - given.first;
    if (moved > 0) need(host_slots, "host_slots");
    const terrace::Result<std::uint32_t> blocks = jobs.reserve(given, slots_of(host_slots, moved));
    if (blocks) *reserved = *blocks;
    return blocks;
  });
}

terrace_status terrace_offload_publish(terrace_offload* cache, uint64_t job, int32_t filled) {
  return on_jobs(cache, __func__,
                 [&](terrace::OffloadCache& jobs) { return jobs.publish(terrace::OffloadJobId{job}, filled != 0); });
}

terrace_status terrace_offload_poll(terrace_offload* cache, const terrace_offload_event** events, size_t* count) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache&) {
    give("events", events, count, [&]() -> auto& {
      cache->job_events.clear();
      cache->job_events.swap(cache->drained);
      collect(*cache, cache->job_events);
      return cache->job_events;
    });
  });
}

void terrace_offload_stop(terrace_offload* cache) {
  if (cache == nullptr || !cache->is_here()) return;
  const terrace::Turn turn = cache->system.take_turn();
  if (cache->offload) cache->offload->stop_accepting();
}

terrace_status terrace_offload_await(terrace_offload* cache, uint64_t job, uint32_t layers, void* stream, uint32_t rank) {
  return on_jobs(cache, __func__, [&](terrace::OffloadCache& jobs) {
    return jobs.await(terrace::OffloadJobId{job}, layers, stream_of(*cache, stream, rank), rank);
  });
}
