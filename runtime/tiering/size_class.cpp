#include "runtime/tiering/size_class.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace terrace {
namespace {

ManagerConfig with_sizes(const ManagerConfig& config, const PoolSizes& sizes) {
  ManagerConfig of_this = config;
  static_cast<PoolSizes&>(of_this) = sizes;
  of_this.other_pools.clear();
  return of_this;
}

}  // namespace

SizeClass::SizeClass(PoolId number, const ManagerConfig& all, const PoolSizes& sizes, ManagerStats& stats, KvEvents& events,
                     WriteBudget& budget)
    : id{number},
      config{with_sizes(all, sizes)},
      residency{config, events},
      departures{config, residency, stats},
      swap_outs{config, residency, departures, actions},
      flushes{actions, config.storage ? config.flush_interval : Duration{}},
      persists{residency, departures, swap_outs, actions, stats, budget, flushes},
      back_ups{config, residency, persists, stats},
      host_room{config, residency, departures, swap_outs, persists, stats},
      device_room{config, residency, departures, host_room, persists, stats},
      resizing{config, residency, persists, host_room, device_room},
      room_ahead{config, residency, device_room, host_room, stats},
      loads{config, residency, departures, host_room, actions, stats},
      restoring{residency, flushes},
      stats_{stats} {}

// ---- paths of requests ---------------------------------------------------------------------------------------------------

Found SizeClass::find(std::span<const BlockKey> keys, Tier lowest, std::vector<Tier>& tiers) const {
  const PrefixTree& tree = residency.tree();
  Found found;
  const Path path = tree.find(keys);
  tiers.clear();
  const auto read = [&](Tier tier) -> std::vector<Copy>& {
    auto& row = copies_[index(tier)];
    row.resize(path.length);
    tree.read(path, tier, 0, row);
    return row;
  };
  // Most of what is looked up often is all on the device: as far as that goes, nothing else is read.
  const std::vector<Copy>& on_device = read(Tier::device);
  // The rule, in a loop that the compiler makes vectors of: all ready or busy.
  std::uint32_t others = 0;
  for (const Copy& copy : on_device) {  // by reference, or it is no vector
    others += static_cast<std::uint32_t>(copy.state()) - static_cast<std::uint32_t>(CopyState::ready) > 1U ? 1U : 0U;
  }
  static_assert(static_cast<int>(CopyState::busy) == static_cast<int>(CopyState::ready) + 1);
  std::uint32_t i = others == 0 ? path.length : 0;
  while (i < path.length && on_device[i].usable()) found.leaving |= on_device[i++].state() == CopyState::leaving;
  tiers.assign(i, Tier::device);
  found.on_device = i;
  found.lower = tree.resident(Tier::host) + tree.resident(Tier::storage) > 0;
  if (found.lower) {
    const std::vector<Copy>& in_host = read(Tier::host);
    const std::vector<Copy>& in_storage = read(Tier::storage);
    for (; i < path.length; ++i) {
      const Copy copy = on_device[i];
      if (copy.usable()) {
        tiers.push_back(Tier::device);
        ++found.on_device;
        found.leaving |= copy.state() == CopyState::leaving;
      } else if (lowest == Tier::device) {
        break;
      } else if (copy.present()) {
        const Tier source = loads.source_of({path.node, i});
        if (source > lowest) break;
        tiers.push_back(source);
        ++found.filling;
      } else if (in_host[i].usable()) {
        tiers.push_back(Tier::host);
      } else if (in_storage[i].usable() && lowest == Tier::storage) {
        tiers.push_back(Tier::storage);
      } else {
        break;
      }
    }
  }
  found.path = i == path.length ? path : tree.first(path, i);
  return found;
}

void SizeClass::rescue(const Found& found) {
  const Path path = found.path;
  if (found.leaving) {
    for (std::uint32_t i = 0; i < path.length; ++i) {
      if (residency.rescue({path.node, i}, Tier::device)) ++stats_.rescued;
    }
  }
  if (found.lower) {
    std::optional<BlockRef> deepest_stored;
    auto& in_storage = copies_[index(Tier::storage)];
    in_storage.resize(path.length);
    residency.tree().read(path, Tier::storage, 0, in_storage);
    for (std::uint32_t i = 0; i < path.length; ++i) {
      if (in_storage[i].usable()) deepest_stored = BlockRef{path.node, i};
    }
    if (deepest_stored) actions.touches.push_back(residency.tree().key(*deepest_stored));
  }
  back_ups.on_hits(path);
}

