#include "runtime/tiering/tiered_pool.hpp"

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

TieredPool::TieredPool(PoolId number, const ManagerConfig& all, const PoolSizes& sizes, ManagerStats& stats, KvEvents& events,
                       WriteBudget& budget)
    : id{number},
      config{with_sizes(all, sizes)},
      residency{config, events},
      deferred_eviction{config, residency, stats},
      swap_outs{config, residency, deferred_eviction, actions},
      flushes{actions, config.storage ? config.flush_interval : Duration{}},
      storage_writer{residency, deferred_eviction, swap_outs, actions, stats, budget, flushes},
      hit_count_writes{config, residency, storage_writer, stats},
      host_slots{config, residency, deferred_eviction, swap_outs, storage_writer, stats},
      device_slots{config, residency, deferred_eviction, host_slots, storage_writer, stats},
      resizer{config, residency, storage_writer, host_slots, device_slots},
      reclaimer{config, residency, device_slots, host_slots, stats},
      loads{config, residency, deferred_eviction, host_slots, actions, stats},
      catalog_recovery{residency, flushes},
      stats_{stats} {}

// ---- prefixes of requests ---------------------------------------------------------------------------------------------------

Found TieredPool::find(std::span<const BlockKey> keys, Tier lowest, std::vector<Tier>& tiers) const {
  const PrefixTree& tree = residency.tree();
  Found found;
  const Prefix prefix = tree.find(keys);
  tiers.clear();
  const auto read = [&](Tier tier) -> std::vector<Copy>& {
    auto& row = copies_[index(tier)];
    row.resize(prefix.length);
    tree.read(prefix, tier, 0, row);
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
  std::uint32_t i = others == 0 ? prefix.length : 0;
  while (i < prefix.length && on_device[i].usable()) found.evicting |= on_device[i++].state() == CopyState::evicting;
  tiers.assign(i, Tier::device);
  found.on_device = i;
  found.lower = tree.resident(Tier::host) + tree.resident(Tier::storage) > 0;
  if (found.lower) {
    const std::vector<Copy>& in_host = read(Tier::host);
    const std::vector<Copy>& in_storage = read(Tier::storage);
    for (; i < prefix.length; ++i) {
      const Copy copy = on_device[i];
      if (copy.usable()) {
        tiers.push_back(Tier::device);
        ++found.on_device;
        found.evicting |= copy.state() == CopyState::evicting;
      } else if (lowest == Tier::device) {
        break;
      } else if (copy.present()) {
        const Tier source = loads.source_of({prefix.node, i});
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
  found.prefix = i == prefix.length ? prefix : tree.first(prefix, i);
  return found;
}

void TieredPool::cancel_eviction(const Found& found) {
  const Prefix prefix = found.prefix;
  if (found.evicting) {
    for (std::uint32_t i = 0; i < prefix.length; ++i) {
      if (residency.cancel_eviction({prefix.node, i}, Tier::device)) ++stats_.evictions_cancelled;
    }
  }
  if (found.lower) {
    std::optional<BlockRef> deepest_stored;
    auto& in_storage = copies_[index(Tier::storage)];
    in_storage.resize(prefix.length);
    residency.tree().read(prefix, Tier::storage, 0, in_storage);
    for (std::uint32_t i = 0; i < prefix.length; ++i) {
      if (in_storage[i].usable()) deepest_stored = BlockRef{prefix.node, i};
    }
    if (deepest_stored) actions.touches.push_back(residency.tree().key(*deepest_stored));
  }
  hit_count_writes.on_hits(prefix);
}

void TieredPool::copy_down(std::uint32_t from, Prefix prefix) {
  if (prefix.length == from) return;
  if (config.inclusion == InclusionPolicy::inclusive && config.host_blocks > 0) {
    for (std::uint32_t i = from; i < prefix.length; ++i) {
      const BlockRef block = residency.tree().at(prefix, i);
      if (residency.copy(block, Tier::host).present()) continue;
      // No room in the host tier: then the block has no copy there, as if the host had given it up again.
      (void)host_slots.swap_out(block, SwapOutPurpose::duplicate);
    }
  }
  if (!config.storage || config.write_policy != WritePolicy::write_through) return;
  if (storage_writer.full()) {
    stats_.store_skipped += prefix.length - from;
  } else {
    (void)storage_writer.begin(prefix.last());
  }
}

// ---- what happened elsewhere ---------------------------------------------------------------------------------------------

bool TieredPool::on_transfer(TransferEvent& event) {
  if (!swap_outs.on_event(event) && !loads.on_event(event)) return false;
  swap_outs.take_staged(staged_);
  for (const SwapOuts::Staged& staged : staged_) storage_writer.on_staged(staged);
  actions.spare_runs.give(std::move(event.runs));
  return true;
}

void TieredPool::on_store(const StoreEvent& event) {
  switch (event.kind) {
    case StoreEvent::Kind::read: loads.on_read(event.token, event.error); break;
    case StoreEvent::Kind::written: storage_writer.on_written(static_cast<std::uint32_t>(event.token), event.error); break;
    case StoreEvent::Kind::removed:
    case StoreEvent::Kind::evicted: {
      flushes.on_gone();
      const auto block = residency.stored_block(static_cast<std::uint32_t>(event.write_token));
      if (!block || !residency.stored(*block) || residency.tree().key(*block) != event.key) break;
      ++stats_.stored_evicted;
      storage_writer.on_gone(*block);
      break;
    }
    case StoreEvent::Kind::flushed: flushes.on_flushed(event.error); break;
  }
}

bool TieredPool::pump() {
  bool changed = resizer.pump();  // first, so that nobody else need go for those that have to
  changed |= host_slots.pump();
  changed |= device_slots.pump();
  if (has_events()) return true;
  changed |= loads.pump();  // before what nobody waits for takes its staging
  if (has_events()) return true;
  changed |= storage_writer.pump();
  changed |= sweep_hidden();
  changed |= reclaimer.pump();
  return changed;
}

void TieredPool::flush(std::uint64_t& last_transfer) {
  swap_outs.flush(last_transfer, id);
  swap_outs.raise_ahead(device_slots.missing(swap_outs.ahead_blocks()));
  loads.flush(last_transfer, id);
}

// ---- as a whole ----------------------------------------------------------------------------------------------------------

void TieredPool::clear(bool storage) {
  storage_writer.stop_all();
  const PrefixTree& tree = residency.tree();
  residency.hide_all();

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
bool TieredPool::sweep_hidden() {
  const PrefixTree& tree = residency.tree();
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

std::uint32_t TieredPool::drop(Prefix prefix) {
  const std::uint32_t from = residency.tree().unshared_from(prefix);
  std::uint32_t freed = 0;
  residency.pin(prefix);  // so that it stays a prefix until all is done
  for (std::uint32_t depth = prefix.length; depth-- > from;) {
    const BlockRef block{prefix.node, depth};
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
  residency.unpin(prefix);
  return freed;
}

bool TieredPool::in_use(BlockRef block) const {
  const auto moves = [&](Tier tier) {
    if (tier == Tier::storage && residency.wished(block)) return false;  // a wish holds nothing
    const CopyState state = residency.copy(block, tier).state();
    return state != CopyState::absent && state != CopyState::ready;
  };
  return residency.tree().pinned(block) || std::ranges::any_of(all_tiers, moves);
}

EvictedBlocks TieredPool::evict(std::span<const SlotId> slots) {
  const PrefixTree& tree = residency.tree();
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
      const Prefix prefix{each->node, each->depth + 1};
      residency.pin(prefix);  // so that it stays until it has lost all its copies
      for (const Tier tier : {Tier::device, Tier::host}) {
        if (!residency.copy(*each, tier).present()) continue;
        residency.drop(*each, tier);
        ++stats_.dropped_by_call;
      }
      if (residency.stored(*each)) residency.forget_stored(*each);
      residency.unpin(prefix);
    }
    result.evicted += static_cast<std::uint32_t>(going.size());
  }
  return result;
}

std::optional<BlockPlace> TieredPool::find_block(const BlockKey& key) const {
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

Result<void> TieredPool::resize(Tier tier, std::uint32_t blocks, std::span<const SlotSpan> closing) {
  const Result<void> resized = resizer.resize(tier, blocks, closing);
  if (resized) (tier == Tier::device ? config.device_blocks : config.host_blocks) = blocks;
  return resized;
}

// ---- what to know --------------------------------------------------------------------------------------------------------

Usage TieredPool::usage(Tier tier) const {
  TERRACE_CHECK(tier != Tier::storage);
  Usage usage;
  usage.evictable = residency.tree().unpinned(tier);
  if (tier == Tier::device) {
    const SlotAllocator& device = residency.pool(Tier::device);
    usage.blocks = device.capacity() - device.count(SlotState::null);
    usage.free = device.count(SlotState::free);
    usage.promised = device_slots.promised();
    // (What is in a slot that is to be retired makes no room.)
    if (device.retiring(SlotState::ready) > 0) usage.evictable -= residency.retiring_unpinned();
  } else {
    usage.blocks = residency.host_blocks();
    usage.free = residency.host_free();
  }
  return usage;
}

bool TieredPool::idle() const {
  return swap_outs.idle() && storage_writer.idle() && host_slots.idle() && device_slots.idle() && loads.idle() &&
         !flushes.under_way();
}

Durability TieredPool::durability() const {
  const PrefixTree& tree = residency.tree();
  const std::uint64_t stored = tree.resident(Tier::storage) - storage_writer.in_flight();
  Durability now;
  now.durable_blocks = stored - std::min(stored, flushes.not_covered());
  now.lost_blocks = tree.blocks() - now.durable_blocks;
  now.durable = storage_writer.block_bytes() * now.durable_blocks;
  now.lost = storage_writer.block_bytes() * now.lost_blocks;
  return now;
}

std::string TieredPool::describe_pending() const {
  return fmt::format("swap-outs {}, loads {}, persists {}, flush {}, waiting for host room {}, for device room {}",
                     swap_outs.idle() ? "idle" : "under way", loads.idle() ? "idle" : "under way", storage_writer.in_flight(),
                     flushes.under_way() ? "under way" : "none", host_slots.idle() ? "nobody" : "some", device_slots.promised());
}

std::string TieredPool::describe_tree(std::size_t lines_max) const {
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

void TieredPool::check_invariants(std::uint64_t held, bool at_rest) const {
  residency.check_invariants();
  const SlotAllocator& device = residency.pool(Tier::device);
  const SlotAllocator& arena = residency.pool(Tier::host);
  TERRACE_CHECK(device.ledger().balanced());
  TERRACE_CHECK(arena.ledger().balanced());
  TERRACE_CHECK(held == device.count(SlotState::held));
  if (!at_rest || !idle()) return;
  for (const Tier tier : {Tier::device, Tier::host}) {
    TERRACE_CHECK(residency.tree().unpinned(tier) == residency.tree().resident(tier));
    TERRACE_CHECK(residency.pool(tier).evicting_total() == 0);
  }
  TERRACE_CHECK(readers() == 0);
  TERRACE_CHECK(arena.count(SlotState::held) == 0);
}

}  // namespace terrace
