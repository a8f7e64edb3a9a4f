#include "capi/cache.hpp"
#include "capi/keys.hpp"
#include "capi/status.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

namespace terrace::capi {
namespace {

static_assert(static_cast<int>(Source::device) + 1 == TERRACE_DEVICE);
static_assert(static_cast<int>(RequestState::waiting) == TERRACE_REQUEST_WAITING);
static_assert(static_cast<int>(RequestState::failed) == TERRACE_REQUEST_FAILED);
static_assert(static_cast<int>(RequestState::ready) == TERRACE_REQUEST_READY);
static_assert(static_cast<int>(GroupState::serves) == TERRACE_GROUP_SERVES);
static_assert(static_cast<int>(GroupState::does_not_serve) == TERRACE_GROUP_DOES_NOT_SERVE);

using Live = terrace_cache::Live;

/// Makes a call on a cache with requests.
template <class Handle, class Call>
terrace_status on_requests(Handle* cache, std::string_view function, const Call& call) {
  return on(cache, function, [&] {
    if (!cache->offload) return call(cache->cache());
    throw std::invalid_argument{
        "the engine owns the slots of this cache; requests are for one that terrace_cache_open() has made"};
  });
}

template <class Handle>
auto& live_of(Handle& cache, std::uint64_t request) {
  const auto found = cache.live.find(request);
  if (found != cache.live.end()) return found->second;
  throw Refusal{TERRACE_UNKNOWN_REQUEST, "there is no request " + std::to_string(request)};
}

Source source_of(std::uint32_t farthest) {
  if (farthest == 0) return all_sources.back();
  if (farthest <= source_to_c(all_sources.back())) return static_cast<Source>(farthest - 1);
  throw std::invalid_argument{"farthest is " + std::to_string(farthest) +
                              ", must be TERRACE_DEVICE, TERRACE_HOST, TERRACE_STORAGE, TERRACE_SHARED, or 0 for any"};
}

constexpr std::uint64_t units_limit = std::numeric_limits<std::uint32_t>::max();

/// The number of blocks for so many tokens, of which the last one may be incomplete.
std::uint64_t units_of(std::uint64_t tokens, std::uint32_t unit) { return tokens / unit + (tokens % unit == 0 ? 0 : 1); }

/// The needs of a request by its chain: the blocks of all tokens. At least the last token is computed, because the engine needs
/// its result.
AcquireRequest read_chain(const terrace_chain::Keys& chain) {
  const std::uint64_t tokens = chain.tokens();
  const std::uint64_t units = units_of(tokens, chain.keys.block_tokens());
  if (units > units_limit) throw Refusal{Errc::never_fits};
  return {.keys = chain.keys.keys(),
          .units = HashUnits{static_cast<std::uint32_t>(units)},
          .hit_units_max = HashUnits{static_cast<std::uint32_t>(tokens == 0 ? 0 : (tokens - 1) / chain.keys.block_tokens())},
          .tenant = chain.tenant()};
}

AcquireRequest read_acquire(const terrace_cache& cache, const terrace_acquire& given) {
  constexpr std::uint32_t all_flags = 2 * TERRACE_ACQUIRE_BY_LAYER - 1;
  if (given.flags > all_flags) {
    throw std::invalid_argument{"request->flags is " + std::to_string(given.flags) +
                                ", must be a sum of TERRACE_ACQUIRE_ numbers"};
  }
  const auto has = [&](std::uint32_t flag) { return (given.flags & flag) != 0; };
  AcquireRequest to;
  if (given.chain != nullptr) {
    if (given.keys != nullptr || given.count > 0)
      throw std::invalid_argument{"exactly one of request->chain and request->keys must be given"};
    if (given.chain->shared->in_use) throw Refusal{TERRACE_IN_USE, "a live request has this chain; each request needs its own"};
    const std::uint32_t block = given.chain->shared->keys.block_tokens();
    if (cache.unit_tokens != 0 && block != cache.unit_tokens) {
      throw std::invalid_argument{"the blocks of the chain have " + std::to_string(block) + " tokens, must have " +
                                  std::to_string(cache.unit_tokens) + ", the hash unit of the groups"};
    }
    to = read_chain(*given.chain->shared);
  } else {
    to.keys = keys_of(given.keys, given.count, "request->keys");
  }
  to.id = RequestId{given.request};
  if (given.units > 0) to.units = HashUnits{given.units};
  if (has(TERRACE_ACQUIRE_HITS_MAX)) to.hit_units_max = std::min(to.hit_units_max, HashUnits{given.hit_units_max});
  if (has(TERRACE_ACQUIRE_NEW_UNITS_MAX)) to.new_units_max = HashUnits{given.new_units_max};
  to.room_left = given.room_left;
  to.external_units = HashUnits{given.external_units};
  to.encoder_tokens = given.encoder_tokens;
  to.drop_last_hit = has(TERRACE_ACQUIRE_DROP_LAST_HIT);
  to.farthest_source = source_of(given.farthest);
  to.preempted = has(TERRACE_ACQUIRE_PREEMPTED);
  if (given.tenant != 0) to.tenant = TenantId{given.tenant};
  to.deadline = deadline_of(given.deadline);
  to.by_layer = has(TERRACE_ACQUIRE_BY_LAYER);
  return to;
}

terrace_request read_request(const Cache& cache, const Lease& lease) {
  const RequestStats stats = value_of(cache.request_stats(lease));
  terrace_request value{};
  value.state = static_cast<std::uint32_t>(cache.state(lease));
  value.units = stats.units;
  value.device = stats.found[Source::device];
  value.host = stats.found[Source::host];
  value.storage = stats.found[Source::storage];
  value.shared = stats.found[Source::shared];
  value.external = stats.external;
  value.miss = stats.miss;
  value.joined = stats.joined;
  if (const Result<HashUnits> committed = cache.committed_units(lease)) value.committed_units = committed->value();
  value.waited = static_cast<std::int64_t>(cache.seconds_waited(lease) * 1e9);
  const auto nanoseconds = [](Duration time) { return std::int64_t{std::chrono::nanoseconds{time}.count()}; };
  value.waited_looking = nanoseconds(stats.waits.looking);
  value.waited_room = nanoseconds(stats.waits.room);
  value.waited_host = nanoseconds(stats.waits.loads[Source::host]);
  value.waited_storage = nanoseconds(stats.waits.loads[Source::storage]);
  value.waited_shared = nanoseconds(stats.waits.loads[Source::shared]);
  return value;
}

terrace_release read_release(const terrace_cache& cache, const terrace_release* how) {
  if (how == nullptr) return {};
  const terrace_release given = read_struct("how", how);
  constexpr std::uint32_t all_flags = 2 * TERRACE_RELEASE_NEXT_USE - 1;
  if (given.flags > all_flags) {
    throw std::invalid_argument{"how->flags is " + std::to_string(given.flags) + ", must be a sum of TERRACE_RELEASE_ numbers"};
  }
  if ((given.flags & TERRACE_RELEASE_USED_UNTIL) != 0) check_point(cache, given.last_use, "how->last_use");
  if ((given.flags & TERRACE_RELEASE_NEXT_USE) != 0) static_cast<void>(expected_after(given.next_use));
  return given;
}

void end(Live& live, const terrace_release& how) {
  if ((how.flags & TERRACE_RELEASE_USED_UNTIL) != 0) live.lease.used_until(Fence{how.last_use});
  if ((how.flags & TERRACE_RELEASE_OUTPUT_TOKENS) != 0) live.lease.set_output_tokens(how.output_tokens);
  if ((how.flags & TERRACE_RELEASE_NEXT_USE) != 0) live.lease.expect_use(expected_after(how.next_use));
  if (live.chain) live.chain->in_use = false;
  live.lease.reset();
}

void check_group(const terrace_cache& cache, std::uint32_t group) {
  if (group < cache.units_per_block.size()) return;
  throw std::invalid_argument{"there is no group " + std::to_string(group) + ": the number of groups is " +
                              std::to_string(cache.units_per_block.size())};
}

terrace_place to_c(const BlockPlace& at) {
  const auto slot = [](const std::optional<SlotId>& of) { return of ? of->value() : TERRACE_NO_SLOT; };
  return {.device = slot(at.device),
          .host = slot(at.host),
          .storage = at.storage ? std::uint8_t{1} : std::uint8_t{0},
          .in_use = at.in_use ? std::uint8_t{1} : std::uint8_t{0},
          .reserved = 0};
}

// ---- steps

/// One request of a step.
struct StepOfOne {
  std::span<const TokenId> tokens;  ///< new ones
  std::uint64_t computed = 0;       ///< tokens
  std::uint64_t needed = 0;         ///< tokens
  Fence written{};
  bool advances = false;
  std::span<const terrace_table> tables{};
  std::uint32_t row = 0;  ///< of the request in the tables
  const std::uint64_t* row_owners = nullptr;
};

std::string name_of_row(const terrace_table& table, std::uint32_t row) {
  return "row " + std::to_string(row) + " of the table of group " + std::to_string(table.group);
}

/// Throws if the row of the request in a table does not exist, is another request's, or is too short. The request has slots for
/// `have`, and will have them for `wanted`.
void check_row(const terrace_cache& cache, const Live& live, const terrace_table& table, std::uint32_t row, HashUnits have,
               std::uint64_t wanted) {
  if (row >= table.row_count) {
    throw std::invalid_argument{name_of_row(table, row) + " does not exist: row_count is " + std::to_string(table.row_count)};
  }
  const std::uint32_t each = cache.units_per_block[table.group];
  const GroupId group{static_cast<std::uint16_t>(table.group)};
  const std::uint64_t has =
      each == 0 ? value_of(cache.cache().block_table(live.lease, group)).size() : units_of(have.value(), each);
  const std::uint64_t will_have = each == 0 ? has : units_of(wanted, each);
  if (table.lengths[row] <= has && will_have <= table.stride) return;
  throw std::invalid_argument{name_of_row(table, row) + " has " + std::to_string(table.lengths[row]) + " entries of at most " +
                              std::to_string(table.stride) + "; the request has " + std::to_string(has) + ", and will have " +
                              std::to_string(will_have)};
}

/// Throws if the row of the request has entries of another one. The row exists.
void check_owner(const Live& live, const StepOfOne& step) {
  if (step.row_owners == nullptr) return;
  for (const terrace_table& table : step.tables) {
    if (table.lengths[step.row] == 0 || step.row_owners[step.row] == live.serial) continue;
    throw std::invalid_argument{name_of_row(table, step.row) +
                                " has the entries of another request; set its length to 0 when that request has ended, and give "
                                "each request of a step a row of its own"};
  }
}

/// Notes that the first `offered` keys of the chain were committed. The cache may have shared fewer blocks, because a load is
/// bringing one of them, or because other requests were promised the slots. Then the next step offers the others again.
void note_committed(const terrace_cache& owner, Live& live, std::size_t offered) {
  offered = std::max(offered, live.committed);
  std::size_t most = offered;  // a block of a group can have several units, and an incomplete block is not shared
  for (const std::uint32_t each : owner.units_per_block) most = each == 0 ? most : std::min(most, offered / each * each);
  const std::uint32_t shared = value_of(owner.cache().committed_units(live.lease)).value();
  live.committed = shared < most ? shared : offered;
}

/// Serves one request. Everything that can be refused is checked before the first change; only then there may be no slots.
void serve(const terrace_cache& owner, Live& live, const StepOfOne& step) {
  Cache& cache = owner.cache();
  const HashUnits have = value_of(cache.units(live.lease));
  KeyChain& chain = live.chain->keys;
  const std::uint32_t unit = chain.block_tokens();
  const std::uint64_t sequence = live.chain->tokens() + step.tokens.size();
  const std::uint64_t slots = std::uint64_t{have.value()} * unit;
  if (step.computed > std::min(sequence, slots)) {
    throw std::invalid_argument{"the number of computed tokens is " + std::to_string(step.computed) + ", and the sequence has " +
                                std::to_string(sequence) + ", with slots for " + std::to_string(slots)};
  }
  // A request never gets more than units_max, so extend() adds fewer then.
  const std::uint64_t wanted = std::min<std::uint64_t>(units_of(std::max(step.needed, sequence), unit), owner.units_max);
  const std::uint64_t more = wanted - std::min<std::uint64_t>(wanted, have.value());
  for (const terrace_table& table : step.tables) check_row(owner, live, table, step.row, have, have.value() + more);
  check_owner(live, step);
  chain.append(step.tokens);
  const std::size_t full = step.computed / unit;
  if (full > live.committed) {
    static_cast<void>(value_of(cache.commit(live.lease, chain.keys().first(full), step.written)));
    note_committed(owner, live, full);
  }
  if (step.advances) value_of(cache.advance(live.lease, step.computed, step.written));
  // With too many units, extend() fails with never_fits.
  if (more > 0) value_of(cache.extend(live.lease, HashUnits{static_cast<std::uint32_t>(std::min(more, units_limit))}));
}

/// Appends the new entries of the request's block table to its row.
void append_entries(const Cache& cache, const Live& live, const terrace_table& table, std::uint32_t row) {
  const std::span<const SlotId> slots = value_of(cache.block_table(live.lease, GroupId{static_cast<std::uint16_t>(table.group)}));
  std::uint32_t& length = table.lengths[row];
  if (length > slots.size() || slots.size() > table.stride) throw std::logic_error{name_of_row(table, row) + " is too short"};
  std::int32_t* const to = table.rows + row * table.stride;
  for (std::size_t block = length; block < slots.size(); ++block) to[block] = static_cast<std::int32_t>(slots[block].value());
  length = static_cast<std::uint32_t>(slots.size());
}

void check_step(const terrace_cache& cache, const terrace_step& step) {
  if (step.count == 0) return;
  need(step.requests, "step->requests");
  need(step.computed_tokens, "step->computed_tokens");
  need(step.statuses, "step->statuses");
  if (step.tokens != nullptr) {
    need(step.token_counts, "step->token_counts");
    std::uint64_t all = 0;
    for (const uint32_t count : std::span{step.token_counts, step.count}) all += count;
    if (all > step.token_capacity) {
      throw std::invalid_argument{"the sum of step->token_counts is " + std::to_string(all) + ", and token_capacity is " +
                                  std::to_string(step.token_capacity)};
    }
  }
  check_point(cache, step.written, "step->written");
  if (step.table_count > 0) need(step.tables, "step->tables");
  for (const terrace_table& table : std::span{step.tables, step.table_count}) {
    need(table.rows, "the rows of a table");
    need(table.lengths, "the lengths of a table");
    check_group(cache, table.group);
  }
}

/// Returns the status of one request of a step.
terrace_status step_of_one(terrace_cache& cache, const terrace_step& step, std::size_t i, std::span<const TokenId> tokens) {
  return guarded("terrace_cache_step", [&] {
    Live& live = live_of(cache, step.requests[i]);
    if (!live.chain) {
      throw std::invalid_argument{"request " + std::to_string(step.requests[i]) +
                                  " has no chain; commit and extend it by calls of its own"};
    }
    const std::uint32_t row = step.rows == nullptr ? static_cast<std::uint32_t>(i) : step.rows[i];
    const std::span<const terrace_table> tables{step.tables, step.table_count};
    serve(cache, live,
          {.tokens = tokens,
           .computed = step.computed_tokens[i],
           .needed = step.needed_tokens == nullptr ? 0 : step.needed_tokens[i],
           .written = Fence{step.written},
           .advances = step.advance != 0 && cache.unit_tokens != 0,
           .tables = tables,
           .row = row,
           .row_owners = step.row_owners});
    for (const terrace_table& table : tables) append_entries(cache.cache(), live, table, row);
    if (step.row_owners != nullptr && !tables.empty()) step.row_owners[row] = live.serial;
  });
}

}  // namespace
}  // namespace terrace::capi

