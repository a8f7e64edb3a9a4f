#include "runtime/cache/index/residency.hpp"

#include "base/check.hpp"
#include "radix/groups/groups.hpp"
#include "terrace/policies.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <stdexcept>

namespace terrace {
namespace {

constexpr std::array<Tier, 2> memory_tiers{Tier::device, Tier::host};

std::unique_ptr<EvictionPolicy> make_policy(const PolicyFactory& factory, std::uint32_t blocks) {
  if (blocks == 0) return lru_policy(0);  // an empty tier never evicts, so any policy will do
  std::unique_ptr<EvictionPolicy> policy = factory ? factory(blocks) : nullptr;
  if (policy == nullptr) throw std::invalid_argument{"each tier needs an eviction policy"};
  return policy;
}

Residency::Policies policies_for(const PolicyFactory& factory, InclusionPolicy inclusion, std::uint32_t device,
                                 std::uint32_t host) {
  // If blocks are not kept in both tiers, a block that the host evicts is in neither tier. So the host's policy is sized for the
  // blocks of both tiers.
  const bool apart = inclusion == InclusionPolicy::exclusive || inclusion == InclusionPolicy::lazy_exclusive;
  const std::uint32_t above = host > 0 && apart ? device : 0;
  return {make_policy(factory, device), make_policy(factory, host + above)};
}

}  // namespace

Residency::Residency(const ManagerConfig& config, const PoolSizes& sizes, KvEvents& events)
    : host_blocks_{sizes.host_blocks},
      host_blocks_wanted_{sizes.host_blocks},
      staging_blocks_{sizes.staging_blocks},
      first_slot_{sizes.first_slot},
      inclusion_{config.inclusion},
      policies_{policies_for(config.policy, config.inclusion, sizes.device_blocks, sizes.host_blocks)},
      tree_{config.key_order == KeyOrder::flat ? PrefixTree::Shape::flat : PrefixTree::Shape::tree},
      device_{sizes.first_slot + sizes.device_blocks},
      arena_{sizes.host_blocks + sizes.staging_blocks},
      events_{events} {
  tree_.set_policy(Tier::device, *policies_.device);
  tree_.set_policy(Tier::host, *policies_.host);
  const std::uint32_t unused = sizes.first_slot + (sizes.null_block ? 1 : 0);
  for (std::uint32_t slot = 0; slot < unused; ++slot) device_.make_null(SlotId{slot});
}

Residency::Policies Residency::make_policies(const PolicyFactory& factory) const {
  return policies_for(factory, inclusion_, device_.capacity() - first_slot_, host_blocks_wanted_);
}

void Residency::set_policies(Policies policies) {
  tree_.set_policy(Tier::device, *policies.device);
  tree_.set_policy(Tier::host, *policies.host);
  policies_ = std::move(policies);
}

void Residency::set_quota(TenantId tenant, TenantQuota quota) {
  tree_.follow_tenant(tenant);
  quotas_.set(tenant, quota);
}

bool Residency::remove_quota(TenantId tenant) {
  if (!quotas_.remove(tenant)) return false;
  tree_.ignore_tenant(tenant);
  return true;
}

Prefix Residency::extend_pinned(Prefix at, std::span<const BlockKey> keys, TenantId tenant, GroupId group) {
  const Prefix whole = tree_.extend(at, keys, tenant, group);
  tree_.pin(whole);
  return whole;
}

void Residency::hide_all() {
  tree_.hide_all();
  companions_.clear();
  sample_.forget();
}

void Residency::begin_fill(BlockRef block, Tier tier, SlotId slot) {
  TERRACE_CHECK(!copy(block, tier).present());
  TERRACE_CHECK(slots_of(tier).state(slot) == SlotState::held);
  slots_in(tier).change(slot, SlotState::filling);
  want_companions(only(block), tier, Companion::wanted);
  tree_.set_copy(block, tier, Copy{CopyState::filling, slot});
}

void Residency::begin_load(Run run, std::span<const SlotId> slots, std::uint32_t load, Source source) {
  TERRACE_CHECK(slots.size() == run.size());
  device_.begin_load(slots, load, source);
  want_companions(run, Tier::device, Companion::wanted);
  tree_.fill({run.node, run.end}, Tier::device, slots, CopyState::filling);
}

void Residency::begin_swap_out(Run run, std::span<const SlotId> slots) {
  TERRACE_CHECK(slots.size() == run.size());
  arena_.change_all(slots, SlotState::held, SlotState::filling);
  want_companions(run, Tier::host, Companion::wanted);
  tree_.fill({run.node, run.end}, Tier::host, slots, CopyState::filling);
}

void Residency::publish(BlockRef block, Tier tier) {
  const Copy now = copy(block, tier);
  TERRACE_CHECK(now.state() == CopyState::filling);
  become_ready(block, tier, now.slot());
}

void Residency::publish(Run run, Tier tier) {
  const std::span<const SlotId> slots = slots_of_copies(run, tier);
  slots_in(tier).change_all(slots, SlotState::filling, SlotState::ready);
  tree_.change(run, tier, CopyState::ready);
  update_duplicates(run);
  if (slots_of(tier).closed_ready() > 0) {
    for (std::uint32_t i = 0; i < slots.size(); ++i) note_retiring({run.node, run.begin + i}, tier, slots[i]);
  }
  if (watched()) record(KvEvent::Kind::stored, run, tier);
}

/// The slots of the run's copies, all of which must be present. Valid until the next call.
std::vector<SlotId>& Residency::slots_of_copies(Run run, Tier tier) {
  const std::span<const Copy> copies = tree_.copies(run, tier);
  TERRACE_CHECK(lowest_state(copies) != CopyState::absent);
  slots_.resize(copies.size());
  read_slots(copies, slots_.data());
  return slots_;
}

void Residency::become_ready(BlockRef block, Tier tier, SlotId slot) {
  slots_in(tier).change(slot, SlotState::ready);
  tree_.set_copy(block, tier, Copy{CopyState::ready, slot});
  update_duplicate(block);
  note_retiring(block, tier, slot);
  record(KvEvent::Kind::stored, block, tier);
}

void Residency::update_duplicate(BlockRef block) {
  if (inclusion_ != InclusionPolicy::lazy_exclusive) return;
  const Copy in_host = copy(block, Tier::host);
  if (!in_host.usable()) return;
  const Copy on_device = copy(block, Tier::device);
  const bool is_one = in_host.state() == CopyState::ready && on_device.usable() && on_device.stays();
  if (is_one == duplicates_.contains(in_host.slot())) return;
  if (!is_one) return duplicates_.remove(in_host.slot());
  std::optional<SlotId> before;
  if (block.depth > 0) {
    if (const Copy above = copy(tree_.parent(block), Tier::host); above.usable()) before = above.slot();
  }
  duplicates_.add(tree_.at({block.node, block.depth + 1}, block.depth), in_host.slot(), before);
}

void Residency::update_duplicates(Run run) {
  // Only blocks whose device copy stays can be duplicates, or can have been some.
  if (inclusion_ != InclusionPolicy::lazy_exclusive || !tree_.any_in_node(run, Tier::host)) return;
  if (!std::ranges::any_of(tree_.copies(run, Tier::device), &Copy::stays)) return;
  for (std::uint32_t depth = run.begin; depth < run.end; ++depth) update_duplicate({run.node, depth});
}

/// The host copies of a run are not duplicates any more: copies in the host or on the device are dropped, or are read.
void Residency::forget_duplicates(Run run) {
  if (duplicates_.size() == 0 || !tree_.any_in_node(run, Tier::host)) return;
  for (const Copy now : tree_.copies(run, Tier::host)) {
    if (now.usable()) duplicates_.remove(now.slot());
  }
}

void Residency::fail_host_fill(BlockRef block) {
  const Prefix prefix{block.node, block.depth + 1};
  pin(prefix);
  fail_fill(block, Tier::host, FailedSlot::free);
  unpin_incomplete(prefix, block);
}

void Residency::fail_fill(BlockRef block, Tier tier, FailedSlot slot) {
  const Copy now = copy(block, tier);
  TERRACE_CHECK(now.state() == CopyState::filling);
  if (slot == FailedSlot::free) {
    slots_in(tier).put(now.slot());
  } else {
    slots_in(tier).change(now.slot(), SlotState::quarantined);
  }
  lose_owners(only(block), tier);
  tree_.set_copy(block, tier, {});
}

void Residency::adopt(BlockRef block, SlotId slot, Fence written) {
  TERRACE_CHECK(!copy(block, Tier::device).present());
  TERRACE_CHECK(device_.state(slot) == SlotState::held);
  device_.raise_fence(slot, written);
  want_companions(only(block), Tier::device, Companion::wanted);
  become_ready(block, Tier::device, slot);
}

void Residency::adopt_added(Prefix prefix, std::span<const SlotId> slots, Fence written) {
  TERRACE_CHECK(slots.size() <= tree_.added());
  device_.raise_fences(slots, written);
  device_.change_all(slots, SlotState::held, SlotState::ready);
  tree_.fill(prefix, Tier::device, slots);
  if (device_.closed_ready() > 0) {
    const std::uint32_t first = prefix.length - static_cast<std::uint32_t>(slots.size());
    for (std::uint32_t i = 0; i < slots.size(); ++i) note_retiring({prefix.node, first + i}, Tier::device, slots[i]);
  }
  if (!watched() || slots.empty()) return;
  record(KvEvent::Kind::stored, tree_.last(prefix, static_cast<std::uint32_t>(slots.size())), Tier::device);
}

void Residency::tie(BlockRef owner, Residency& in, BlockRef companion, bool ends_hit) {
  if (tree_.hidden(owner)) return;
  bool there = false;
  for (const Tier tier : memory_tiers) {
    const bool here = copy(owner, tier).present();
    in.tree_.set_companion(companion, tier, here ? Companion::wanted : Companion::unwanted);
    there |= here;
  }
  TERRACE_CHECK(there);
  companions_.add(tree_.key(owner), {&in, in.tree_.key(companion), ends_hit});
  in.has_companions_ = true;
}

void Residency::make_companion(BlockRef block) {
  if (tree_.companion(block, Tier::device) != Companion::no) return;
  for (const Tier tier : memory_tiers) tree_.set_companion(block, tier, Companion::unwanted);
  has_companions_ = true;
}

bool Residency::is_companion(Prefix prefix) const {
  return prefix.length == 1 && tree_.companion(prefix.last(), Tier::device) != Companion::no && policies_.rank();
}

void Residency::tell_companions(Run owners, Tier tier, Companion companion) {
  if (tree_.hidden({owners.node, owners.begin})) return;  // a block of the same name may be here
  for (std::uint32_t depth = owners.begin; depth < owners.end; ++depth) {
    companions_.for_each(tree_.key({owners.node, depth}), [&](const Companions::Block& block) {
      const Prefix found = block.in->tree_.find({&block.key, 1});
      if (found.length > 0) block.in->tree_.set_companion(found.last(), tier, companion);
    });
  }
}

void Residency::forget_owners(Run owners, Tier tier) {
  if (tree_.hidden({owners.node, owners.begin})) return;
  tell_companions(owners, tier, Companion::unwanted);
  const Tier other = tier == Tier::device ? Tier::host : Tier::device;
  for (std::uint32_t depth = owners.begin; depth < owners.end; ++depth) {
    const BlockRef owner{owners.node, depth};
    if (!copy(owner, other).present()) companions_.forget(tree_.key(owner));
  }
}

void Residency::drop(Run victims, Tier tier) {
  lose_owners(victims, tier);
  if (watched()) record(KvEvent::Kind::removed, victims, tier);
  forget_duplicates(victims);
  std::vector<SlotId>& slots = slots_of_copies(victims, tier);
  tree_.drop(victims, tier);
  if (tier == Tier::host && lent_count_ > 0) {
    std::erase_if(slots, [this](SlotId slot) {
      if (!unlend(slot)) return false;
      arena_.change(slot, SlotState::held);
      return true;
    });
  }
  slots_in(tier).put_all(slots);
}

void Residency::drop(BlockRef block, Tier tier) {
  const Copy now = copy(block, tier);
  const SlotId slot = now.slot();
  TERRACE_CHECK(now.usable());
  TERRACE_CHECK(slots_of(tier).readers(slot) == 0);
  slots_in(tier).set_evicting(slot, false);
  slots_in(tier).change(slot, SlotState::held);
  record(KvEvent::Kind::removed, block, tier);
  if (const Copy in_host = copy(block, Tier::host); in_host.usable()) duplicates_.remove(in_host.slot());
  lose_owners(only(block), tier);
  tree_.set_copy(block, tier, {});
  // A lent slot becomes a staging slot: it stays held until its write has ended.
  if (tier == Tier::host && unlend(slot)) return;
  slots_in(tier).put(slot);
}

bool Residency::drop_second(BlockRef block) {
  if (inclusion_ != InclusionPolicy::exclusive || copy(block, Tier::host).state() != CopyState::ready) return false;
  drop(block, Tier::host);
  return true;
}

void Residency::hold(BlockRef block, Tier tier) {
  const Copy now = copy(block, tier);
  TERRACE_CHECK(now.usable());
  if (slots_in(tier).add_reader(now.slot()) == 1) show_state(block, tier, now.slot());
}

void Residency::hold(Run run, Tier tier) {
  slots_in(tier).add_readers(slots_of_copies(run, tier), false);
  tree_.change(run, tier, CopyState::busy);
  if (tier == Tier::host) forget_duplicates(run);
}

void Residency::hold_evicting(BlockRef block, Tier tier) {
  const Copy now = copy(block, tier);
  TERRACE_CHECK(now.usable());
  slots_in(tier).add_reader(now.slot());
  slots_in(tier).set_evicting(now.slot(), true);
  want_companions(only(block), tier, Companion::unwanted);
  show_state(block, tier, now.slot());
}

void Residency::hold_evicting(Run run, Tier tier) {
  slots_in(tier).add_readers(slots_of_copies(run, tier), true);
  want_companions(run, tier, Companion::unwanted);
  tree_.change(run, tier, CopyState::evicting);
  forget_duplicates(run);
}

bool Residency::unhold(BlockRef block, Tier tier) {
  const Copy now = copy(block, tier);
  TERRACE_CHECK(now.usable());
  if (slots_in(tier).remove_reader(now.slot()) > 0) return false;
  show_state(block, tier, now.slot());
  return true;
}

bool Residency::unhold_last(Run run) {
  if (!slots_in(Tier::host).end_reads(slots_of_copies(run, Tier::host), false)) return false;
  tree_.change(run, Tier::host, CopyState::ready);  // no duplicates yet: the load's device copies are not usable
  return true;
}

void Residency::set_evicting(BlockRef block, Tier tier, bool evicting) {
  const Copy now = copy(block, tier);
  TERRACE_CHECK(now.usable());
  slots_in(tier).set_evicting(now.slot(), evicting);
  want_companions(only(block), tier, evicting ? Companion::unwanted : Companion::wanted);
  show_state(block, tier, now.slot());
}

bool Residency::cancel_eviction(BlockRef block, Tier tier) {
  const Copy now = copy(block, tier);
  if (!now.usable() || !slots_of(tier).evicting(now.slot())) return false;
  set_evicting(block, tier, false);
  return true;
}

void Residency::record(KvEvent::Kind kind, BlockRef block, Tier tier) {
  if (watched()) record(kind, tree_.last({block.node, block.depth + 1}, 1), tier);
}

/// Records events for copies of neighbouring blocks that came or went together. Copies that came are recorded from the first
/// block to the last, copies that went from the last to the first.
void Residency::record(KvEvent::Kind kind, Run run, Tier tier) {
  if (tree_.hidden({run.node, run.begin})) return;  // the event `cleared` has reported these blocks
  const auto tell = [&](auto& follower) {
    for (const BlockKey& key : tree_.keys(run)) {
      if (follower.follows(key)) kind == KvEvent::Kind::stored ? follower.came(key, tier) : follower.went(key, tier);
    }
  };
  if (sample_.on() && tier != Tier::storage) tell(sample_);
  if (misses_ != nullptr) tell(*misses_);
  if (!events_.on()) return;
  for (std::uint32_t i = 0; i < run.size(); ++i) {
    add_event(kind, {run.node, kind == KvEvent::Kind::stored ? run.begin + i : run.end - 1 - i}, tier);
  }
}

void Residency::add_event(KvEvent::Kind kind, BlockRef block, Tier tier) {
  KvEvent event;
  event.kind = kind;
  event.source = to_source(tier);
  event.depth = block.depth;
  event.tenant = tree_.tenant(block);
  event.group = tree_.group(block);
  event.key = key_in_group(tree_.key(block), event.group);
  event.parent = tree_.parent_key(block);
  if (event.parent) event.parent = key_in_group(*event.parent, event.group);
  events_.add(event);
}

/// Sets the state of a usable copy in the tree, according to the readers of its slot.
void Residency::show_state(BlockRef block, Tier tier, SlotId slot) {
  const SlotAllocator& slots = slots_of(tier);
  const CopyState state = slots.readers(slot) == 0 ? CopyState::ready
                          : slots.evicting(slot)   ? CopyState::evicting
                                                   : CopyState::busy;
  tree_.set_copy(block, tier, Copy{state, slot});
  update_duplicate(block);
}

bool Residency::supported(BlockRef block, Tier tier) const {
  if (block.depth == 0) return true;
  const BlockRef parent = tree_.parent(block);
  if (copy(parent, tier).present()) return true;
  return tier == Tier::host && copy(parent, Tier::device).present();
}

void Residency::drop_orphans_below(BlockRef block) {
  below_.clear();
  tree_.collect_below(block, below_);
  // First decide which copies to drop, parents before children: a copy that is dropped does not support its children any more.
  // Then drop them, children before parents, because each drop may remove blocks from the tree.
  auto& [goes, places] = orphans_;
  goes.assign(below_.size(), {});
  places.clear();
  const auto name = [](BlockRef b) { return std::uint64_t{b.node.value()} << 32 | b.depth; };
  for (std::size_t i = 0; i < below_.size(); ++i) {
    const BlockRef below = below_[i];
    places.emplace(name(below), i);
    const BlockRef parent = tree_.parent(below);
    const auto place = places.find(name(parent));
    const auto stays = [&](Tier tier) {
      return copy(parent, tier).present() && (place == places.end() || !goes[place->second][index(tier)]);
    };
    if (tree_.pinned(below)) continue;
    const bool on_device = stays(Tier::device);
    goes[i][index(Tier::device)] = copy(below, Tier::device).state() == CopyState::ready && !on_device;
    goes[i][index(Tier::host)] = copy(below, Tier::host).state() == CopyState::ready && !on_device && !stays(Tier::host);
  }
  for (std::size_t i = below_.size(); i-- > 0;) {
    for (const Tier tier : memory_tiers) {
      if (goes[i][index(tier)]) drop(below_[i], tier);
    }
  }
}

void Residency::unpin_incomplete(Prefix prefix, std::optional<BlockRef> missing) {
  // While the prefix was pinned, a block may have lost its support: the eviction of the block was cancelled, but not that of the
  // block before it, or the load of the block before it failed.
  std::optional<BlockRef> gap = missing;
  auto& [on_device, in_host] = copies_;
  for (const Tier tier : memory_tiers) {
    copies_[index(tier)].resize(prefix.length);
    tree_.read(prefix, tier, 0, copies_[index(tier)]);
  }
  const std::uint32_t end = missing ? std::min(missing->depth + 1, prefix.length) : prefix.length;
  for (std::uint32_t depth = 1; depth < end; ++depth) {
    if (on_device[depth - 1].present()) continue;  // it supports copies in both tiers
    if (!on_device[depth].present() && (!in_host[depth].present() || in_host[depth - 1].present())) continue;
    gap = tree_.at(prefix, depth - 1);
    break;
  }
  if (!gap) return tree_.unpin(prefix);
  const Prefix to_gap{gap->node, gap->depth + 1};
  tree_.pin(to_gap);
  tree_.unpin(prefix);
  drop_orphans_below(*gap);
  tree_.unpin(to_gap);
}

std::uint32_t Residency::number_stored(BlockRef block) {
  if (free_numbers_.empty()) {
    TERRACE_CHECK(stored_.size() < Copy::slots_max);
    free_numbers_.push_back(static_cast<std::uint32_t>(stored_.size()));
    stored_.push_back({});
    wished_.push_back(false);
  }
  const std::uint32_t number = free_numbers_.back();
  free_numbers_.pop_back();
  stored_[number] = block;
  return number;
}

Residency::Restored Residency::restore(Prefix at, std::span<const BlockKey> keys, TenantId tenant, GroupId group,
                                       std::span<std::optional<std::uint64_t>> numbers) {
  TERRACE_CHECK(numbers.size() == keys.size());
  Restored restored{tree_.extend(at, keys, tenant, group)};
  if (tree_.added() == keys.size()) {
    restore_added(restored.prefix, numbers);
    restored.blocks = keys.size();
    return restored;
  }
  // Some of the blocks were in the tree before, and may have copies in other tiers.
  tree_.pin(restored.prefix);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const BlockRef block = tree_.at(restored.prefix, at.length + i);
    if (copy(block, Tier::storage).present()) continue;
    numbers[i] = begin_store(block);
    publish_stored(block);
    ++restored.blocks;
  }
  tree_.unpin(restored.prefix);
  return restored;
}

