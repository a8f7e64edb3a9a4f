#include "tests/runtime/offload/offload_world.hpp"

#include "base/check.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/keys.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

namespace terrace::test {

OffloadWorldOptions random_offload_options(std::uint64_t seed) {
  Random random{seed * 6151 + 5};
  OffloadWorldOptions options;
  options.order = random.chance(0.5) ? KeyOrder::prefix : KeyOrder::flat;
  options.store = static_cast<OffloadWorldOptions::Store>(random.below(3));
  options.host_blocks = static_cast<std::uint32_t>(random.chance(0.1) ? 0 : random.between(1, 24));
  options.staging_blocks = static_cast<std::uint32_t>(random.between(1, 4));
  options.stored_blocks = static_cast<std::uint32_t>(random.between(4, 40));
  options.layers = random.chance(0.5) ? 1 : 4;
  if (options.store != OffloadWorldOptions::Store::none) {
    options.write_policy = static_cast<WritePolicy>(random.below(4));
  } else {
    options.staging_blocks = 0;
    options.host_blocks = std::max(options.host_blocks, 1U);
  }
  options.transfers_fail = random.chance(0.3);
  options.streams_freeze = random.chance(0.3);
  const bool file = options.store == OffloadWorldOptions::Store::file;
  options.resilient = file && random.chance(0.5);
  options.disk_fails = file && random.chance(0.5);
  options.crashes = file && random.chance(0.5);
  // A crash shows most where nothing else goes wrong.
  if (options.crashes && random.chance(0.6)) options.transfers_fail = options.streams_freeze = options.disk_fails = false;
  if (random.chance(0.15)) {
    options.exact = true;
    options.host_blocks = 400;
    options.transfers_fail = options.streams_freeze = options.disk_fails = options.crashes = options.operators = false;
  }
  return options;
}

OffloadWorld::OffloadWorld(std::uint64_t seed, const OffloadWorldOptions& options) : options_{options}, random_{seed} {
  if (options_.store == OffloadWorldOptions::Store::file) disk_ = std::make_unique<SimulatedIo>();
  if (options_.shared) shared_engine_ = std::make_unique<SimulatedSharedEngine>(seed, clock_, 1 + seed % 3);
  make();
}

OffloadWorld::~OffloadWorld() { *life_ = false; }

void OffloadWorld::make() {
  HostArenaOptions arena;
  arena.slots = arena.ready_slots = options_.host_blocks + options_.staging_blocks;
  arena.block_bytes = Bytes{block_bytes};
  arena.chunk_bytes = arena.block_bytes * random_.between(1, 9);
  arena.touch.threads = 1;
  auto worker = std::make_unique<SimulatedArenaWorker>();
  arena_worker_ = worker.get();
  arena.worker = std::move(worker);
  arena_ = std::make_unique<HostArena>(std::move(arena));
  const PoolMemory memory{device_slots, arena_.get(), {}, options_.layers};
  device_ = std::make_unique<SimulatedDevice>(std::span{&memory, 1});
  TransferSchedulerConfig scheduler;
  scheduler.pieces.bytes = Bytes{block_bytes * random_.between(1, 4) / options_.layers};
  transfers_ = std::make_unique<TransferEngine>(scheduler, *device_, clock_, waker_);
  store_ = make_store();

  ManagerConfig config;
  config.pools.front().engine_blocks = device_slots;
  config.pools.front().host_blocks = options_.host_blocks;
  config.pools.front().staging_blocks = options_.staging_blocks;
  config.storage = store_ != nullptr;
  config.key_order = options_.order;
  config.write_policy = options_.write_policy;
  config.selective_hits = 1 + static_cast<std::uint32_t>(random_.below(2));
  if (store_ != nullptr && random_.chance(0.5)) config.flush_interval = std::chrono::milliseconds{random_.between(1, 60)};
  if (random_.chance(0.3)) config.policy = lru_policy;
  CacheParts parts{.transfers = *transfers_, .pools = {{arena_.get(), store_.get()}}, .clock = clock_};
  if (random_.chance(0.5)) parts.poll_blocks = static_cast<std::uint32_t>(random_.between(1, 20));  // polls leave some ends
  if (options_.shared) {
    configure_shared(config.shared);
    shared_ = std::make_unique<SimulatedSharedStore>(*shared_engine_);
    parts.shared = shared_.get();
  }
  cache_ = std::make_unique<Cache>(config, parts);
  cache_->record_events();
  mirror_ = {};
  OffloadLimits limits;
  limits.jobs = 6;
  limits.blocks_in_flight = 24;
  limits.pinned_blocks = 8;
  offload_ = std::make_unique<OffloadCache>(*cache_, limits);
  expected_.assign(device_slots, std::vector<std::byte>(block_bytes));
  for (std::uint32_t slot = 0; slot < device_slots; ++slot) {
    const auto now = device_->peek({}, SlotId{slot});
    expected_[slot].assign(now.begin(), now.end());
  }
  computing_.assign(device_slots, 0);
  readers_.assign(device_slots, 0);
  written_.assign(device_slots, false);
}

FileStoreConfig OffloadWorld::file_config() const {
  FileStoreConfig config;
  config.directory = "/store";
  config.name.clear();
  config.block_bytes = Bytes{block_bytes};
  config.capacity = capacity_for(options_.stored_blocks, config.block_bytes, 1);
  config.id = 1;
  return config;
}

std::unique_ptr<BlockStore> OffloadWorld::make_store() {
  if (options_.store == OffloadWorldOptions::Store::none) return nullptr;
  if (options_.store == OffloadWorldOptions::Store::memory) {
    return std::make_unique<MemoryStore>(options_.stored_blocks, Bytes{block_bytes});
  }
  auto file = std::make_unique<FileStore>(file_config(), *disk_);
  if (!options_.resilient) return file;
  using std::chrono::milliseconds;
  ResilienceOptions resilience;
  resilience.read_retries = 1;
  resilience.write_retries = 1;
  resilience.back_off_first = milliseconds{5};
  resilience.back_off_max = milliseconds{20};
  resilience.breaker.failures_max = 3;
  resilience.breaker.probe_first = milliseconds{10};
  resilience.breaker.probe_max = milliseconds{40};
  bare_store_ = std::move(file);
  return std::make_unique<ResilientStore>(*bare_store_, clock_, resilience);
}

// ---- names, keys, content ----------------------------------------------------------------------------------------------------

BlockKey OffloadWorld::key_of(const Name& name) const { return opaque_key({}, std::as_bytes(std::span{name})); }

std::vector<BlockKey> OffloadWorld::keys_of(const std::vector<Name>& names) const {
  std::vector<BlockKey> keys;
  for (const Name& name : names) keys.push_back(key_of(name));
  return keys;
}

const std::vector<std::byte>& OffloadWorld::content(const Name& name) {
  std::vector<std::byte>& bytes = contents_[name];
  if (bytes.empty()) {
    bytes.resize(block_bytes);
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random_.engine()();
      std::memcpy(&bytes[at], &word, sizeof word);
    }
  }
  return bytes;
}

