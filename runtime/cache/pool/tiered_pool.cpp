#include "runtime/cache/pool/tiered_pool.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace terrace {

TieredPool::TieredPool(PoolId number, const ManagerConfig& config, ManagerStats& stats, SharedTotals& shared, KvEvents& events,
                       WriteBudget& budget, OffloadTotals& offload_totals, SharedWriteLimits& shared_writes, LinkGuard& link,
                       const TimePoint& now)
    : id_{number},
      config_{config},
      sizes_{config.pool(number)},
      residency_{config_, sizes_, events},
      deferred_eviction_{config_, residency_, stats},
      part_{config_, residency_, deferred_eviction_, actions_, stats},
      swap_outs_{part_, link},
      flushes_{actions_, config_.storage ? config_.flush_interval : Duration{}},
      storage_writer_{part_, sizes_, swap_outs_, budget, flushes_},
      hit_count_writes_{part_, sizes_, storage_writer_},
      host_slots_{part_, swap_outs_, storage_writer_},
      device_slots_{part_, host_slots_, storage_writer_},
      resizer_{sizes_, residency_, storage_writer_, host_slots_, device_slots_},
      reclaimer_{part_, device_slots_, host_slots_},
      stored_reads_{part_, sizes_, host_slots_, shared},
      loads_{part_, stored_reads_, now},
      named_copies_{part_, sizes_, stored_reads_, host_slots_, storage_writer_, shared_writer_, offload_totals},
      catalog_recovery_{residency_, flushes_},
      stats_{stats},
      link_{link} {
  if (config_.shared.on) shared_writer_.emplace(part_, sizes_, swap_outs_, shared, events, shared_writes);
}

// ---- prefixes of requests ---------------------------------------------------------------------------------------------------

Found TieredPool::find(std::span<const BlockKey> keys, Source farthest, std::vector<Source>& sources) const {
  const PrefixTree& tree = residency_.tree();
  Found found;
  const Prefix prefix = tree.find(keys);
  sources.clear();
  const auto read = [&](Tier tier) -> std::vector<Copy>& {
    auto& row = copies_[index(tier)];
    row.resize(prefix.length);
    tree.read(prefix, tier, 0, row);
    return row;
  };
  // A prefix that is looked up often is usually all on the device. Then the other tiers are not read.
  std::uint32_t i = tree.all_usable(prefix, Tier::device) ? prefix.length : 0;
  const std::vector<Copy>& on_device = i == prefix.length ? copies_[index(Tier::device)] : read(Tier::device);
  while (i < prefix.length && on_device[i].usable()) found.evicting |= on_device[i++].state() == CopyState::evicting;
  sources.assign(i, Source::device);
  found.on_device = i;
  const bool any_below = tree.resident(Tier::host) + tree.resident(Tier::storage) > 0;
  if (i < prefix.length && (any_below || loads_.any())) {
    const std::vector<Copy>& in_host = read(Tier::host);
    const std::vector<Copy>& in_storage = read(Tier::storage);
    for (; i < prefix.length; ++i) {
      // Sources in the order of their cost: device, a load under way, host, storage. The prefix ends at the first block that has
      // none.
      const Copy copy = on_device[i];
      if (copy.usable()) {
        sources.push_back(Source::device);
        ++found.on_device;
        found.evicting |= copy.state() == CopyState::evicting;
      } else if (farthest == Source::device) {
        break;
      } else if (copy.present()) {
        const Source source = loads_.source_of({prefix.node, i});
        if (source > farthest) break;
        sources.push_back(source);
        ++found.filling;
      } else if (in_host[i].usable()) {
        sources.push_back(Source::host);
      } else if (in_storage[i].usable() && farthest >= Source::storage) {
        sources.push_back(Source::storage);
      } else {
        break;
      }
    }
  }
  found.prefix = i == prefix.length ? prefix : tree.first(prefix, i);
  return found;
}

void TieredPool::hit(const Found& found, std::uint64_t stamp) {
  residency_.touch(found.prefix, stamp);
  if (found.evicting) cancel_evictions(found.prefix);
  tell_storage_of_hit(found);
  if (shared_writer_) shared_writer_->on_hits(found.prefix);
}

