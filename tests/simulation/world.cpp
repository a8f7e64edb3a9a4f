#include "tests/simulation/world.hpp"

#include "base/check.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/device.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/simulated/simulated_arena_worker.hpp"
#include "tests/simulation/world_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace terrace::test {
/// Sometimes refuses a chunk. Checks that no chunk is added twice, removed without having been added, or removed while in use.
class World::ChunkWatch final : public HostChunkObserver {
 public:
  ChunkWatch(World& world, PoolId pool) : world_{world}, pool_{pool} {}

  [[nodiscard]] Result<void> chunk_added(const HostChunk& chunk) override {
    TERRACE_CHECK(!chunk.bytes.empty());
    TERRACE_CHECK(std::ranges::all_of(chunks_, [&](const SlotSpan& other) {
      return other.end() <= chunk.slots.first.value() || chunk.slots.end() <= other.first.value();
    }));
    if (refuse_next_) {
      refuse_next_ = false;
      return Errc::io_failed;
    }
    chunks_.push_back(chunk.slots);
    if (world_.cache_) ++world_.seen_->chunks_added;
    return {};
  }
  void chunk_removing(const HostChunk& chunk) override {
    TERRACE_CHECK(std::erase(chunks_, chunk.slots) == 1);
    if (!world_.cache_) return;
    TERRACE_CHECK(world_.cache_->manager().administration().first_in_use(chunk.slots, pool_) == chunk.slots.end());
    ++world_.seen_->chunks_removed;
  }
  void refuse_next() { refuse_next_ = true; }

 private:
  World& world_;
  PoolId pool_;
  std::vector<SlotSpan> chunks_;
  bool refuse_next_ = false;
};

World::World(std::uint64_t seed, const WorldOptions& options, std::optional<Neighbourhood> neighbourhood)
    : options_{options},
      random_{seed},
      clock_{neighbourhood ? neighbourhood->clock : own_clock_},
      shared_engine_{neighbourhood ? &neighbourhood->engine : nullptr} {
  std::vector<GroupConfig> groups = options.manager.groups;
  if (groups.empty()) groups.emplace_back();
  for (const GroupConfig& group : groups) rules_.emplace_back(group, hash_unit(groups, options.manager.hash_unit_tokens));
  begin();
}

void World::begin() {
  const ManagerConfig& manager = options_.manager;
  std::vector<PoolMemory> memories;
  for (std::size_t pool = 0; pool < manager.pools.size(); ++pool) {
    const PoolSizes& sizes = manager.pool(PoolId{static_cast<std::uint16_t>(pool)});
    make_arena(pool);
    memories.push_back({sizes.first_slot + device_blocks_max, arenas_.back().get(), {}, options_.layers});
    stores_.push_back(make_resilient(make_store(pool)));
  }
  TransferSchedulerConfig scheduler_config;
  scheduler_config.pieces.bytes = Bytes{least_block_bytes * random_.between(1, 4)};
  if (options_.layers > 1) scheduler_config.pieces.bytes = Bytes{least_block_bytes * random_.between(1, 4) / 4};
  scheduler_config.pieces.in_flight = static_cast<std::uint32_t>(random_.between(1, 3));
  ranks_.emplace(options_.ranks, memories, scheduler_config, clock_, waker_);
  RankDevices* const poison = options_.poison ? &ranks_->devices() : nullptr;
  CacheParts parts{ranks_->transfers(), {}, clock_, nullptr, poison};
  for (std::size_t pool = 0; pool < stores_.size(); ++pool) {
    parts.pools.push_back({arenas_[pool].get(), stores_[pool].get()});
  }
  if (random_.chance(0.5)) parts.poll_blocks = static_cast<std::uint32_t>(random_.between(1, 20));  // polls leave some ends
  if (shared_engine_ != nullptr) {
    // A world lives for a few seconds: a breaker that opens must try again soon.
    SimulatedSharedOptions shared;
    shared.breaker.probe_first = std::chrono::milliseconds{5};
    shared.breaker.probe_max = std::chrono::milliseconds{50};
    shared_store_.emplace(*shared_engine_, shared);
    shared_store_->use(fingerprint_of_weights());
    parts.shared = &*shared_store_;
  }
  cache_ = std::make_unique<Cache>(manager, parts);
  cache_->record_events();
  mirror_.begin(cache_->manager());
}