/// Names of an order. In prefix order, a name contains those of all blocks before it, as a chained hash does; or all names stand
/// alone, and none is that of a prefix.
std::vector<OffloadWorld::Name> OffloadWorld::random_names() {
  std::vector<Name> names;
  const std::uint64_t count = random_.between(1, 7);
  if (options_.order == KeyOrder::flat || random_.chance(0.2)) {
    std::set<Name> distinct;
    while (distinct.size() < count) distinct.insert({generation_, alone_from + static_cast<std::uint32_t>(random_.below(24))});
    names.assign(distinct.begin(), distinct.end());
    std::ranges::reverse(names);
    return names;
  }
  return random_prefix(count);
}

// ---- orders ------------------------------------------------------------------------------------------------------------------

void OffloadWorld::order(bool load) {
  Live job;
  job.load = load;
  job.names = load && !found_.empty() ? std::exchange(found_, {}) : random_names();
  const std::vector<BlockKey> keys = keys_of(job.names);
  if (order_of(job.names) == KeyOrder::prefix && random_.chance(0.5)) {
    job.first = static_cast<std::uint32_t>(random_.below(keys.size()));
  }
  const std::size_t blocks = keys.size() - job.first;
  OffloadOrder order;
  order.id = OffloadJobId{random_.chance(0.05) && !live_.empty() ? live_.begin()->first.value() : next_id_++};
  order.keys = keys;
  order.key_order = order_of(job.names);
  const std::vector<BlockKey> beside = load ? std::vector<BlockKey>{} : random_owners(job.names);
  order.beside = beside;
  order.first = job.first;
  job.clears = clears_;
  order.urgency = static_cast<Urgency>(random_.below(urgency_count));
  order.by_layer = random_.chance(0.5);
  if (random_.chance(0.3)) order.use = offload_->new_use() - random_.below(2);  // a new one, or the last one
  if (options_.shared) order.shared = random_.chance(0.8);
  if (!options_.exact && random_.chance(options_.streams_freeze ? 0.7 : 0.3)) {
    order.deadline = clock_.now() + std::chrono::milliseconds{random_.below(options_.streams_freeze ? 60 : 300)};
  }
  std::vector<std::span<std::byte>> memory;
  if (load && random_.chance(0.15)) {
    // To the host tier only.
  } else if (random_.chance(0.2)) {
    for (std::size_t i = 0; i < blocks; ++i) {
      job.memory.emplace_back(block_bytes, std::byte{7});
      if (!load) job.memory.back() = content(job.names[job.first + i]);
    }
    for (auto& block : job.memory) memory.emplace_back(block);
    order.memory = memory;
  } else {
    for (std::uint32_t slot = 0; slot < device_slots && job.slots.size() < blocks; ++slot) {
      const std::uint32_t here = (slot * 5 + static_cast<std::uint32_t>(next_id_)) % device_slots;
      if (!written_[here] && readers_[here] == 0) job.slots.push_back(SlotId{here});
    }
    if (job.slots.size() < blocks) return;
    order.slots = job.slots;
    // The engine computes the blocks, or does something else with the slots, before the copies may touch them.
    for (std::size_t i = 0; i < blocks; ++i) {
      if (load && random_.chance(0.7)) continue;
      const std::uint32_t slot = job.slots[i].value();
      const std::vector<std::byte> bytes =
          load ? std::vector<std::byte>(block_bytes, std::byte(i)) : content(job.names[job.first + i]);
      ++computing_[slot];
      order.after = device_->launch([this, life = life_, device = device_.get(), slot, bytes](BlockAccess& access) {
        if (!*life || device != device_.get()) return;
        std::vector<std::byte> scratch(block_bytes);
        const auto target = access.write_target(SlotId{slot}, scratch);
        std::memcpy(target.data(), bytes.data(), bytes.size());
        access.written(SlotId{slot}, scratch);
        expected_[slot] = bytes;
        --computing_[slot];
      });
    }
    // (Compute that was launched for an order that was refused may still be under way.)
    order.after = device_->launch([](BlockAccess&) {});
  }
  job.ended.resize(blocks);
  job.seen = std::make_shared<std::vector<Live::Seen>>(blocks);
  const bool duplicate = live_.contains(order.id);
  const Result<void> accepted = load ? offload_->load(order) : offload_->store(order);
  note(static_cast<std::uint64_t>(accepted.has_value()));
  if (!accepted) {
    ++seen_.refused;
    if (duplicate) TERRACE_CHECK(accepted.error() == Errc::duplicate_request);
    else TERRACE_CHECK(accepted.error() == Errc::refused || accepted.error() == Errc::paused);
    return;
  }
  TERRACE_CHECK(!duplicate);
  for (const SlotId slot : job.slots) {
    if (load) written_[slot.value()] = true;
    else ++readers_[slot.value()];
  }
  if (!load) {
    for (std::size_t i = job.first; i < job.names.size(); ++i) offered_.insert(job.names[i]);
  }
  // (The buffers stay where they are: a move of a vector moves no element.)
  live_.emplace(order.id, std::move(job));
}