void TieredPool::cancel_evictions(Prefix prefix) {
  for (std::uint32_t i = 0; i < prefix.length; ++i) {
    if (residency_.cancel_eviction({prefix.node, i}, Tier::device)) ++stats_.evictions_cancelled;
  }
}

/// Lets the store renew the deepest stored block of the prefix, and with it the blocks before it. Lets the write policy count the
/// hit.
void TieredPool::tell_storage_of_hit(const Found& found) {
  const Prefix prefix = found.prefix;
  if (residency_.tree().resident(Tier::storage) > 0) {
    auto& in_storage = copies_[index(Tier::storage)];
    in_storage.resize(prefix.length);
    residency_.tree().read(prefix, Tier::storage, 0, in_storage);
    std::uint32_t stored = prefix.length;
    while (stored > 0 && !in_storage[stored - 1].usable()) --stored;
    if (stored > 0) actions_.touches.push_back(residency_.tree().key({prefix.node, stored - 1}));
  }
  hit_count_writes_.on_hits(prefix);
}

Prefix TieredPool::commit(const ComputedBlocks& computed, std::vector<Duplicate>& duplicates) {
  const std::uint32_t from = computed.held.length;
  const Prefix whole = residency_.extend_pinned(computed.held, computed.keys, computed.tenant, computed.group);
  // Blocks that were in the tree before are committed one by one, because they may have copies. Blocks that are new to the tree
  // have none, and are committed together.
  const std::uint32_t known = whole.length - residency_.tree().added();
  Prefix pinned = whole;
  // Copies that nobody held may be promised to requests that wait for slots. Such a copy is not pinned, so the returned prefix
  // ends before it.
  while (!device_slots_.can_promise(0) && pinned.length > from) {
    const Prefix shorter = residency_.tree().first(pinned, std::min(pinned.length, known) - 1);
    residency_.pin(shorter);
    residency_.unpin(pinned);
    pinned = shorter;
  }
  std::uint32_t end = from;
  for (; end < std::min(known, pinned.length); ++end) {
    const BlockRef block{pinned.node, end};
    const SlotId own = computed.slots[end - from];
    const Copy there = residency_.copy(block, Tier::device);
    // A load is filling the device copy, so the block cannot be shared yet. The returned prefix ends before it.
    if (there.state() == CopyState::filling) break;
    if (!there.present()) {
      residency_.adopt(block, own, computed.written);
      residency_.drop_second(block);
      continue;
    }
    if (residency_.cancel_eviction(block, Tier::device)) ++stats_.evictions_cancelled;
    ++stats_.duplicates;
    duplicates.push_back({computed.group, computed.first_in_table + (end - from), own, there.slot()});
  }
  Prefix prefix = pinned;
  if (end == known) {
    residency_.adopt_added(whole, computed.slots.subspan(known - from), computed.written);
  } else {
    prefix = residency_.tree().first(pinned, end);
    residency_.pin(prefix);
    residency_.unpin(pinned);
  }
  residency_.unpin(computed.held);
  if (computed.companion && prefix.length > 0) residency_.make_companion(prefix.last());
  residency_.touch(prefix, computed.stamp);
  copy_down(from, prefix);
  return prefix;
}

/// Begins the copies to host and storage that the inclusion policy and the write policy ask for, for the blocks of the prefix
/// from depth `from` on, which have just been committed.
void TieredPool::copy_down(std::uint32_t from, Prefix prefix) {
  if (prefix.length == from) return;
  if (config_.inclusion == InclusionPolicy::inclusive && sizes_.host_blocks > 0) {
    for (std::uint32_t i = from; i < prefix.length; ++i) {
      const BlockRef block = residency_.tree().at(prefix, i);
      if (residency_.copy(block, Tier::host).present()) continue;
      // If the host tier has no room, the block gets no copy there. The block is then in the same state as if the host had
      // evicted the copy.
      host_slots_.swap_out(block, SwapOutPurpose::inclusive);
    }
  }
  if (shared_writer_) shared_writer_->on_commit(prefix, from);
  if (!config_.stores_by(WritePolicy::write_through)) return;
  storage_writer_.write_through(prefix.last(), prefix.length - from);
}

// ---- copies to and from named slots --------------------------------------------------------------------------------------