using namespace terrace::capi;

terrace_status terrace_cache_match(const terrace_cache* cache, const terrace_key* keys, size_t count, uint32_t farthest,
                                   terrace_found* out) {
  return on(cache, __func__, [&] {
    const terrace::MatchResult match = cache->cache().match(keys_of(keys, count), source_of(farthest));
    terrace_found value{};
    value.device = match.found[terrace::Source::device];
    value.host = match.found[terrace::Source::host];
    value.storage = match.found[terrace::Source::storage];
    value.shared = match.found[terrace::Source::shared];
    write_struct("out", value, out);
  });
}

terrace_status terrace_cache_find_blocks(terrace_cache* cache, const terrace_key* keys, size_t count, uint16_t group,
                                         const terrace_place** places, size_t* place_count) {
  return on(cache, __func__, [&] {
    check_group(*cache, group);
    give("places", places, place_count, [&]() -> auto& {
      cache->places.clear();
      for (const terrace::BlockPlace& at : cache->cache().find_blocks(keys_of(keys, count), terrace::GroupId{group}))
        cache->places.push_back(to_c(at));
      return cache->places;
    });
  });
}

terrace_status terrace_cache_find_block(const terrace_cache* cache, const terrace_key* key, uint16_t group,
                                        terrace_place* place) {
  return on(cache, __func__, [&] {
    need(place, "place");
    check_group(*cache, group);
    const auto at = cache->cache().find_block(keys_of(key, 1, "key").front(), terrace::GroupId{group});
    *place = to_c(at.value_or(terrace::BlockPlace{}));
  });
}