/// An arena of a few small chunks, some of which are not warm at first.
void World::make_arena(std::size_t pool) {
  const PoolId id{static_cast<std::uint16_t>(pool)};
  const PoolSizes& sizes = options_.manager.pool(id);
  HostArenaOptions arena;
  arena.slots = sizes.host_blocks + sizes.staging_blocks;
  arena.ready_slots = random_.chance(0.5) ? sizes.staging_blocks : arena.slots;
  arena.block_bytes = Bytes{block_bytes_of(pool)};
  arena.chunk_bytes = arena.block_bytes * random_.between(1, 9);
  arena.touch.threads = 1;
  auto worker = std::make_unique<SimulatedArenaWorker>();
  arena_workers_.push_back(worker.get());
  arena.worker = std::move(worker);
  watches_.push_back(std::make_unique<ChunkWatch>(*this, id));
  arenas_.push_back(std::make_unique<HostArena>(std::move(arena)));
  TERRACE_CHECK(arenas_.back()->observe(*watches_.back()).has_value());
}

std::unique_ptr<BlockStore> World::make_store(std::size_t pool) {
  const Bytes block_bytes{block_bytes_of(pool)};
  if (options_.store == WorldOptions::Store::none) return nullptr;
  if (options_.store == WorldOptions::Store::memory) return std::make_unique<MemoryStore>(options_.stored_blocks, block_bytes);
  FileStoreConfig config = file_config(pool);
  config.growth_piece_bytes = block_bytes * random_.between(1, 30);
  if (random_.chance(0.3)) config.floor = block_bytes * random_.between(1, 10);
  config.writes_max = random_.chance(0.5) ? 8 : config.writes_max;
  if (disks_.size() == pool) disks_.push_back(std::make_unique<SimulatedIo>());
  else disks_[pool] = std::make_unique<SimulatedIo>(disks_[pool]->files().left_by(SimulatedFiles::End::killed));
  SimulatedIo& disk = *disks_[pool];
  disk.files().set_preallocates(random_.chance(0.7));
  return std::make_unique<FileStore>(config, disk);
}

World::~World() {
  clients_.clear();
  cache_.reset();
}

void World::step() {
  const std::uint64_t dice = random_.below(20);
  if (dice < 2) {
    if (!winding_down_) start_request();
  } else if (dice < 5) {
    if (random_.chance(0.8)) poll();
    else (void)cache_->serve_idle(random_.chance(0.5) ? clock_.now() : never);  // the engine makes no call
  } else if (dice < 11) {
    for (std::uint32_t i = 0; i < options_.haste; ++i) ranks_->step(random_, options_.slow_compute ? 0.2 : 1.0);
  } else if (dice < 14) {
    for (std::uint32_t i = 0; i < options_.haste; ++i) disk_step();
    if (random_.chance(0.2)) arena_step();
  } else if (dice < 15) {
    clock_.advance(std::chrono::milliseconds{random_.below(20)});
  } else if (!clients_.empty()) {
    act(random_.below(clients_.size()));
  }
  if (!winding_down_ && random_.chance(0.01)) plant_fault();
  if (random_.chance(0.02)) operate();
  if (random_.chance(0.04)) prefetch();
  if (options_.restarts > 0 && !winding_down_ && random_.chance(options_.restarts)) restart();
  // Most of the time transfers are not paused.
  if (paused_ && random_.chance(0.05)) resume_transfers();
  if (shared_store_ && random_.chance(0.05)) resume_shared();
  if (cache_->status() == CacheStatus::cleared && random_.chance(0.1)) TERRACE_CHECK(cache_->resume().has_value());
  // Without another fence, a quarantine might last for ever.
  const bool marks = cache_->manager().requests().quarantined_requests() > 0 && random_.chance(0.05);
  if (marks) ranks_->devices().launch([](std::uint32_t, BlockAccess&) {});
  check_counters();
}