void TieredPool::use_named(std::span<const BlockKey> keys, KeyOrder order, std::uint64_t stamp) {
  use(keys, order, stamp);
  if (!shared_writer_) return;
  if (named_copies_.flat(order)) shared_writer_->on_hits(named_);
  else shared_writer_->on_hits(named_.front());
}

/// Finds the cached blocks of these keys, puts them into named_, and updates their last use.
void TieredPool::use(std::span<const BlockKey> keys, KeyOrder order, std::uint64_t stamp) {
  named_copies_.find(keys, order, named_);
  // The first blocks get the latest stamps. So if the blocks stand alone, the last ones are evicted first.
  for (std::size_t i = named_.size(); i-- > 0;) {
    if (named_[i].length == 0) continue;
    residency_.touch(named_[i], stamp++);
    tell_storage_of_hit({.prefix = named_[i]});
  }
}

void TieredPool::end_request(std::span<const BlockKey> keys, KeyOrder order, std::uint64_t output_tokens) {
  named_copies_.find(keys, order, named_);
  if (named_copies_.flat(order) || named_.empty() || named_.front().length == 0) return;
  const Prefix used = named_.front();
  pin(used);
  residency_.end_request(residency_.tree().last_use(used.last()), output_tokens);
  unpin(used);
}

/// The job tells the shared writer about the hits when it ends, because the host tier has the blocks only then.
void TieredPool::load_named(const OffloadOrder& order, std::optional<TimePoint> shared_until, std::uint64_t stamp,
                            GroupId group) {
  use(order.keys, order.key_order, stamp);
  named_copies_.load(order, named_, shared_until, stamp, group);
}

// ---- events and time -----------------------------------------------------------------------------------------------------

bool TieredPool::on_transfer(TransferEvent& event) {
  if (!swap_outs_.on_event(event) && !loads_.on_event(event) && !named_copies_.on_event(event)) return false;
  link_.on_ended(event, stats_);
  swap_outs_.take_staged(staged_);
  for (const SwapOuts::Staged& staged : staged_) {
    if (SharedWriter::is_for_shared(staged)) shared_writer_->on_staged(staged);
    else storage_writer_.on_staged(staged);
  }
  actions_.spare_runs.give(std::move(event.runs));
  return true;
}

/// The store gives up the block and all blocks behind it, which may be in the host tier and are dropped there, too.
void TieredPool::note_damage(const StoreEvent& event) {
  misses_->damaged(event.key);
  const BlockRef damaged = stored_reads_.block_of(event.token);
  if (residency_.tree().hidden(damaged)) return;  // from before a clear
  std::vector<BlockRef> below;
  residency_.tree().collect_below(damaged, below);
  for (const BlockRef block : below) misses_->damaged(residency_.tree().key(block));
}

void TieredPool::on_store(const StoreEvent& event) {
  switch (event.kind) {
    case StoreEvent::Kind::read:
      if (misses_ != nullptr && event.error == Errc::corrupt) note_damage(event);
      stored_reads_.on_read(event.token, event.error);
      hand_out_reads();
      break;
    case StoreEvent::Kind::written: storage_writer_.on_written(static_cast<std::uint32_t>(event.token), event.error); break;
    case StoreEvent::Kind::removed:
    case StoreEvent::Kind::evicted: {
      flushes_.on_gone();
      const auto block = residency_.stored_block(static_cast<std::uint32_t>(event.write_token));
      if (!block || !residency_.stored(*block) || residency_.tree().key(*block) != event.key) break;
      ++stats_.stored_evicted;
      residency_.forget_stored(*block);
      break;
    }
    case StoreEvent::Kind::flushed: flushes_.on_flushed(event.error); break;
  }
}

void TieredPool::on_time(TimePoint now) {
  erasure_.on_time(now, actions_.removes.empty());
  flushes_.on_time(now);
  if (shared_writer_) shared_writer_->on_time(now);
  stored_reads_.take_late(now, late_);
  for (const StoredReads::Reader reader : late_) {
    if (reader.kind == StoredReads::Reader::Kind::load) loads_.on_late(reader.number);
    else named_copies_.on_late(reader.number);
  }
}

void TieredPool::hand_out_reads() {
  stored_reads_.take_results(read_);
  for (const StoredReads::Result& result : read_) {
    if (result.reader.kind == StoredReads::Reader::Kind::load) loads_.on_read(result);
    else named_copies_.on_read(result);
  }
}