terrace_status terrace_cache_blocks_for(const terrace_cache* cache, uint64_t tokens, uint16_t group, uint64_t* blocks) {
  return on(cache, __func__, [&] {
    need(blocks, "blocks");
    check_group(*cache, group);
    *blocks = cache->cache().blocks_for(tokens, terrace::GroupId{group});
  });
}

terrace_status terrace_cache_acquire(terrace_cache* cache, const terrace_acquire* request, terrace_request* out) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) {
    if (out != nullptr) check_struct("out", out);
    const terrace_acquire given = read_struct("request", request);
    const terrace::AcquireRequest wanted = read_acquire(*cache, given);
    cache->live.reserve(cache->live.size() + 1);  // nothing fails once there is a lease
    Live live;
    live.lease = value_of(of.acquire(wanted));
    live.serial = ++cache->acquired;
    if (given.chain != nullptr) {
      live.chain = given.chain->shared;
      live.chain->in_use = true;
    }
    const terrace::Lease& lease = cache->live.insert_or_assign(given.request, std::move(live)).first->second.lease;
    if (out != nullptr) write_struct("out", read_request(of, lease), out);
  });
}

terrace_status terrace_cache_read_request(const terrace_cache* cache, uint64_t request, terrace_request* out) {
  return on_requests(cache, __func__, [&](const terrace::Cache& of) {
    write_struct("out", read_request(of, live_of(*cache, request).lease), out);
  });
}