void World::drain() {
  const auto waits = [](const auto& client) { return client->state == Client::State::pending; };
  seen_->drained += static_cast<std::uint64_t>(std::ranges::count_if(clients_, waits));
  resume_transfers();
  ranks_->mend();
  const auto goes_on = [&] { return cache_->has_pending_work() || storage_moves() || std::ranges::any_of(clients_, waits); };
  for (int i = 0; goes_on(); ++i) {
    TERRACE_CHECK(i < 20'000);
    ranks_->step(random_, 1.0);
    for (const auto& io : disks_) {
      io->release_stalled();
      while (io->queued() > 0) io->step(random_.below(io->queued()));
    }
    clock_.advance(std::chrono::milliseconds{random_.below(20)});
    poll();
  }
}

bool World::storage_moves() const {
  for (std::size_t pool = 0; pool < stores_.size(); ++pool) {
    if (stores_[pool] == nullptr) continue;
    const Residency& residency = cache_->manager().residency(PoolId{static_cast<std::uint16_t>(pool)});
    if (stores_[pool]->in_flight() > 0 || residency.tree().resident(Tier::storage) > stores_[pool]->stat().blocks) return true;
  }
  return false;
}

void World::restart() {
  for (const auto& client : clients_) *client->valid = false;
  clients_.clear();
  ranks_->devices().launch([](std::uint32_t, BlockAccess&) {});  // a fence after everything, which ends quarantines
  drain();
  check();
  cache_.reset();
  ranks_.reset();
  stores_.clear();
  bare_stores_.clear();
  arenas_.clear();
  arena_workers_.clear();
  watches_.clear();
  pins_.clear();
  retentions_.clear();
  jobs_.clear();
  prefetches_.clear();
  told_.clear();
  stats_before_ = {};
  begin();
  ++seen_->restarts;
}

/// Content depends on key and weights. A clear that keeps the fingerprint makes new keys (operate()), so each key has one content
/// under each fingerprint, in all worlds.
SharedStore::Fingerprint World::fingerprint_of_weights() const {
  SharedStore::Fingerprint fingerprint{};
  std::memcpy(fingerprint.data(), &weights_, sizeof weights_);
  std::memcpy(fingerprint.data() + sizeof weights_, &generation_, sizeof generation_);
  return fingerprint;
}

void World::resume_shared() {
  if (cache_->manager().shared_is_off()) (void)cache_->resume_shared(fingerprint_of_weights());  // not while transfers are paused
}

void World::resume_transfers() {
  paused_ = false;
  cache_->resume_transfers();
}

std::vector<BlockKey> World::random_keys(std::vector<std::uint32_t>& names) {
  names.resize(random_.between(1, 8));
  for (auto& name : names) name = static_cast<std::uint32_t>(random_.chance(0.5) ? 0 : random_.below(3));
  names.front() += static_cast<std::uint32_t>(3 * random_.below(tenants)) + 3 * tenants * generation_;
  return keys_of(names);
}

std::vector<BlockKey> World::keys_of(std::span<const std::uint32_t> names) const {
  std::vector<BlockKey> keys = test::keys_of(names);
  return options_.equal_prefixes ? with_equal_prefix64(std::move(keys)) : keys;
}

void World::start_request() {
  if (clients_.size() >= 5) return;
  auto client = std::make_unique<Client>();
  client->id = RequestId{next_id_++};
  client->keys = random_keys(client->names);
  client->weights = weights_;
  client->extensions_left = static_cast<std::uint32_t>(random_.below(3));
  AcquireRequest request;
  request.id = client->id;
  request.keys = client->keys;
  request.tenant = tenant_of(client->names);
  request.units = HashUnits{static_cast<std::uint32_t>(client->keys.size() + random_.below(2))};
  client->chunk = random_.chance(0.4) ? static_cast<std::uint32_t>(random_.between(1, 3)) : 100;
  request.new_units_max = HashUnits{client->chunk};
  request.encoder_tokens = client->encoder_tokens = static_cast<std::uint32_t>(random_.below(5));
  if (client->id.value() % 8 == 0) request.external_units = 1;
  if (random_.chance(0.1)) request.drop_last_hit = true;
  if (random_.chance(0.1)) request.farthest_source = random_.chance(0.5) ? Source::host : Source::device;
  client->farthest_source = request.farthest_source;
  if (random_.chance(0.3)) request.hit_units_max = HashUnits{static_cast<std::uint32_t>(client->keys.size() - 1)};
  request.by_layer = random_.chance(0.5);
  // (If a stream freezes, the copy under way outlives the deadline of its request.)
  const bool freezes = options_.faults.streams_freeze;
  if (random_.chance(freezes ? 0.6 : 0.3)) {
    request.deadline = clock_.now() + std::chrono::milliseconds{random_.below(freezes ? 60 : 400)};
  }
  client->deadline = request.deadline;
  client->replans = stats().replans;
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    auto& could = client->could_serve.emplace_back();
    if (!rules_[g].config().optional) continue;
    const GroupId group{static_cast<std::uint16_t>(g)};
    could = could_serve(cache_->manager(), rules_[g], group, client->keys, request.farthest_source);
  }
  const MatchResult before = cache_->match(client->keys);
  const std::uint64_t joined_before = prefetch_totals().joined;
  const std::size_t quarantined_before = cache_->manager().requests().quarantined_requests();
  Result<Lease> lease = cache_->acquire(request);
  // If it is planned when a prefetch has ended, or after quarantines that end in this call, other groups may serve it then.
  const bool ended = cache_->manager().requests().quarantined_requests() < quarantined_before;
  if (ended || prefetch_totals().joined > joined_before) {
    for (auto& could : client->could_serve) could.clear();
  }
  note(before.total());
  if (!lease) {
    if (lease.error() == Errc::no_room) ++seen_->no_room;
    else if (lease.error() == Errc::never_fits) ++seen_->never_fits;
    else if (lease.error() == Errc::paused) TERRACE_CHECK(cache_->status() != CacheStatus::normal);
    else check_failed("acquire fails only for want of room", __FILE__, __LINE__);
    return;
  }
  client->lease = std::move(*lease);
  client->held = request.units.value();
  if (cache_->state(client->lease) == RequestState::ready) {
    client->state = Client::State::ready;
    check_serves(*client);
  }
  clients_.push_back(std::move(client));
}