TimePoint TieredPool::next_deadline() const {
  if (erasure_.is_due() && actions_.removes.empty()) return TimePoint{};  // now
  TimePoint next = std::min({flushes_.next_deadline(), erasure_.next_deadline(), stored_reads_.next_deadline()});
  if (!resizer_.rests()) next = std::min(next, link_.next_try());
  return shared_writer_ ? std::min(next, shared_writer_->next_deadline()) : next;
}

bool TieredPool::pump() {
  bool changed = resizer_.pump();  // first: a resize needs its evictions in any case, and they may make others unnecessary
  changed |= host_slots_.pump();
  changed |= device_slots_.pump();
  // Requests that have got their slots or blocks continue before the work below.
  if (has_events()) return true;
  changed |= named_copies_.pump();
  changed |= stored_reads_.pump();  // before the storage writer takes staging slots, for which no request waits
  hand_out_reads();
  changed |= storage_writer_.pump();
  if (shared_writer_) changed |= shared_writer_->pump();
  changed |= sweep_hidden();
  on_slots_taken();
  return changed;
}

void TieredPool::start_transfers(std::uint64_t& last_transfer) {
  const std::size_t before = actions_.transfers.size();
  swap_outs_.start_transfers(last_transfer);
  // If requests need slots that only background evictions will free, the transfers of these evictions become urgent.
  if (const std::uint64_t ahead = swap_outs_.ahead_blocks(); ahead > 0) swap_outs_.raise_ahead(device_slots_.missing(ahead));
  loads_.start_transfers(last_transfer);
  const std::uint64_t free = residency_.slots_of(Tier::host).count(SlotState::free);
  named_copies_.start_transfers(last_transfer);
  for (Transfer& transfer : std::span{actions_.transfers}.subspan(before)) {
    transfer.pool = id_;
    link_.on_ordered(transfer, stats_);
  }
  // No step above may free a slot of the arena, because reads that wait for one would not be continued.
  TERRACE_CHECK(residency_.slots_of(Tier::host).count(SlotState::free) == free);
}

// ---- the pool as a whole -------------------------------------------------------------------------------------------------

void TieredPool::clear(bool keep_storage, std::span<const BlockKey> stored) {
  storage_writer_.stop_all();
  if (shared_writer_) shared_writer_->stop_all();
  const PrefixTree& tree = residency_.tree();
  residency_.hide_all();

  gone_.clear();
  tree.for_each_hidden([&](BlockRef block) {
    if (residency_.copy(block, Tier::storage).present()) gone_.emplace_back(block, Tier::storage);
  });
  for (auto at = gone_.rbegin(); at != gone_.rend(); ++at) {
    if (residency_.stored(at->first)) residency_.forget_stored(at->first);
    // A block that is being written is removed, too. Otherwise its key would be found again later.
    else if (!keep_storage) actions_.removes.push_back(tree.key(at->first));
  }
  if (keep_storage || !config_.storage) return;
  actions_.removes.insert(actions_.removes.end(), stored.begin(), stored.end());
  erasure_.begin();
}

/// Drops the copies of hidden blocks that are neither pinned nor read, and forgets their storage copies. A copy that arrives
/// later is dropped by the next call. Returns true if anything was dropped.
bool TieredPool::sweep_hidden() {
  const PrefixTree& tree = residency_.tree();
  if (!tree.any_hidden()) return false;
  gone_.clear();
  tree.for_each_hidden([&](BlockRef block) {
    if (residency_.stored(block)) gone_.emplace_back(block, Tier::storage);
    if (tree.pinned(block)) return;
    for (const Tier tier : {Tier::device, Tier::host}) {
      if (residency_.copy(block, tier).state() == CopyState::ready) gone_.emplace_back(block, tier);
    }
  });
  // Children first. A block leaves the tree with its last copy, so each block is still in the tree when its turn comes.
  for (auto at = gone_.rbegin(); at != gone_.rend(); ++at) {
    if (at->second == Tier::storage) {
      residency_.forget_stored(at->first);
    } else {
      residency_.drop(at->first, at->second);
      ++stats_.cleared;
    }
  }
  return !gone_.empty();
}