terrace_status terrace_cache_extend(terrace_cache* cache, uint64_t request, uint32_t units) {
  return on_requests(cache, __func__,
                     [&](terrace::Cache& of) { return of.extend(live_of(*cache, request).lease, terrace::HashUnits{units}); });
}

terrace_status terrace_cache_commit(terrace_cache* cache, uint64_t request, const terrace_key* keys, size_t count,
                                    uint64_t written, const terrace_duplicate** duplicates, size_t* duplicate_count) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) {
    if (duplicates != nullptr) need(duplicate_count, "duplicate_count");
    check_point(*cache, written, "written");
    Live& live = live_of(*cache, request);
    const auto found = value_of(of.commit(live.lease, keys_of(keys, count), terrace::Fence{written}));
    note_committed(*cache, live, count);
    if (duplicates == nullptr) return;
    give("duplicates", duplicates, duplicate_count, [&]() -> auto& {
      cache->duplicates.clear();
      for (const terrace::Duplicate& each : found)
        cache->duplicates.push_back({each.group.value(), each.block, each.own.value(), each.shared.value()});
      return cache->duplicates;
    });
  });
}

terrace_status terrace_cache_advance(terrace_cache* cache, uint64_t request, uint64_t tokens, uint64_t last_use) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) {
    check_point(*cache, last_use, "last_use");
    const terrace::Lease& lease = live_of(*cache, request).lease;
    if (cache->unit_tokens == 0) return terrace::Result<void>{};  // full attention, which keeps all blocks
    return of.advance(lease, tokens, terrace::Fence{last_use});
  });
}