void OffloadWorld::poll() {
  for (const OffloadEvent& event : offload_->poll()) {
    note(event.job.value() * 31 + event.block + (event.error ? 1000 : 0));
    const auto found = live_.find(event.job);
    TERRACE_CHECK(found != live_.end());
    Live& job = found->second;
    switch (event.kind) {
      case OffloadEvent::Kind::block: on_block(event, job); break;
      case OffloadEvent::Kind::layers: {
        TERRACE_CHECK(job.load && event.layers > job.layers && event.layers < options_.layers);
        job.layers = event.layers;
        ++seen_.layers;
        const std::size_t bytes = std::size_t{block_bytes} / options_.layers * event.layers;
        for (std::size_t i = 0; i < job.slots.size(); ++i) {
          if (job.ended[i]) continue;  // the slot is the engine's again
          const auto now = device_->peek({}, job.slots[i]);
          TERRACE_CHECK(std::memcmp(now.data(), content(job.names[job.first + i]).data(), bytes) == 0);
        }
        break;
      }
      case OffloadEvent::Kind::ended:
        TERRACE_CHECK(std::ranges::all_of(job.ended, [](bool ended) { return ended; }));
        TERRACE_CHECK(event.moved + event.failed == job.ended.size());
        TERRACE_CHECK(static_cast<bool>(event.error) == (event.failed > 0));
        TERRACE_CHECK(event.failed > 0 || !job.must_fail);
        pins_.erase(event.job);
        live_.erase(found);
        break;
    }
  }
}