std::uint32_t TieredPool::drop(Prefix prefix) {
  const std::uint32_t from = residency_.tree().unshared_from(prefix);
  std::uint32_t freed = 0;
  residency_.pin(prefix);  // so that its blocks stay in the tree until the end of this call
  for (std::uint32_t depth = prefix.length; depth-- > from;) {
    const BlockRef block{prefix.node, depth};
    // A copy that a transfer reads or fills stays, and so do the copies of the blocks before it.
    if (!residency_.copy(block, Tier::device).at_rest() || !residency_.copy(block, Tier::host).at_rest()) break;
    for (const Tier tier : {Tier::device, Tier::host}) {
      if (residency_.copy(block, tier).state() != CopyState::ready) continue;
      residency_.drop(block, tier);
      ++stats_.dropped_by_call;
      if (tier == Tier::device) ++freed;
    }
  }
  residency_.unpin(prefix);
  return freed;
}

bool TieredPool::in_use(BlockRef block) const {
  const auto moves = [&](Tier tier) {
    if (tier == Tier::storage && residency_.wished(block)) return false;  // a wish reads nothing
    return !residency_.copy(block, tier).at_rest();
  };
  return residency_.tree().pinned(block) || std::ranges::any_of(all_tiers, moves);
}

EvictedBlocks TieredPool::evict(std::span<const SlotId> slots) {
  const PrefixTree& tree = residency_.tree();
  std::vector<SlotId> wanted{slots.begin(), slots.end()};
  std::ranges::sort(wanted);
  std::vector<BlockRef> named;
  tree.for_each([&](BlockRef block) {
    const Copy copy = residency_.copy(block, Tier::device);
    if (copy.present() && std::ranges::binary_search(wanted, copy.slot()) && !tree.hidden(block)) named.push_back(block);
  });
  EvictedBlocks result;
  std::vector<BlockRef> going;
  // Deepest blocks first: a block is dropped after the blocks that follow it. So each block is still in the tree when its turn
  // comes.
  for (auto block = named.rbegin(); block != named.rend(); ++block) {
    going.assign(1, *block);
    tree.collect_below(*block, going);
    if (std::ranges::any_of(going, [&](BlockRef each) { return in_use(each); })) {
      result.in_use.push_back(residency_.copy(*block, Tier::device).slot());
      continue;
    }
    if (residency_.stored(*block)) actions_.removes.push_back(tree.key(*block));
    for (auto each = going.rbegin(); each != going.rend(); ++each) {
      const Prefix prefix{each->node, each->depth + 1};
      residency_.pin(prefix);  // so that it stays until it has lost all its copies
      for (const Tier tier : {Tier::device, Tier::host}) {
        if (!residency_.copy(*each, tier).present()) continue;
        residency_.drop(*each, tier);
        ++stats_.dropped_by_call;
      }
      if (residency_.stored(*each)) residency_.forget_stored(*each);
      residency_.unpin(prefix);
    }
    result.evicted += static_cast<std::uint32_t>(going.size());
  }
  return result;
}

std::optional<BlockPlace> TieredPool::find_block(const BlockKey& key) const {
  const PrefixTree& tree = residency_.tree();
  std::optional<BlockPlace> found;
  tree.for_each_node([&](Run run) {
    const std::span<const BlockKey> keys = tree.keys(run);
    const auto at = std::ranges::find(keys, key);
    if (found || at == keys.end()) return;
    const BlockRef block{run.node, run.begin + static_cast<std::uint32_t>(at - keys.begin())};
    if (tree.hidden(block)) return;
    const BlockPlace place = place_of(block);
    if (place.device || place.host || place.storage) found = place;
  });
  return found;
}

BlockPlace TieredPool::place_of(BlockRef block) const {
  BlockPlace place;
  if (residency_.usable(block, Tier::device)) place.device = residency_.copy(block, Tier::device).slot();
  if (residency_.usable(block, Tier::host)) place.host = residency_.copy(block, Tier::host).slot();
  place.storage = residency_.stored(block);
  place.in_use = in_use(block);
  return place;
}