terrace_status terrace_cache_release(terrace_cache* cache, const uint64_t* requests, size_t count, const terrace_release* how) {
  return on_requests(cache, __func__, [&](terrace::Cache&) -> terrace_status {
    if (count > 0) need(requests, "requests");
    const terrace_release given = read_release(*cache, how);
    std::size_t unknown = 0;
    for (const uint64_t request : std::span{requests, count}) {
      const auto found = cache->live.find(request);
      if (found == cache->live.end()) {
        ++unknown;
        continue;
      }
      end(found->second, given);
      cache->live.erase(found);
    }
    if (unknown == 0) return TERRACE_OK;
    throw Refusal{TERRACE_UNKNOWN_REQUEST,
                  std::to_string(unknown) + " of " + std::to_string(count) + " requests are not alive; the others have ended"};
  });
}

terrace_status terrace_cache_compute_is_idle(terrace_cache* cache) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) { of.compute_is_idle(); });
}

terrace_status terrace_cache_block_table(const terrace_cache* cache, uint64_t request, uint16_t group, const uint32_t** slots,
                                         size_t* count) {
  return on_requests(cache, __func__, [&](const terrace::Cache& of) {
    need(slots, "slots");
    need(count, "count");
    check_group(*cache, group);
    const auto table = value_of(of.block_table(live_of(*cache, request).lease, terrace::GroupId{group}));
    *slots = reinterpret_cast<const uint32_t*>(table.data());
    *count = table.size();
  });
}