void OffloadWorld::on_block(const OffloadEvent& event, Live& job) {
  TERRACE_CHECK(event.block >= job.first && event.block < job.names.size());
  const std::size_t i = event.block - job.first;
  TERRACE_CHECK(!job.ended[i]);
  job.ended[i] = true;
  const Name& name = job.names[event.block];
  const std::vector<std::byte>& bytes = content(name);
  if (!event.error && job.load) {
    // The heart of it: these are the bytes of the key, and only if somebody has stored them.
    // (A load that began before a clear may end with what was there then.)
    TERRACE_CHECK(offered_.contains(name) || (job.clears != clears_ && before_clear_.contains(name)));
    if (!job.slots.empty() || !job.memory.empty()) {
      const std::span<const std::byte> now = job.memory.empty() ? device_->peek({}, job.slots[i]) : job.memory[i];
      TERRACE_CHECK(std::memcmp(now.data(), bytes.data(), bytes.size()) == 0);
    } else {
      ++seen_.brought;
    }
    ++seen_.loaded;
    if (options_.order == KeyOrder::prefix && order_of(job.names) == KeyOrder::flat) ++seen_.loaded_alone;
    (*job.seen)[i].right_result = true;
    TERRACE_CHECK(!(*job.seen)[i].wrong);
    if (event.source == Source::storage) ++seen_.from_storage;
    if (event.source == Source::shared) ++seen_.from_shared;
  }
  if (!event.error && !job.load) {
    ++seen_.stored;
    if (options_.exact) there_.insert(name);
  }
  if (event.error) {
    ++seen_.failed;
    job.failed = true;
    if (!job.error) job.error = event.error;
    if (event.error == Errc::deadline_exceeded) ++seen_.late;
    else if (event.error == Errc::cancelled) ++seen_.cancelled;
    else if (event.error == Errc::not_found) ++seen_.missed;
    else if (event.error == Errc::full) ++seen_.full;
    else if (event.error == Errc::parent_missing) ++seen_.orphans;
    else ++seen_.storage_errors;
  }
  if (!job.memory.empty()) {
    ++seen_.in_memory;
    // The memory is the engine's again: from now on a late copy would be noticed.
    std::ranges::fill(job.memory[i], std::byte{99});
    return;
  }
  if (job.slots.empty()) return;
  const std::uint32_t slot = job.slots[i].value();
  if (job.load) {
    const auto now = device_->peek({}, SlotId{slot});
    expected_[slot].assign(now.begin(), now.end());
    written_[slot] = false;
  } else {
    --readers_[slot];
  }
}