void SizeClass::copy_down(std::uint32_t from, Path path) {
  if (path.length == from) return;
  if (config.relation == Relation::inclusive && config.host_blocks > 0) {
    for (std::uint32_t i = from; i < path.length; ++i) {
      const BlockRef block = residency.tree().at(path, i);
      if (residency.copy(block, Tier::host).present()) continue;
      // No room in the host tier: then the block has no copy there, as if the host had given it up again.
      (void)host_room.swap_out(block, SwapOutPurpose::duplicate);
    }
  }
  if (!config.storage || config.write_policy != WritePolicy::write_through) return;
  if (persists.full()) {
    stats_.persist_skipped += path.length - from;
  } else {
    (void)persists.begin(path.last());
  }
}

// ---- what happened elsewhere ---------------------------------------------------------------------------------------------

bool SizeClass::on_transfer(TransferEvent& event) {
  if (!swap_outs.on_event(event) && !loads.on_event(event)) return false;
  actions.spare_runs.give(std::move(event.runs));
  return true;
}

void SizeClass::on_store(const StoreEvent& event) {
  switch (event.kind) {
    case StoreEvent::Kind::read: loads.on_read(event.token, event.error); break;
    case StoreEvent::Kind::written: persists.on_written(static_cast<std::uint32_t>(event.token), event.error); break;
    case StoreEvent::Kind::removed:
    case StoreEvent::Kind::evicted: {
      flushes.on_gone();
      const auto block = residency.stored_block(static_cast<std::uint32_t>(event.write_token));
      if (!block || !residency.stored(*block) || residency.tree().key(*block) != event.key) break;
      ++stats_.stored_evicted;
      persists.on_gone(*block);
      break;
    }
    case StoreEvent::Kind::flushed: flushes.on_flushed(event.error); break;
  }
}

bool SizeClass::pump() {
  bool changed = resizing.pump();  // first, so that nobody else need go for those that have to
  changed |= host_room.pump();
  changed |= device_room.pump();
  changed |= loads.pump();  // before what nobody waits for takes its staging
  changed |= persists.pump();
  changed |= sweep_hidden();
  changed |= room_ahead.pump();
  return changed;
}

void SizeClass::flush(std::uint64_t& last_plan) {
  swap_outs.flush(last_plan, id);
  swap_outs.raise_ahead(device_room.missing(swap_outs.ahead_blocks()));
  loads.flush(last_plan, id);
}

// ---- as a whole ----------------------------------------------------------------------------------------------------------

void SizeClass::clear(bool storage) {
  persists.doom_all();
  PrefixTree& tree = residency.tree();
  tree.hide_all();
  residency.sample().forget();

  gone_.clear();
  tree.for_each_hidden([&](BlockRef block) {
    if (residency.copy(block, Tier::storage).present()) gone_.emplace_back(block, Tier::storage);
  });
  for (auto at = gone_.rbegin(); at != gone_.rend(); ++at) {
    // What is being written is removed when that ends; else its key would bring back what was cleared.
    if (storage) actions.removes.push_back(tree.key(at->first));
    if (residency.stored(at->first)) residency.forget_stored(at->first);
  }
}

/// What was hidden goes as soon as nobody holds or reads it. What a transfer brings there later goes with the next call. True
/// where anything went.
bool SizeClass::sweep_hidden() {
  PrefixTree& tree = residency.tree();
  if (!tree.any_hidden()) return false;
  gone_.clear();
  tree.for_each_hidden([&](BlockRef block) {
    if (residency.stored(block)) gone_.emplace_back(block, Tier::storage);
    if (tree.pinned(block)) return;
    for (const Tier tier : {Tier::device, Tier::host}) {
      if (residency.copy(block, tier).state() == CopyState::ready) gone_.emplace_back(block, tier);
    }
  });
  // Children first; each has a copy until its turn comes, and so is still in the tree.
  for (auto at = gone_.rbegin(); at != gone_.rend(); ++at) {
    if (at->second == Tier::storage) {
      residency.forget_stored(at->first);
    } else {
      residency.drop(at->first, at->second);
      ++stats_.cleared;
    }
  }
  return !gone_.empty();
}