terrace_status terrace_cache_hit_sources(terrace_cache* cache, uint64_t request, const uint8_t** sources, size_t* count) {
  return on_requests(cache, __func__, [&](const terrace::Cache& of) {
    give("sources", sources, count, [&]() -> auto& {
      cache->sources.clear();
      for (const terrace::Source source : value_of(of.hit_sources(live_of(*cache, request).lease)))
        cache->sources.push_back(static_cast<std::uint8_t>(source_to_c(source)));
      return cache->sources;
    });
  });
}

terrace_status terrace_cache_group_state(const terrace_cache* cache, uint64_t request, uint16_t group, uint32_t* state) {
  return on_requests(cache, __func__, [&](const terrace::Cache& of) {
    need(state, "state");
    check_group(*cache, group);
    *state = static_cast<uint32_t>(of.group_state(live_of(*cache, request).lease, terrace::GroupId{group}));
  });
}

terrace_status terrace_cache_common_prefix(const terrace_cache* cache, uint16_t group, uint32_t* blocks) {
  return on_requests(cache, __func__, [&](const terrace::Cache& of) {
    need(blocks, "blocks");
    check_group(*cache, group);
    *blocks = of.common_prefix(terrace::GroupId{group});
  });
}

terrace_status terrace_cache_step(terrace_cache* cache, const terrace_step* step) {
  return on_requests(cache, __func__, [&](terrace::Cache&) -> terrace_status {
    const terrace_step given = read_struct("step", step);
    check_step(*cache, given);
    terrace_status first = TERRACE_OK;
    const uint32_t* tokens = given.tokens;
    for (std::size_t i = 0; i < given.count; ++i) {
      const std::size_t added = tokens == nullptr ? 0 : given.token_counts[i];
      given.statuses[i] = step_of_one(*cache, given, i, {tokens, added});
      if (tokens != nullptr) tokens += added;
      if (first == TERRACE_OK) first = given.statuses[i];
    }
    return first;
  });
}