// ---- what else happens -------------------------------------------------------------------------------------------------------

void OffloadWorld::step() {
  const std::uint64_t dice = random_.below(100);
  if (dice < 14) {
    if (!winding_down_) order(dice < 7);
  } else if (dice < 34) {
    if (random_.chance(0.8)) poll();
    else (void)cache_->serve_idle(random_.chance(0.5) ? clock_.now() : never);  // the engine makes no call
    if (options_.shared && random_.chance(0.5)) ask();
  } else if (dice < 66) {
    const auto options = device_->step_options();
    if (!options.empty()) device_->step(options[random_.below(options.size())]);
  } else if (dice < 84) {
    disk_step();
    if (random_.chance(0.2)) arena_worker_->step();
  } else if (dice < 90) {
    clock_.advance(std::chrono::milliseconds{random_.below(20)});
  } else if (dice < 92) {
    await();
  } else if (dice < 96) {
    operate();
  } else if (dice < 98) {
    if (!winding_down_) plant_fault();
  } else if (dice == 98 && options_.crashes && !winding_down_ && random_.chance(0.15)) {
    crash();
  } else if (dice == 99 && !live_.empty() && random_.chance(0.3)) {
    TERRACE_CHECK(offload_->cancel(std::next(live_.begin(), static_cast<std::ptrdiff_t>(random_.below(live_.size())))->first));
  }
}

/// The stream of the engine, which is the timeline of compute, waits for a job, and is given work that relies on that.
void OffloadWorld::await() {
  constexpr StreamRef stream{};
  if (live_.empty() || random_.chance(0.05)) {
    TERRACE_CHECK(offload_->await(OffloadJobId{next_id_}, 1, stream).error() == Errc::not_found);
    return;
  }
  auto found = live_.begin();
  std::advance(found, random_.below(live_.size()));
  Live& job = found->second;
  const auto layers = static_cast<std::uint32_t>(random_.between(1, options_.layers));
  const Result<void> ordered = offload_->await(found->first, layers, stream);
  note(ordered ? 1 : static_cast<std::uint64_t>(ordered.error().value()));
  if (job.slots.empty()) {
    TERRACE_CHECK(ordered.error() == Errc::invalid_argument);
    return;
  }
  if (job.load && job.failed) {
    TERRACE_CHECK(ordered.error() == (job.error == Errc::not_found ? make_error_code(Errc::load_failed) : job.error));
    return;
  }
  if (ordered) {
    if (job.load) look_behind(job, layers);
    else overwrite_behind(job);
  } else if (ordered.error() == Errc::not_ready) {
    ++seen_.not_ready;
  } else {
    TERRACE_CHECK(ordered.error() != Errc::not_found && ordered.error() != Errc::invalid_argument);
    job.must_fail = true;
  }
}

/// A step reads the leading layers. If they are wrong, the block must not have arrived.
void OffloadWorld::look_behind(Live& job, std::uint32_t layers) {
  ++seen_.awaited_loads;
  for (std::size_t i = 0; i < job.slots.size(); ++i) {
    if (job.ended[i]) continue;  // the slot is the engine's again
    device_->launch([this, life = life_, device = device_.get(), i, seen = job.seen, slot = job.slots[i],
                     bytes = content(job.names[job.first + i]), layers](BlockAccess& access) {
      if (!*life || device != device_.get()) return;
      std::vector<std::byte> scratch(block_bytes);
      const auto now = access.read(slot, scratch);
      Live::Seen& its = (*seen)[i];
      its.wrong |= std::memcmp(now.data(), bytes.data(), std::size_t{block_bytes} / options_.layers * layers) != 0;
      TERRACE_CHECK(!its.wrong || !its.right_result);
    });
  }
}