std::uint32_t SizeClass::drop(Path path) {
  PrefixTree& tree = residency.tree();
  const std::uint32_t from = tree.unshared_from(path);
  std::uint32_t freed = 0;
  tree.pin(path);  // so that it stays a path until all is done
  for (std::uint32_t depth = path.length; depth-- > from;) {
    const BlockRef block{path.node, depth};
    // What stands before a copy that a transfer reads stays with it.
    const auto settled = [&](Tier tier) {
      const CopyState state = residency.copy(block, tier).state();
      return state == CopyState::absent || state == CopyState::ready;
    };
    if (!settled(Tier::device) || !settled(Tier::host)) break;
    for (const Tier tier : {Tier::device, Tier::host}) {
      if (residency.copy(block, tier).state() != CopyState::ready) continue;
      residency.drop(block, tier);
      ++stats_.dropped_by_call;
      if (tier == Tier::device) ++freed;
    }
  }
  tree.unpin(path);
  return freed;
}

bool SizeClass::in_use(BlockRef block) const {
  const auto moves = [&](Tier tier) {
    if (tier == Tier::storage && residency.wished(block)) return false;  // a wish holds nothing
    const CopyState state = residency.copy(block, tier).state();
    return state != CopyState::absent && state != CopyState::ready;
  };
  return residency.tree().pinned(block) || std::ranges::any_of(all_tiers, moves);
}

EvictedBlocks SizeClass::evict(std::span<const SlotId> slots) {
  PrefixTree& tree = residency.tree();
  std::vector<SlotId> wanted{slots.begin(), slots.end()};
  std::ranges::sort(wanted);
  std::vector<BlockRef> named;
  tree.for_each([&](BlockRef block) {
    const Copy copy = residency.copy(block, Tier::device);
    if (copy.present() && std::ranges::binary_search(wanted, copy.slot()) && !tree.hidden(block)) named.push_back(block);
  });
  EvictedBlocks result;
  std::vector<BlockRef> going;
  // Those at the end first: who follows a named block goes before it, and each is there until its turn comes.
  for (auto block = named.rbegin(); block != named.rend(); ++block) {
    going.assign(1, *block);
    tree.collect_below(*block, going);
    if (std::ranges::any_of(going, [&](BlockRef each) { return in_use(each); })) {
      result.in_use.push_back(residency.copy(*block, Tier::device).slot());
      continue;
    }
    if (residency.stored(*block)) actions.removes.push_back(tree.key(*block));
    for (auto each = going.rbegin(); each != going.rend(); ++each) {
      const Path path{each->node, each->depth + 1};
      tree.pin(path);  // so that it stays until it has lost all its copies
      for (const Tier tier : {Tier::device, Tier::host}) {
        if (!residency.copy(*each, tier).present()) continue;
        residency.drop(*each, tier);
        ++stats_.dropped_by_call;
      }
      if (residency.stored(*each)) residency.forget_stored(*each);
      tree.unpin(path);
    }
    result.evicted += static_cast<std::uint32_t>(going.size());
  }
  return result;
}

std::optional<BlockPlace> SizeClass::find_block(const BlockKey& key) const {
  const PrefixTree& tree = residency.tree();
  std::optional<BlockPlace> found;
  tree.for_each_node([&](Run run) {
    const std::span<const BlockKey> keys = tree.keys(run);
    const auto at = std::ranges::find(keys, key);
    if (found || at == keys.end()) return;
    const BlockRef block{run.node, run.begin + static_cast<std::uint32_t>(at - keys.begin())};
    if (tree.hidden(block)) return;
    BlockPlace place;
    if (residency.usable(block, Tier::device)) place.device = residency.copy(block, Tier::device).slot();
    if (residency.usable(block, Tier::host)) place.host = residency.copy(block, Tier::host).slot();
    place.storage = residency.stored(block);
    place.in_use = in_use(block);
    if (place.device || place.host || place.storage) found = place;
  });
  return found;
}