void World::poll() {
  for (const RequestEvent& event : cache_->poll()) {
    note(event.id.value());
    const auto client = std::ranges::find(clients_, event.id, [](const auto& c) { return c->id; });
    TERRACE_CHECK(client != clients_.end());
    TERRACE_CHECK((*client)->state == Client::State::pending);
    if (!event.ends_wait()) {
      told_of_layers(**client, event.layers);
    } else if (event.error) {
      TERRACE_CHECK(event.error != Errc::never_fits);  // it was accepted, and resizes keep to that
      ++seen_->failed;
      *(*client)->valid = false;
      if ((*client)->layers == 0) {
        clients_.erase(client);
        continue;
      }
      // Its compute continues for a while.
      ++seen_->failed_late;
      (*client)->state = Client::State::failed;
    } else {
      TERRACE_CHECK(cache_->state((*client)->lease) == RequestState::ready);
      (*client)->state = Client::State::ready;
      check_serves(**client);
    }
  }
  for (const auto& client : clients_) {
    TERRACE_CHECK(client->state != Client::State::pending || client->deadline > clock_.now());
  }
}

/// Checks that an optional group serves a hit if and only if it can.
void World::check_serves(const Client& client) {
  if (stats().replans != client.replans) return;            // what it found may have been evicted meanwhile
  if (cache_->request_stats(client.lease)->looked) return;  // the shared store may have had what a group lacked
  const std::size_t hits = cache_->hit_sources(client.lease)->size();
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    if (client.could_serve[g].empty()) continue;
    const std::optional<bool> could = client.could_serve[g][hits];
    if (!could) continue;
    const GroupState state = cache_->group_state(client.lease, GroupId{static_cast<std::uint16_t>(g)});
    TERRACE_CHECK(state == (*could ? GroupState::serves : GroupState::does_not_serve));
    seen_->served += *could;
  }
}

