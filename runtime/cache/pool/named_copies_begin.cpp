// Copies between the cache and named slots: how jobs and reservations begin.

#include "base/check.hpp"
#include "runtime/cache/pool/named_copies.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

// ---- the begin of a job ------------------------------------------------------------------------------------------------------

NamedCopies::JobIndex NamedCopies::add(const OffloadOrder& order, Direction direction) {
  Job job;
  job.id = order.id;
  job.direction = direction;
  job.urgency = order.urgency;
  job.deadline = order.deadline;
  job.after = order.after;
  job.tenant = order.tenant;
  job.first = order.first;
  job.flat = flat(order.key_order);
  job.by_layer = order.by_layer && direction == Direction::swap_in;
  job.parts.resize(order.keys.size() - order.first);
  for (std::size_t i = 0; i < job.parts.size(); ++i) {
    Part& part = job.parts[i];
    if (!order.slots.empty()) part.slot = order.slots[i];
    else if (!order.memory.empty()) part.memory = order.memory[i].data();
    use(part, direction);
  }
  job.unfinished = job.unsubmitted = static_cast<std::uint32_t>(job.parts.size());
  in_flight_ += job.unfinished;
  ++totals_.jobs;
  (direction == Direction::swap_in ? totals_.loads : totals_.stores) += job.unfinished;
  const bool waits = job.unsubmitted > 0;
  const JobIndex index = jobs_.add(std::move(job));
  if (waits) reads_.set_deadline({StoredReads::Reader::Kind::named_copy, index}, order.deadline);
  by_id_.emplace(order.id, index);
  return index;
}

void NamedCopies::use(const Part& part, Direction direction) {
  if (part.slot == no_slot) return;
  std::uint16_t& use = uses_[part.slot.value()];
  TERRACE_CHECK(direction == Direction::swap_in ? use == 0 : use < being_written - 1);
  if (direction == Direction::swap_in) use = being_written;
  else ++use;
}

void NamedCopies::unuse(const Part& part, Direction direction) {
  if (part.slot == no_slot) return;
  std::uint16_t& use = uses_[part.slot.value()];
  TERRACE_CHECK((use == being_written) == (direction == Direction::swap_in) && use > 0);
  if (direction == Direction::swap_in) use = 0;
  else --use;
}

void NamedCopies::load(const OffloadOrder& order, std::span<Prefix> found, std::optional<TimePoint> shared_until,
                       std::uint64_t stamp, GroupId group) {
  const JobIndex index = add(order, Direction::swap_in);
  const PrefixTree& tree = residency_.tree();
  const auto parts = static_cast<std::uint32_t>(order.keys.size()) - order.first;
  Job& job = jobs_.at(index);
  job.shared_until = shared_until;
  // Keys that are not chained must not be added to the tree. They are misses.
  const bool extends = shared_until && (job.flat || found.front().length == tree.find(order.keys).length);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::span<const BlockKey> wanted = job.flat ? order.keys.subspan(i, 1) : order.keys;
    if (extends && found[i].length < wanted.size()) {
      // Adds the blocks that no tier has to the tree, without copies. The shared store may have them.
      found[i] = residency_.extend_pinned({}, wanted, order.tenant, group);
    } else if (found[i].length > 0) {
      residency_.pin(found[i]);
    } else {
      continue;
    }
    job.pins.push_back(found[i]);
  }
  if (extends) touch(job.pins, stamp);
  for (std::uint32_t i = 0; i < parts; ++i) {
    const Prefix prefix = job.flat ? found[i] : found.front();
    const std::uint32_t depth = job.flat ? 0 : order.first + i;
    if (depth >= prefix.length) {
      end_part({index, i}, Errc::not_found);
      continue;
    }
    part({index, i}).block = tree.at(prefix, depth);
    resolve_load({index, i});
  }
  if (parts == 0) finished_.push_back(index);
  end_finished();
}