Result<void> SizeClass::resize(Tier tier, std::uint32_t blocks, std::span<const SlotSpan> closing) {
  const Result<void> resized = resizing.resize(tier, blocks, closing);
  if (resized) (tier == Tier::device ? config.device_blocks : config.host_blocks) = blocks;
  return resized;
}

// ---- what to know --------------------------------------------------------------------------------------------------------

Usage SizeClass::usage(Tier tier) const {
  TERRACE_CHECK(tier != Tier::storage);
  Usage usage;
  usage.evictable = residency.tree().unpinned(tier);
  if (tier == Tier::device) {
    const SlotPool& device = residency.pool(Tier::device);
    usage.blocks = device.capacity() - device.count(SlotState::null);
    usage.free = device.count(SlotState::free);
    usage.promised = device_room.promised();
    // (What is in a slot that is to be retired makes no room.)
    if (device.retiring(SlotState::ready) > 0) usage.evictable -= residency.retiring_unpinned();
  } else {
    usage.blocks = residency.host_blocks();
    usage.free = residency.host_free();
  }
  return usage;
}

bool SizeClass::idle() const {
  return swap_outs.idle() && persists.idle() && host_room.idle() && device_room.idle() && loads.idle() &&
         !flushes.under_way();
}

Durability SizeClass::durability() const {
  const PrefixTree& tree = residency.tree();
  const std::uint64_t stored = tree.resident(Tier::storage) - persists.in_flight();
  Durability now;
  now.durable_blocks = stored - std::min(stored, flushes.not_covered());
  now.lost_blocks = tree.blocks() - now.durable_blocks;
  now.durable = persists.block_bytes() * now.durable_blocks;
  now.lost = persists.block_bytes() * now.lost_blocks;
  return now;
}

std::string SizeClass::describe_pending() const {
  return fmt::format("swap-outs {}, loads {}, persists {}, flush {}, waiting for host room {}, for device room {}",
                     swap_outs.idle() ? "idle" : "under way", loads.idle() ? "idle" : "under way", persists.in_flight(),
                     flushes.under_way() ? "under way" : "none", host_room.idle() ? "nobody" : "some", device_room.promised());
}

std::string SizeClass::describe_tree(std::size_t lines_max) const {
  const PrefixTree& tree = residency.tree();
  std::string text = fmt::format("{} blocks in {} nodes; device {}, host {}, storage {}\n", tree.blocks(), tree.node_count(),
                                 tree.resident(Tier::device), tree.resident(Tier::host), tree.resident(Tier::storage));
  std::size_t lines = 0;
  tree.for_each_node([&](Run run) {
    if (lines++ >= lines_max) return;
    const auto here = [&](Tier tier) {
      return std::ranges::count_if(tree.copies(run, tier), [](Copy copy) { return copy.present(); });
    };
    const BlockRef last{run.node, run.end - 1};
    text += fmt::format("  blocks {} to {}, from {:.12}: device {}, host {}, storage {}; last use {}{}{}\n", run.begin,
                        run.end - 1, to_hex(tree.key({run.node, run.begin})), here(Tier::device), here(Tier::host),
                        here(Tier::storage), tree.last_use(last), tree.pinned({run.node, run.begin}) ? ", in use" : "",
                        tree.hidden(last) ? ", cleared" : "");
  });
  if (lines > lines_max) text += fmt::format("  and {} nodes more\n", lines - lines_max);
  return text;
}

void SizeClass::check_invariants(std::uint64_t held, bool at_rest) const {
  residency.check_invariants();
  const SlotPool& device = residency.pool(Tier::device);
  const SlotPool& arena = residency.pool(Tier::host);
  TERRACE_CHECK(device.ledger().balanced());
  TERRACE_CHECK(arena.ledger().balanced());
  TERRACE_CHECK(held == device.count(SlotState::held));
  if (!at_rest || !idle()) return;
  for (const Tier tier : {Tier::device, Tier::host}) {
    TERRACE_CHECK(residency.tree().unpinned(tier) == residency.tree().resident(tier));
    TERRACE_CHECK(residency.pool(tier).leaving_total() == 0);
  }
  TERRACE_CHECK(readers() == 0);
  TERRACE_CHECK(arena.count(SlotState::held) == 0);
}

}  // namespace terrace
