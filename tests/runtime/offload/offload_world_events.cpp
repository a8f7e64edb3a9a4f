// The events of an OffloadWorld: faults of copies, streams and the disk, crashes, its shared store, and slots of the host.

#include "base/check.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "tests/runtime/offload/offload_world.hpp"
#include "tests/simulation/run_worlds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace terrace::test {

void OffloadWorld::plant_fault() {
  if (options_.shared) disturb_shared();
  const Direction direction = random_.chance(0.5) ? Direction::swap_in : Direction::swap_out;
  if (options_.transfers_fail && random_.chance(0.5)) device_->fail_next(direction);
  if (options_.streams_freeze && random_.chance(0.5)) device_->stuck(direction, random_.chance(0.5));
  if (options_.streams_freeze && random_.chance(0.5)) device_->delay_completion(direction, random_.chance(0.5));
  if (!options_.disk_fails) return;
  IoFault fault;
  switch (random_.below(5)) {
    case 0: fault.error = 5 /* EIO */; break;
    case 1: fault.error = 28 /* ENOSPC */; break;
    case 2: fault.bytes_max = random_.below(block_bytes); break;
    case 3: fault.flip = true; break;
    default: fault.stall = true; break;
  }
  disk_->files().inject(disk_->files().next_number() + random_.below(6), fault);
}

void OffloadWorld::disk_step() {
  if (!disk_) return;
  if (disk_->stalled() > 0 && random_.chance(0.2)) disk_->release_stalled();
  if (disk_->queued() > 0) disk_->step(random_.below(disk_->queued()));
}

/// The process ends in the middle of things, and another one starts on what the disk has kept.
void OffloadWorld::crash() {
  std::set<Name> durable;
  // Sometimes everything is made durable before. Then it must be there afterwards.
  if (!options_.disk_fails && !options_.streams_freeze && random_.chance(0.5)) {
    while (!reservations_.empty()) publish(reservations_.begin()->first, true);
    const Result<WriteBackId> job = cache_->start_write_back({});
    TERRACE_CHECK(job.has_value());
    // The cache must have heard of every write and eviction of the store, before the two are compared.
    while (!cache_->write_back(*job)->ended() || cache_->work_left().writes > 0) {
      poll();
      device_->run();
      disk_step();
      clock_.advance(std::chrono::milliseconds{1});
    }
    poll();
    const WriteBackProgress end = *cache_->write_back(*job);
    TERRACE_CHECK(!end.flush_error);
    if (end.state == WriteBackState::done) {
      const std::set<Name> names = offered_;
      for (const Name& name : names) {
        if (name.front() != generation_) continue;
        std::vector<Name> path{name};
        if (options_.order == KeyOrder::prefix) {
          path.clear();
          for (std::size_t length = 2; length <= name.size(); ++length)
            path.emplace_back(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(length));
        }
        if (store_->contains(key_of(name)) && offload_->leading(keys_of(path)) == path.size()) durable.insert(name);
      }
      // Blocks that the write policy has stored since the flush began are not covered.
      if (cache_->durability().durable_blocks != store_->stat().blocks) durable.clear();
    }
  }
  // Until the cache says otherwise, what a clear has removed may come back.
  if (cache_->erasing()) offered_.merge(before_clear_);
  before_clear_.clear();
  const bool power = random_.chance(0.5);
  auto left = std::make_unique<SimulatedIo>(
      disk_->files().left_by(power ? SimulatedFiles::End::power_failure : SimulatedFiles::End::killed));
  ++seen_.crashes;
  shared_before_ = shared_totals();
  live_.clear();
  pins_.clear();
  reservations_.clear();
  offload_.reset();
  cache_.reset();
  shared_.reset();
  store_.reset();
  bare_store_.reset();
  transfers_.reset();
  device_.reset();
  arena_.reset();
  disk_ = std::move(left);
  disk_->files().set_disk_bytes(Bytes{~0ULL});
  there_.clear();
  make();
  for (const Name& name : durable) TERRACE_CHECK(store_->contains(key_of(name)));
  seen_.durable += durable.size();
}

// ---- the shared store of a world: it evicts, loses, delays, damages, stops and dies, and survives the process

OffloadWorldOptions shared_offload_options(std::uint64_t seed) {
  OffloadWorldOptions options = random_offload_options(seed);
  options.shared = true;
  options.shared_fails = seed % 2 == 0;
  options.staging_blocks = std::max(options.staging_blocks, 2U);
  if (!options.exact) return options;
  // A hit in the shared store is never certain.
  options.exact = false;
  options.host_blocks = 4;
  return options;
}