void NamedCopies::store(const OffloadOrder& order, std::uint64_t stamp) {
  const JobIndex index = add(order, Direction::swap_out);
  Job& job = jobs_.at(index);
  const auto parts = static_cast<std::uint32_t>(job.parts.size());
  pin_keys(order, stamp, job.pins, named_);
  for (std::uint32_t i = 0; i < parts; ++i) job.parts[i].block = named_[i];
  job.parents = parents(named_, job.flat);
  for (std::uint32_t i = 0; i < parts; ++i) resolve_store({index, i});
  if (parts == 0) finished_.push_back(index);
  end_finished();
}

/// Pins all blocks of the order and updates their last use, before any of them takes a slot. So no block of the order is evicted
/// to make room for another one.
void NamedCopies::pin_keys(const OffloadOrder& order, std::uint64_t stamp, std::vector<Prefix>& pins,
                           std::vector<BlockRef>& blocks) {
  blocks.clear();
  if (flat(order.key_order)) {
    for (std::size_t i = 0; i < order.keys.size(); ++i) {
      pins.push_back(residency_.extend_pinned({}, order.keys.subspan(i, 1), order.tenant, {}));
      blocks.push_back(pins.back().last());
    }
    tie(order, blocks);
  } else if (!order.keys.empty()) {
    const Prefix whole = residency_.extend_pinned({}, order.keys, order.tenant, {});
    pins.push_back(whole);
    for (std::uint32_t i = order.first; i < whole.length; ++i) blocks.push_back(residency_.tree().at(whole, i));
  }
  touch(pins, stamp);
}

/// Ties the blocks of the order to those of OffloadOrder::beside that have a host copy.
void NamedCopies::tie(const OffloadOrder& order, std::span<const BlockRef> companions) {
  if (order.beside.empty()) return;
  std::vector<Prefix> found;
  find(order.beside, KeyOrder::prefix, found);
  const std::size_t first = order.beside.size() - companions.size();
  for (std::size_t depth = first; depth < found.front().length; ++depth) {
    const BlockRef owner = residency_.tree().at(found.front(), static_cast<std::uint32_t>(depth));
    if (residency_.copy(owner, Tier::host).present()) residency_.tie(owner, residency_, companions[depth - first]);
  }
}

std::uint32_t NamedCopies::parents(std::span<const BlockRef> blocks, bool flat) const {
  if (flat) return 0;
  const auto is_new = [this](BlockRef block) {
    return !residency_.copy(block, Tier::host).present() && !residency_.stored(block);
  };
  const auto last = std::ranges::find_if(blocks.rbegin(), blocks.rend(), is_new);
  return static_cast<std::uint32_t>(blocks.rend() - last);
}

NamedCopies::Reserved NamedCopies::reserve(const OffloadOrder& order, std::uint64_t stamp, std::span<SlotId> slots) {
  Reserved reserved;
  reserved.flat = flat(order.key_order);
  reserved.pins.reserve(slots.size());
  reserved.blocks.reserve(slots.size());
  pin_keys(order, stamp, reserved.pins, named_);
  const std::uint32_t needed = parents(named_, reserved.flat);
  totals_.stores += slots.size();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const BlockRef block = named_[i];
    slots[i] = no_host_slot;
    if (residency_.copy(block, Tier::host).present() || (residency_.stored(block) && i >= needed)) {
      ++totals_.already_there;
      continue;
    }
    const Result<SlotId> slot = begin_host_fill(block, order.tenant);
    if (!slot) {
      ++(slot.error() == Errc::full ? totals_.store_full : totals_.store_failures);
      continue;
    }
    slots[i] = *slot;
    reserved.blocks.push_back(block);
  }
  if (reserved.blocks.empty()) unpin(std::exchange(reserved.pins, {}));
  if (!reserved.flat || reserved.blocks.size() == reserved.pins.size()) return reserved;
  // Blocks that stand alone and got no slot do not stay pinned.
  std::vector<Prefix> kept;
  for (std::size_t i = reserved.pins.size(); i-- > 0;) {
    if (slots[i] == no_host_slot) residency_.unpin_incomplete(reserved.pins[i]);
    else kept.push_back(reserved.pins[i]);
  }
  std::ranges::reverse(kept);
  reserved.pins = std::move(kept);
  return reserved;
}