void World::act(std::size_t which) {
  Client& client = *clients_[which];
  const bool abort = options_.faults.clients_abort && random_.chance(0.05);
  if (options_.faults.leases_drop && random_.chance(0.05)) return drop_lease(which);
  switch (client.state) {
    case Client::State::pending:
      if (abort) forget(which);
      return;
    case Client::State::failed:
      if (random_.chance(0.3)) forget(which);
      return;
    case Client::State::ready:
      compute(client);
      client.state = Client::State::computed;
      return;
    case Client::State::computed: {
      // Commits before compute is done, as an asynchronous scheduler does. The fence holds transfers back.
      const std::size_t full = std::min<std::size_t>(client.keys.size(), client.filled);
      const std::size_t committed = random_.chance(0.3) ? random_.between(1, full) : full;
      const auto duplicates = cache_->commit(client.lease, std::span{client.keys}.first(committed), client.fence);
      TERRACE_CHECK(duplicates.has_value());
      note(duplicates->size());
      if (committed == full || random_.chance(0.2)) client.state = Client::State::committed;
      return;
    }
    case Client::State::committed: {
      if (random_.chance(0.5)) {
        const std::uint64_t unit = cache_->manager().unit_tokens();
        TERRACE_CHECK(cache_->advance(client.lease, client.filled * unit, client.fence).has_value());
      }
      // The next chunk of the prompt, then generated tokens.
      const bool all = client.filled == client.keys.size();
      if (!winding_down_ && (!all || client.extensions_left > 0)) {
        if (client.held == client.filled) {
          const auto left = static_cast<std::uint32_t>(client.keys.size()) - client.filled;
          const std::uint32_t more = all ? 1 : std::min(client.chunk, left);
          if (!cache_->extend(client.lease, HashUnits{more})) {
            // An engine would preempt some request; here it may be this one.
            if (random_.chance(0.2)) forget(which);
            return;
          }
          client.held += more;
        }
        if (all) {
          --client.extensions_left;
          client.names.push_back(static_cast<std::uint32_t>(random_.below(2)));
          client.keys = keys_of(client.names);
        }
        client.state = Client::State::ready;
        return;
      }
      const RequestStats stats = cache_->request_stats(client.lease).value();
      TERRACE_CHECK(stats.found.sum() + stats.external + stats.miss == stats.units);
      PerSource<std::uint32_t> hits;
      for (const Source source : cache_->hit_sources(client.lease).value()) {
        TERRACE_CHECK(source <= client.farthest_source);
        ++hits[source];
      }
      TERRACE_CHECK(hits == stats.found);
      for (const Source source : all_sources) seen_->found[source] += stats.found[source];
      seen_->miss += stats.miss;
      return forget(which);
    }
  }
}

/// Stops serving a request. Its compute may still be under way.
void World::forget(std::size_t which) {
  Lease lease = std::move(clients_[which]->lease);
  const Fence fence = clients_[which]->fence;
  clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(which));
  if (const std::uint64_t id = lease ? lease.id().value() : 0; id % 3 != 0) lease.set_output_tokens(id % 500);
  if (const std::uint64_t id = lease ? lease.id().value() : 0; id % 5 == 1) {
    lease.expect_use(id % 2 == 0 ? no_use : std::chrono::milliseconds{id % 300});
  }
  cache_->release(std::move(lease), fence);
}

void World::disk_step() {
  if (disks_.empty()) return;
  SimulatedIo& io = *disks_[random_.below(disks_.size())];
  if (io.stalled() > 0 && random_.chance(0.2)) io.release_stalled();
  if (io.queued() > 0) io.step(random_.below(io.queued()));
}

void World::arena_step() {
  const std::size_t pool = random_.below(arenas_.size());
  if (!winding_down_ && random_.chance(0.03)) watches_[pool]->refuse_next();
  arena_workers_[pool]->step();
}