/// The same for the last blocks of the prefix, all of which the last extend() added.
void Residency::restore_added(Prefix prefix, std::span<std::optional<std::uint64_t>> numbers) {
  const std::uint32_t first = prefix.length - static_cast<std::uint32_t>(numbers.size());
  slots_.clear();
  for (std::uint32_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t number = number_stored({prefix.node, first + i});
    numbers[i] = number;
    slots_.emplace_back(number);
  }
  tree_.fill(prefix, Tier::storage, slots_);
  if (watched()) record(KvEvent::Kind::stored, tree_.last(prefix, static_cast<std::uint32_t>(numbers.size())), Tier::storage);
}

std::uint32_t Residency::begin_store(BlockRef block) {
  TERRACE_CHECK(!copy(block, Tier::storage).present());
  const std::uint32_t number = number_stored(block);
  wished_[number] = true;
  tree_.set_copy(block, Tier::storage, Copy{CopyState::filling, SlotId{number}});
  return number;
}

void Residency::publish_stored(BlockRef block) {
  const Copy now = copy(block, Tier::storage);
  TERRACE_CHECK(now.state() == CopyState::filling);
  wished_[now.slot().value()] = false;
  tree_.set_copy(block, Tier::storage, Copy{CopyState::ready, now.slot()});
  record(KvEvent::Kind::stored, block, Tier::storage);
}

void Residency::forget_stored(BlockRef block) {
  const Copy now = copy(block, Tier::storage);
  const std::uint32_t number = now.slot().value();
  stored_[number].reset();
  wished_[number] = false;
  free_numbers_.push_back(number);
  if (now.usable()) record(KvEvent::Kind::removed, block, Tier::storage);
  tree_.set_copy(block, Tier::storage, {});
}

std::optional<BlockRef> Residency::stored_block(std::uint32_t number) const {
  if (number >= stored_.size()) return std::nullopt;
  return stored_[number];
}

std::size_t Residency::bytes_held() const {
  return tree_.bytes_held() + sample_.bytes_held() + policies_.device->bytes_held() + policies_.host->bytes_held() +
         device_.bytes_held() + arena_.bytes_held() + companions_.bytes_held() + duplicates_.bytes_held() + stored_.bytes_held() +
         wished_.capacity() / 8 + free_numbers_.capacity() * sizeof(free_numbers_[0]);
}

}  // namespace terrace