/// A step overwrites the slots. What was stored is compared when it is loaded.
void OffloadWorld::overwrite_behind(const Live& job) {
  ++seen_.awaited_stores;
  for (std::size_t i = 0; i < job.slots.size(); ++i) {
    if (job.ended[i]) continue;  // the slot is the engine's again, and may have another use
    const std::uint32_t slot = job.slots[i].value();
    ++computing_[slot];
    device_->launch([this, life = life_, device = device_.get(), slot](BlockAccess& access) {
      if (!*life || device != device_.get()) return;
      std::vector<std::byte> scratch(block_bytes);
      const auto target = access.write_target(SlotId{slot}, scratch);
      std::ranges::fill(target, std::byte{0xAB});
      access.written(SlotId{slot}, scratch);
      std::ranges::fill(expected_[slot], std::byte{0xAB});
      --computing_[slot];
    });
  }
}

void OffloadWorld::operate() {
  if (winding_down_) return;
  // (There is nothing to resume without a clear, and not while transfers are paused.)
  if (options_.shared && cache_->manager().shared_is_off() && random_.chance(0.3)) (void)cache_->resume_shared();
  switch (random_.below(10)) {
    case 0:
    case 1:
      // (In prefix order, a block goes with the block before it, whose store is cancelled.)
      if (live_.empty() || options_.exact) return;
      TERRACE_CHECK(offload_->cancel(live_.begin()->first).has_value());
      return;
    case 2: pin(); return;
    case 3:
      if (pins_.empty()) return;
      TERRACE_CHECK(offload_->unpin(pins_.begin()->first).has_value());
      pins_.erase(pins_.begin());
      return;
    case 8: reserve(); return;
    case 9:
      if (!reservations_.empty()) publish(reservations_.begin()->first, options_.exact || random_.chance(0.8));
      return;
    case 4: {
      if (!options_.operators || !random_.chance(0.1)) return;
      ClearOptions how;
      how.keep_storage = random_.chance(0.5);
      // A clear that keeps storage is for new keys.
      if (how.keep_storage) ++generation_;
      cache_->clear(how);
      // From now on only blocks that a store names later are hits. (What the shared store has is one, when it is resumed.)
      ++clears_;
      if (!how.keep_storage && !options_.shared) before_clear_.merge(std::exchange(offered_, {}));
      return;
    }
    case 5:
      if (options_.operators && random_.chance(0.5)) return change_policy();
      if (options_.operators) (void)cache_->resize(Tier::host, Blocks{static_cast<std::uint32_t>(random_.between(1, 24))});
      return;
    case 6:
      if (options_.operators && store_ != nullptr) {
        WriteBackOrder order;
        order.deadline = clock_.now() + std::chrono::milliseconds{random_.below(100)};
        (void)cache_->start_write_back(order);
      }
      return;
    default: compare_hits(); return;
  }
}

void OffloadWorld::change_policy() {
  CacheSettings settings = cache_->settings();
  const bool flat = cache_->manager().config().key_order == KeyOrder::flat;
  settings.policy = random_.chance(0.5) ? EvictionPolicyName::lru : EvictionPolicyName::adaptive;
  const Result<void> changed = cache_->change(settings);
  if (flat && settings.policy != EvictionPolicyName::lru) TERRACE_CHECK(changed.error() == Errc::invalid_argument);
  else TERRACE_CHECK(changed.has_value());
}