void World::plant_fault() {
  const Direction direction = random_.chance(0.5) ? Direction::swap_in : Direction::swap_out;
  SimulatedDevice& device = ranks_->any(random_);
  if (options_.faults.transfers_fail && random_.chance(0.3)) device.fail_next(direction);
  if (options_.faults.link_dies && random_.chance(0.2)) device.dead(direction, random_.chance(0.6));
  if (options_.faults.streams_freeze && random_.chance(0.5)) device.stuck(direction, random_.chance(0.5));
  if (options_.faults.streams_freeze && random_.chance(0.5)) device.delay_completion(direction, random_.chance(0.5));
  if (options_.faults.disk_fails && !disks_.empty()) {
    SimulatedIo& io = *disks_[random_.below(disks_.size())];
    IoFault fault;
    switch (random_.below(5)) {
      case 0: fault.error = 5 /* EIO */; break;
      case 1: fault.error = 28 /* ENOSPC */; break;
      case 2: fault.bytes_max = random_.below(least_block_bytes); break;
      case 3: fault.flip = true; break;
      default: fault.stall = true; break;
    }
    io.files().inject(io.files().next_number() + random_.below(6), fault);
    if (!random_.chance(0.2)) return;
    const Bytes room{random_.below(20) * least_block_bytes};
    io.files().set_disk_bytes(random_.chance(0.5) ? Bytes{~0ULL} : io.files().used_bytes() + room);
  }
  if (options_.faults.directory_fails && random_.chance(0.1)) {
    const std::uint64_t which = random_.below(options_.directories);
    disks_[random_.below(disks_.size())]->files().break_directory(which == 0 ? "/store" : fmt::format("/store-{}", which));
  }
  if (options_.faults.blocks_rot) rot();
}

void World::check() {
  cache_->manager().check_invariants();
  check_promises(cache_->manager());
  cache_->take_events(kv_events_);
  mirror_.apply(kv_events_);
  seen_->kv_events += kv_events_.size();
  // Also compare sometimes when there was no event, to find changes without an event.
  if (!kv_events_.empty() || ++checks_ % 16 == 0) mirror_.compare(cache_->manager());
  ranks_->check_invariants();
  for (const auto& store : stores_) {
    if (store == nullptr) continue;
    store->check_invariants();
    const StoreStat stat = store->stat();
    TERRACE_CHECK(stat.orphans == 0);
    TERRACE_CHECK(stat.free + stat.blocks + stat.writing + stat.quarantined == stat.capacity_blocks);
    seen_->growth_stopped = std::max(seen_->growth_stopped, stat.growth_stopped);
    seen_->directories_lost = std::max<std::uint64_t>(seen_->directories_lost, stat.directories_lost);
  }
  for (std::size_t pool = 0; pool < arenas_.size(); ++pool) {
    const PoolId id{static_cast<std::uint16_t>(pool)};
    const HostMemory memory = cache_->host_memory(id);
    TERRACE_CHECK(memory.usable <= memory.wanted);
    TERRACE_CHECK(arenas_[pool]->slots() >= memory.usable + options_.manager.pool(id).staging_blocks);
    if (!memory.failure.empty()) ++seen_->growths_failed;
  }
  TERRACE_CHECK(seen_->mismatches == 0);
}