void NamedCopies::publish(const Reserved& reserved, bool filled) {
  for (const BlockRef block : reserved.blocks) {
    if (!filled) {
      ++totals_.store_failures;
      residency_.fail_host_fill(block);
      continue;
    }
    ++totals_.stored;
    publish_host(block);
  }
  if (filled && !reserved.blocks.empty())
    offer_new(reserved.pins, reserved.flat, reserved.flat ? 0 : reserved.blocks.front().depth);
  unpin(reserved.pins);
}

/// Chooses how to bring the block, by the copies that it has now. Called again when a copy that it waited for has come or failed.
void NamedCopies::resolve_load(PartRef ref) {
  Part& p = part(ref);
  const Job& job = jobs_.at(ref.job);
  const Copy in_host = residency_.copy(p.block, Tier::host);
  // For a load to the host tier, a copy on the device is enough, even one that a load is filling: it serves the request for which
  // the block is wanted in the host tier.
  const bool near = in_host.usable() || residency_.copy(p.block, Tier::device).present();
  if (near && p.to_host_only()) {
    p.source = Source::host;
    end_part(ref, {});
  } else if (in_host.usable()) {
    residency_.hold(p.block, Tier::host);
    land(ref, {in_host.slot()});
  } else if (in_host.present()) {
    join(ref);
  } else if (residency_.stored(p.block) || (job.shared_until && !residency_.tree().hidden(p.block))) {
    p.source = residency_.stored(p.block) ? Source::storage : Source::shared;
    p.state = State::reading;
    p.read = reads_.add({.reader = {StoredReads::Reader::Kind::named_copy, ref.job},
                         .part = ref.part,
                         .block = p.block,
                         .source = p.source,
                         .tenant = job.tenant,
                         .urgency = job.urgency,
                         .overtaken = StoredReads::Overtaken::is_given_back,
                         .only_host_copy = p.to_host_only(),
                         .deadline = job.shared_until.value_or(never)});
  } else {
    end_part(ref, Errc::not_found);
  }
}

void NamedCopies::resolve_store(PartRef ref) {
  Part& p = part(ref);
  const Copy in_host = residency_.copy(p.block, Tier::host);
  if (in_host.usable() || (residency_.stored(p.block) && ref.part >= jobs_.at(ref.job).parents)) {
    ++totals_.already_there;
    return end_part(ref, {});
  }
  if (in_host.present()) return join(ref);
  const Result<SlotId> slot = begin_host_fill(p.block, jobs_.at(ref.job).tenant);
  if (!slot) return end_part(ref, slot.error());
  land(ref, {*slot});
}

/// Begins a host copy of a block that has none. Fails: cleared, parent_missing, full.
Result<SlotId> NamedCopies::begin_host_fill(BlockRef block, TenantId tenant) {
  if (residency_.tree().hidden(block)) return Errc::cleared;
  if (!residency_.supported(block, Tier::host)) return Errc::parent_missing;
  const std::optional<SlotId> slot = host_slots_.take_for_store(tenant);
  if (!slot) return Errc::full;
  residency_.begin_fill(block, Tier::host, *slot);
  return *slot;
}

/// A slot of the host arena is ready for the copy.
void NamedCopies::land(PartRef ref, StoredReads::Landing landing) {
  Part& p = part(ref);
  p.landing = landing;
  p.state = State::landed;
  landed_.push_back(ref);
}

/// Another job, or a load, fills the host copy: the part waits for it.
void NamedCopies::join(PartRef ref) {
  Part& p = part(ref);
  if (p.state != State::joined) ++totals_.joined;
  p.state = State::joined;
  joined_.push_back(ref);
}

}  // namespace terrace