terrace_status terrace_cache_poll(terrace_cache* cache, const terrace_request_event** events, size_t* count) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) {
    give("events", events, count, [&]() -> auto& {
      cache->request_events.clear();
      for (const terrace::RequestEvent& event : of.poll())
        cache->request_events.push_back({event.id.value(), status_of(event.error), event.layers});
      return cache->request_events;
    });
  });
}

terrace_status terrace_cache_end_step(terrace_cache* cache) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) { of.end_step(); });
}

terrace_status terrace_cache_await(terrace_cache* cache, uint64_t request, uint32_t layers, void* stream, uint32_t rank) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) {
    return of.await(live_of(*cache, request).lease, layers, stream_of(*cache, stream, rank), rank);
  });
}

terrace_status terrace_cache_prefetch(terrace_cache* cache, const terrace_key* keys, size_t count, uint32_t farthest,
                                      uint64_t tenant, int64_t deadline, uint64_t* prefetch) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) {
    need(prefetch, "prefetch");
    *prefetch = value_of(of.prefetch({.keys = keys_of(keys, count),
                                      .farthest_source = source_of(farthest),
                                      .tenant = terrace::TenantId{tenant},
                                      .deadline = deadline_of(deadline)}))
                    .value();
  });
}

terrace_status terrace_cache_cancel_prefetch(terrace_cache* cache, uint64_t prefetch) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) { return of.cancel_prefetch(terrace::PrefetchId{prefetch}); });
}

terrace_status terrace_cache_prefetching(const terrace_cache* cache, uint64_t prefetch, int32_t* running) {
  return on_requests(cache, __func__, [&](const terrace::Cache& of) {
    need(running, "running");
    *running = of.prefetching(terrace::PrefetchId{prefetch}) ? 1 : 0;
  });
}

terrace_status terrace_cache_drop(terrace_cache* cache, const terrace_key* keys, size_t count, uint32_t* freed) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) {
    const std::uint32_t blocks = value_of(of.drop(keys_of(keys, count)));
    if (freed != nullptr) *freed = blocks;
  });
}

terrace_status terrace_cache_evict(terrace_cache* cache, const uint32_t* slots, size_t count, uint16_t pool, uint32_t* evicted,
                                   const uint32_t** in_use, size_t* in_use_count) {
  return on_requests(cache, __func__, [&](terrace::Cache& of) {
    if (count > 0) need(slots, "slots");
    give("in_use", in_use, in_use_count, [&]() -> auto& {
      const terrace::EvictedBlocks done =
          value_of(of.evict({reinterpret_cast<const terrace::SlotId*>(slots), count}, terrace::PoolId{pool}));
      if (evicted != nullptr) *evicted = done.evicted;
      cache->slots_in_use.clear();
      for (const terrace::SlotId slot : done.in_use) cache->slots_in_use.push_back(slot.value());
      return cache->slots_in_use;
    });
  });
}