void World::wind_down() {
  winding_down_ = true;
  resume_transfers();
  for (const PinId pin : pins_) (void)cache_->unpin(pin);
  pins_.clear();
  ranks_->mend();
  end_jobs();
  const auto chunks_move = [this] {
    // Mapped chunks that are not warm are coming or going.
    return std::ranges::any_of(arenas_,
                               [](const auto& arena) { return arena->mapped() != arena->block_bytes() * arena->slots(); });
  };
  const auto quarantined = [this] { return cache_->manager().requests().quarantined_requests() > 0; };
  // While the link is dead, slots with blocks that must be copied first wait for the next try.
  const auto retires = [&] {
    for (std::size_t pool = 0; pool < arenas_.size(); ++pool) {
      const PoolId id{static_cast<std::uint16_t>(pool)};
      if (cache_->retiring(Tier::device, id) + cache_->retiring(Tier::host, id) + cache_->host_memory(id).going > 0) return true;
    }
    return false;
  };
  const auto goes_on = [&] {
    return retires() || !clients_.empty() || cache_->has_pending_work() || chunks_move() || quarantined() || storage_moves();
  };
  for (int i = 0; i < 200'000 && goes_on(); ++i) {
    for (const auto& io : disks_) {
      if (io->queued() == 0 && io->stalled() > 0) io->release_stalled();
    }
    step();
  }
  if (!clients_.empty() || cache_->has_pending_work()) {
    fmt::print(stderr, "left: {} clients; {}; under way: swap-outs {} swap-ins {}\n", clients_.size(),
               cache_->manager().describe_pending(), ranks_->commands(Direction::swap_out), ranks_->commands(Direction::swap_in));
  }
  TERRACE_CHECK(clients_.empty());
  TERRACE_CHECK(!cache_->has_pending_work() && !quarantined());
  for (std::size_t pool = 0; pool < arenas_.size(); ++pool) {
    const PoolId id{static_cast<std::uint16_t>(pool)};
    TERRACE_CHECK(cache_->retiring(Tier::device, id) == 0 && cache_->retiring(Tier::host, id) == 0);
    // No lease is left: every chunk that should go has gone, and the wanted size is there.
    const HostMemory memory = cache_->host_memory(id);
    const std::uint64_t slots = std::uint64_t{memory.wanted} + options_.manager.pool(id).staging_blocks;
    const std::uint64_t chunk = arenas_[pool]->slots_per_chunk();
    TERRACE_CHECK(memory.warm() && memory.going == 0 && memory.coming == 0);
    TERRACE_CHECK(memory.mapped / arenas_[pool]->block_bytes() >= slots);
    TERRACE_CHECK(memory.mapped / arenas_[pool]->block_bytes() < slots + chunk);
  }
  ranks_->run();
  check();
  see_resilient_stores();
  for (const CopyTotals& copies : {stats().swap_outs, stats().swap_ins}) {
    TERRACE_CHECK(copies.ordered == copies.done + copies.failed + copies.cancelled + copies.late);
  }
  const PrefetchTotals& prefetched = cache_->prefetch_totals();
  TERRACE_CHECK(prefetched.blocks ==
                prefetched.from_storage + prefetched.from_shared + prefetched.failed + prefetched.there + prefetched.not_wanted);
  seen_->links_stopped += cache_->link_health().stopped;
  check_jobs();
  for (const WriteBackProgress& job : cache_->write_backs()) TERRACE_CHECK(job.ended());
  for (const PrefetchId id : prefetches_) TERRACE_CHECK(!cache_->prefetching(id));
  check_durable();
}

std::uint64_t World::digest() const {
  std::uint64_t all = digest_;
  const auto add = [&](std::uint64_t value) { all = (all ^ value) * 0x9E37'79B9'7F4A'7C15ULL; };
  const ManagerStats& s = stats();
  for (const std::uint64_t v :
       {seen_->found[Source::device], seen_->found[Source::host], seen_->found[Source::storage], seen_->miss, seen_->verified,
        s.evicted_device, s.evicted_host, s.evictions_cancelled, s.joined, s.load_failures, s.duplicates, s.store_failed}) {
    add(v);
  }
  for (std::size_t pool = 0; pool < arenas_.size(); ++pool) {
    const PrefixTree& tree = cache_->manager().residency(PoolId{static_cast<std::uint16_t>(pool)}).tree();
    tree.for_each([&](BlockRef block) {
      add(tree.key(block).prefix64());
      for (const Tier tier : all_tiers) {
        const Copy copy = tree.copy(block, tier);
        add(copy.present() ? copy.slot().value() + 1 : 0);
      }
      add(tree.last_use(block));
    });
  }
  return all;
}

std::string World::describe() const {
  const ManagerConfig& m = options_.manager;
  std::string groups;
  for (const GroupConfig& group : m.groups) {
    groups += fmt::format("{}{} {} span {} pool {}, ", group.optional ? "optional " : "", to_string(group.kind),
                          group.block_tokens, group.span_tokens, group.pool.value());
  }
  return groups + fmt::format("layers {} device {} ({}) host {} ({}) staging {} {} {} {} store {} ({} blocks) "
                              "faults {}{}{} ranks {}{}",
                              options_.layers, m.pools[0].device_blocks, m.device_watermarks.high, m.pools[0].host_blocks,
                              m.host_watermarks.high, m.pools[0].staging_blocks, to_string(m.inclusion),
                              to_string(m.write_policy), to_string(options_.policy), static_cast<int>(options_.store),
                              options_.stored_blocks, options_.faults.transfers_fail, options_.faults.streams_freeze,
                              options_.faults.disk_fails, options_.ranks.count,
                              options_.ranks.payload == RankPayload::replicated ? " alike" : "");
}

}  // namespace terrace::test