void TieredPool::overwritten_by(std::span<const SlotId> device, Fence fence) {
  residency_.raise_fences(device, fence);
  // The transfers in actions_ have not been started. They must wait until compute has overwritten the slots.
  for (Transfer& transfer : actions_.transfers) transfer.after = std::max(transfer.after, fence);
}

// ---- what others ask -----------------------------------------------------------------------------------------------------

Usage TieredPool::usage(Tier tier) const {
  TERRACE_CHECK(tier != Tier::storage);
  Usage usage;
  usage.evictable = residency_.tree().unpinned(tier);
  if (tier == Tier::device) {
    const SlotAllocator& device = residency_.slots_of(Tier::device);
    usage.blocks = device.capacity() - device.count(SlotState::null);
    usage.free = device.count(SlotState::free);
    usage.promised = device_slots_.promised();
    // The slots of these copies retire when they are evicted, so they do not become free.
    if (device.closed_ready() > 0) usage.evictable -= residency_.retiring_unpinned(Tier::device);
  } else {
    usage.blocks = residency_.host_blocks();
    usage.free = residency_.host_free();
    // While the tier shrinks, it has more copies than it may have. These are evicted, and their slots do not become free.
    const std::uint64_t too_many = residency_.host_used() - std::min(residency_.host_used(), usage.blocks);
    usage.evictable -= std::min(usage.evictable, too_many);
  }
  return usage;
}

bool TieredPool::idle() const {
  return swap_outs_.idle() && storage_writer_.idle() && host_slots_.idle() && device_slots_.idle() && loads_.idle() &&
         named_copies_.idle() && stored_reads_.size() == 0 && !flushes_.under_way() && !erasure_.is_due() &&
         (!shared_writer_ || shared_writer_->idle());
}

Durability TieredPool::durability() const {
  const PrefixTree& tree = residency_.tree();
  const std::uint64_t stored = tree.resident(Tier::storage) - storage_writer_.in_flight();
  Durability now;
  now.durable_blocks = stored - std::min(stored, flushes_.not_covered());
  now.lost_blocks = tree.blocks() - now.durable_blocks;
  now.durable = storage_writer_.block_bytes() * now.durable_blocks;
  now.lost = storage_writer_.block_bytes() * now.lost_blocks;
  return now;
}

std::string TieredPool::describe_pending() const {
  const std::size_t shared_writes = shared_writer_ ? shared_writer_->under_way() : 0;
  return fmt::format("swap-outs {}, loads {}, pending reads {}, pending writes {}, flush {}, waiting for host slots: {}, device "
                     "slots promised: {}, writes to the shared store: {}",
                     swap_outs_.idle() ? "idle" : "under way", loads_.idle() ? "idle" : "under way", stored_reads_.size(),
                     storage_writer_.in_flight(), flushes_.under_way() ? "under way" : "none",
                     host_slots_.idle() ? "none" : "some", device_slots_.promised(), shared_writes);
}

std::string TieredPool::describe_tree(std::size_t lines_max) const {
  const PrefixTree& tree = residency_.tree();
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
  if (lines > lines_max) text += fmt::format("  and {} more nodes\n", lines - lines_max);
  return text;
}

void TieredPool::check_invariants(std::uint64_t held, bool at_rest) const {
  residency_.check_invariants();
  stored_reads_.check_invariants();
  loads_.check_invariants();
  named_copies_.check_invariants();
  if (shared_writer_) shared_writer_->check_invariants();
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  const SlotAllocator& arena = residency_.slots_of(Tier::host);
  TERRACE_CHECK(device.ledger().balanced());
  TERRACE_CHECK(arena.ledger().balanced());
  TERRACE_CHECK(held == device.count(SlotState::held));
  for (const Tier tier : {Tier::device, Tier::host}) {
    const Usage now = usage(tier);
    TERRACE_CHECK(now.free + now.evictable <= now.blocks);  // so that callers can subtract without a negative result
  }
  if (!at_rest || !idle()) return;
  for (const Tier tier : {Tier::device, Tier::host}) {
    TERRACE_CHECK(residency_.tree().unpinned(tier) == residency_.tree().resident(tier));
    TERRACE_CHECK(residency_.slots_of(tier).evicting_total() == 0);
  }
  TERRACE_CHECK(readers() == 0);
  TERRACE_CHECK(arena.count(SlotState::held) == 0);
}

}  // namespace terrace