void OffloadWorld::compare_hits() {
  const std::vector<Name> names = random_names();
  const std::vector<BlockKey> keys = keys_of(names);
  std::vector<OffloadHit> hits(keys.size());
  const KeyOrder order = order_of(names);
  TERRACE_CHECK(offload_->look_up(keys, hits, {}, order).has_value());
  std::vector<std::uint64_t> bits(1);
  TERRACE_CHECK(offload_->bitmap(keys, bits, {}, order).has_value());
  std::uint32_t leading = 0;
  const bool loads = cache_->manager().link().allows();
  while (loads && leading < hits.size() && hits[leading] != OffloadHit::miss) ++leading;
  TERRACE_CHECK(offload_->leading(keys, {}, order) == leading);
  (void)find(names, leading);
  for (std::size_t i = 0; i < names.size(); ++i) {
    note(static_cast<std::uint64_t>(hits[i]));
    TERRACE_CHECK(((bits[0] >> i & 1U) != 0) == (hits[i] != OffloadHit::miss));
    // (A load may be reading a block that the shared store does not have.)
    const bool hoped = options_.shared && hits[i] == OffloadHit::pending;
    if (hits[i] != OffloadHit::miss && !hoped) TERRACE_CHECK(offered_.contains(names[i]));
    if (!options_.exact) continue;
    // (A block whose result the engine has not seen yet can be a hit already.)
    if (there_.contains(names[i])) TERRACE_CHECK(hits[i] == OffloadHit::host);
    ++seen_.hits_compared;
  }
}

void OffloadWorld::check() {
  cache_->manager().check_invariants();
  transfers_->check_invariants();
  cache_->take_events(kv_events_);
  // (After a restart, no event reports what storage had before.)
  if (seen_.crashes == 0) mirror_.apply(kv_events_);
  if (seen_.crashes == 0 && !kv_events_.empty()) mirror_.compare(cache_->manager());
  if (store_ != nullptr) store_->check_invariants();
  for (std::uint32_t slot = 0; slot < device_slots; ++slot) {
    if (written_[slot] || computing_[slot] > 0) continue;
    const auto now = device_->peek({}, SlotId{slot});
    TERRACE_CHECK(std::memcmp(now.data(), expected_[slot].data(), now.size()) == 0);
  }
  for (const auto& [id, job] : live_) {
    for (std::size_t i = 0; i < job.memory.size(); ++i) {
      if (job.ended[i]) TERRACE_CHECK(std::ranges::count(job.memory[i], std::byte{99}) == block_bytes);
    }
  }
  check_host_slots();
  if (offload_->unconfirmed() > 0) ++seen_.unconfirmed;
  seen_.joined = std::max(seen_.joined, offload_->totals().joined);
}

void OffloadWorld::wind_down() {
  winding_down_ = true;
  while (!reservations_.empty()) publish(reservations_.begin()->first, true);
  for (const Direction direction : {Direction::swap_in, Direction::swap_out}) {
    device_->stuck(direction, false);
    device_->delay_completion(direction, false);
  }
  if (options_.shared) {
    shared_engine_->set_faults({});
    shared_engine_->set_full(false);
    shared_engine_->set_all_nodes(SimulatedSharedEngine::NodeState::well);
  }
  settle();
  for (const auto& [job, pin] : std::exchange(pins_, {})) TERRACE_CHECK(offload_->unpin(job).has_value());
  poll();
  settle();  // what was pinned may be evicted now, and is written before
  check();
  TERRACE_CHECK(offload_->blocks_in_flight() == 0 && offload_->unconfirmed() == 0);
  if (options_.exact) {
    for (int i = 0; i < 50; ++i) compare_hits();
  }
  const OffloadTotals all = offload_->totals();
  TERRACE_CHECK(all.loads == all.loaded_host + all.loaded_storage + all.loaded_shared + all.load_misses + all.load_failures);
  TERRACE_CHECK(all.stores == all.stored + all.already_there + all.store_full + all.store_failures);
}

void OffloadWorld::settle() {
  for (int i = 0; !live_.empty() || offload_->has_pending_work(); ++i) {
    if (i == 20000) {
      std::fprintf(stderr, "%s\n", cache_->manager().describe_pending().c_str());
      TERRACE_CHECK(false);
    }
    device_->run();
    arena_worker_->step();
    if (disk_ && disk_->stalled() > 0) disk_->release_stalled();
    disk_step();
    // (Slowly: on a disk that fails, flushes are due again and again.)
    if (i % (options_.shared ? 10 : 50) == 0) clock_.advance(std::chrono::milliseconds{1});
    poll();
    if (i % 8 == 0) check();
  }
}

}  // namespace terrace::test