void OffloadWorld::configure_shared(SharedConfig& shared) {
  using std::chrono::milliseconds;
  constexpr std::array policies{WritePolicy::none, WritePolicy::selective, WritePolicy::write_through,
                                WritePolicy::write_through};
  shared.on = true;
  shared.writes = policies[random_.below(policies.size())];
  shared.selective_hits = static_cast<std::uint32_t>(random_.between(1, 2));
  shared.probe_timeout = milliseconds{random_.between(5, 40)};
  shared.miss_lifetime = milliseconds{random_.below(100)};
  shared.read_timeout = milliseconds{random_.between(5, 100)};
  shared.write_timeout = milliseconds{random_.between(5, 200)};
  shared.renew_interval = milliseconds{random_.between(1, 500)};
  shared.rest = milliseconds{random_.between(1, 100)};
  if (random_.chance(0.3)) shared.writing_bytes_max = Bytes{random_.between(1, 20'000)};
  if (random_.chance(0.2)) shared.daily_write_bytes = KiB * random_.between(4, 400);
}

void OffloadWorld::disturb_shared() {
  using NodeState = SimulatedSharedEngine::NodeState;
  if (!options_.shared_fails) {
    if (random_.chance(0.3)) shared_engine_->evict_one();
    return;
  }
  const auto node = static_cast<std::uint32_t>(random_.below(shared_engine_->nodes()));
  switch (random_.below(8)) {
    case 0: return shared_engine_->set_node(node, NodeState::stalled);
    case 1: return shared_engine_->set_node(node, NodeState::dead, SimulatedSharedEngine::Data::lost);
    case 2:
    case 3: return shared_engine_->set_all_nodes(NodeState::well);
    case 4: return shared_engine_->set_full(random_.chance(0.3));
    case 5: return shared_engine_->evict_one();
    case 6: return shared_engine_->set_faults({});
    default: break;
  }
  SimulatedSharedFaults faults;
  faults.draw(random_);
  shared_engine_->set_faults(faults);
}

/// Asks like a scheduler, until there is an answer, and then loads the blocks that were found.
void OffloadWorld::ask() {
  if (winding_down_) return;
  if (asked_.empty()) asked_ = random_names();
  const OffloadFound found = find(asked_, offload_->leading(keys_of(asked_), {}, order_of(asked_)));
  if (found.looking) return;
  found_ = std::exchange(asked_, {});
  found_.resize(found.blocks);
}

OffloadFound OffloadWorld::find(const std::vector<Name>& names, std::uint32_t leading) {
  const std::vector<BlockKey> keys = keys_of(names);
  const bool loads = cache_->manager().link().allows();
  const OffloadFound found = offload_->find(keys, {}, order_of(names));
  note(found.blocks + (found.looking ? 100 : 0));
  if (cache_->manager().link().allows() != loads) return found;  // find() notes the time, at which the link is tried again
  TERRACE_CHECK(found.blocks >= leading && found.blocks <= keys.size());
  if (!options_.shared) TERRACE_CHECK(found == (OffloadFound{leading, false}));
  if (found.looking) TERRACE_CHECK(found.blocks == leading && leading < keys.size());
  seen_.looking += found.looking ? 1 : 0;
  seen_.found_shared += found.blocks - leading;
  return found;
}

SharedTotals OffloadWorld::shared_totals() const {
  SharedTotals all = cache_->shared_totals();
  add_counts(all, shared_before_);
  return all;
}

// ---- the engine as its own mover: it reads host slots that it has pinned, and fills host slots that it has reserved

namespace {

/// A reserved slot has this byte everywhere until the engine fills it. No load may ever bring it.
constexpr std::byte unfilled{0x55};

}  // namespace

void OffloadWorld::pin() {
  const OffloadJobId id{random_.chance(0.5) || live_.empty() ? next_id_ : live_.begin()->first.value()};
  const std::vector<Name> names = random_names();
  std::vector<SlotId> slots(names.size());
  if (random_.chance(0.2)) {
    TERRACE_CHECK(offload_->touch(keys_of(names), {}, order_of(names)).has_value());
    TERRACE_CHECK(offload_->end_request(keys_of(names), names.size(), {}, order_of(names)).has_value());
    const Duration in = random_.chance(0.5) ? no_use : std::chrono::milliseconds{random_.below(200)};
    TERRACE_CHECK(offload_->expect_use(keys_of(names), in, {}, order_of(names)).has_value());
  }
  // Slots of the last blocks, or of all.
  const std::size_t first = order_of(names) == KeyOrder::prefix ? random_.below(names.size() + 1) : 0;
  const auto wanted = std::span{slots}.subspan(first);
  std::ranges::fill(slots, no_host_slot);
  const Result<std::uint32_t> pinned = offload_->pin(id, keys_of(names), {}, wanted, order_of(names));
  if (!pinned) return;
  HostCopies& copies = pins_[id];
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (slots[i] != no_host_slot) copies.emplace_back(slots[i], names[i]);
  }
  TERRACE_CHECK(copies.size() <= *pinned);
  seen_.pinned_slots += copies.size();
}

std::vector<OffloadWorld::Name> OffloadWorld::random_prefix(std::uint64_t count) {
  std::vector<Name> names;
  Name name{generation_};
  for (std::uint64_t i = 0; i < count; ++i) {
    name.push_back(static_cast<std::uint32_t>(i == 0 ? random_.below(3) : random_.chance(0.7) ? 0 : random_.below(2)));
    names.push_back(name);
  }
  return names;
}

/// The prefix whose companions the blocks of a store are; none for most stores.
std::vector<BlockKey> OffloadWorld::random_owners(const std::vector<Name>& names) {
  if (options_.order == KeyOrder::flat || order_of(names) == KeyOrder::prefix || random_.chance(0.3)) return {};
  ++seen_.companions;
  return keys_of(random_prefix(random_.between(names.size(), 7)));
}

void OffloadWorld::reserve() {
  const std::vector<Name> names = random_names();
  const std::vector<BlockKey> keys = keys_of(names);
  const bool duplicate = !reservations_.empty() && random_.chance(0.1);
  OffloadOrder order;
  order.id = duplicate ? reservations_.begin()->first : OffloadJobId{next_id_++};
  order.keys = keys;
  order.key_order = order_of(names);
  const std::vector<BlockKey> beside = random_owners(names);
  order.beside = beside;
  if (order.key_order == KeyOrder::prefix && options_.order == KeyOrder::prefix && random_.chance(0.3))
    order.first = static_cast<std::uint32_t>(random_.below(keys.size()));
  if (random_.chance(0.3)) order.use = offload_->new_use() - random_.below(2);
  std::vector<SlotId> slots(keys.size() - order.first);
  const Result<std::uint32_t> reserved = offload_->reserve(order, slots);
  if (!reserved) {
    ++seen_.refused;
    if (duplicate) TERRACE_CHECK(reserved.error() == Errc::duplicate_request || reserved.error() == Errc::paused);
    else TERRACE_CHECK(reserved.error() == Errc::no_room || reserved.error() == Errc::paused);
    return;
  }
  TERRACE_CHECK(!duplicate);
  HostCopies copies;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] == no_host_slot) continue;
    copies.emplace_back(slots[i], names[order.first + i]);
    offered_.insert(names[order.first + i]);
    std::ranges::fill(arena_->block(slots[i]), unfilled);
  }
  TERRACE_CHECK(copies.size() == *reserved);
  note(*reserved);
  seen_.reserved += copies.size();
  if (!copies.empty()) reservations_.emplace(order.id, std::move(copies));
}

void OffloadWorld::publish(OffloadJobId id, bool filled) {
  check_host_slots();
  const HostCopies& copies = reservations_.at(id);
  for (const auto& [slot, name] : copies) {
    if (filled) std::ranges::copy(content(name), arena_->block(slot).begin());
    if (filled && options_.exact) there_.insert(name);
    seen_.given_back += filled ? 0 : 1;
  }
  TERRACE_CHECK(offload_->publish(id, filled).has_value());
  reservations_.erase(id);
}

void OffloadWorld::check_host_slots() {
  for (const auto& [id, copies] : reservations_) {
    for (const auto& [slot, name] : copies) {
      TERRACE_CHECK(std::ranges::count(arena_->block(slot), unfilled) == block_bytes);
    }
  }
  for (const auto& [id, copies] : pins_) {
    for (const auto& [slot, name] : copies) {
      TERRACE_CHECK(std::memcmp(arena_->block(slot).data(), content(name).data(), block_bytes) == 0);
    }
  }
}

}  // namespace terrace::test
