#include "runtime/tiering/swap_outs.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace terrace {

void SwapOuts::begin(BlockRef block, SlotId host_slot, SwapOutPurpose purpose, std::uint32_t write) {
  const SlotId device_slot = residency_.copy(block, Tier::device).slot();
  if (leaves(purpose)) {
    deferred_eviction_.hold_evicting(block, Tier::device);
  } else {
    residency_.hold(block, Tier::device);
  }
  if (purpose != SwapOutPurpose::stage) residency_.begin_fill(block, Tier::host, host_slot);
  collected_.push_back({block, device_slot, host_slot, purpose, write});
}

void SwapOuts::begin(Run run, std::span<const SlotId> host_slots, SwapOutPurpose purpose) {
  TERRACE_CHECK(leaves(purpose));
  const std::span<const Copy> on_device = residency_.tree().copies(run, Tier::device);
  for (std::uint32_t i = 0; i < run.size(); ++i) {
    collected_.push_back({{run.node, run.begin + i}, on_device[i].slot(), host_slots[i], purpose, 0});
  }
  deferred_eviction_.hold_evicting(run, Tier::device);
  residency_.begin_swap_out(run, host_slots);
}

void SwapOuts::flush(std::uint64_t& last_transfer, PoolId pool) {
  if (collected_.empty()) return;
  // In order of the device slots, so that neighbouring slots become runs.
  std::ranges::sort(collected_, {}, [](const Block& block) { return block.device_slot; });
  // One transfer for each urgency: those that free slots for a waiting request go first.
  for (const Urgency urgency : {Urgency::request, Urgency::make_room, Urgency::store}) {
    Transfer transfer;
    std::vector<Block> blocks = spare_.take();
    pairs_.clear();
    for (const Block& block : collected_) {
      if (urgency_of(block) != urgency) continue;
      blocks.push_back(block);
      pairs_.push_back({block.device_slot, block.host_slot});
      transfer.after = std::max(transfer.after, residency_.pool(Tier::device).fence(block.device_slot));
    }
    if (blocks.empty()) {
      spare_.give(std::move(blocks));
      continue;
    }
    transfer.pool = pool;
    transfer.direction = Direction::swap_out;
    transfer.urgency = urgency;
    transfer.runs = actions_.spare_runs.take();
    coalesce(pairs_, transfer.runs);
    const auto ahead = static_cast<std::uint64_t>(std::ranges::count(blocks, SwapOutPurpose::evict_ahead, &Block::purpose));
    transfer.id = transfers_.add(last_transfer, std::move(blocks));
    if (ahead > 0) ahead_.push_back({transfer.id, ahead});
    ahead_blocks_ += ahead;
    actions_.transfers.push_back(std::move(transfer));
  }
  collected_.clear();
}

void SwapOuts::raise_ahead(std::uint64_t slots) {
  while (slots > 0 && !ahead_.empty()) {
    const Ahead oldest = ahead_.front();
    slots -= std::min(slots, oldest.blocks);
    actions_.raises.push_back(oldest.id);
    forget_ahead(oldest.id);
  }
}

void SwapOuts::forget_ahead(TransferId id) {
  const auto found = std::ranges::find(ahead_, id, &Ahead::id);
  if (found == ahead_.end()) return;
  ahead_blocks_ -= found->blocks;
  ahead_.erase(found);
}

Urgency SwapOuts::urgency_of(const Block& block) const {
  if (block.purpose == SwapOutPurpose::evict_ahead) return Urgency::make_room;
  // A request waits for the slot of an evicting copy, also if the block goes to storage.
  if (residency_.pool(Tier::device).evicting(block.device_slot)) return Urgency::request;
  return block.purpose == SwapOutPurpose::stage ? Urgency::store : Urgency::make_room;
}

bool SwapOuts::on_event(const TransferEvent& event) {
  if (event.kind == TransferEvent::Kind::confirmed) return on_confirmed(event.id);
  std::optional<std::vector<Block>> blocks = transfers_.take(event.id);
  if (!blocks) return false;
  forget_ahead(event.id);
  TERRACE_CHECK(event.outcomes.size() == blocks->size());
  for (std::size_t i = 0; i < blocks->size(); ++i) {
    finish((*blocks)[i], event.outcomes[i]);
    if (event.outcomes[i] == BlockOutcome::unconfirmed) unconfirmed_[event.id].push_back((*blocks)[i]);
  }
  spare_.give(std::move(*blocks));
  return true;
}

/// The device confirms that the transfer's unconfirmed blocks are not being copied any more.
bool SwapOuts::on_confirmed(TransferId id) {
  const auto found = unconfirmed_.find(id);
  if (found == unconfirmed_.end()) return false;
  const std::vector<Block> blocks = std::move(found->second);
  unconfirmed_.erase(found);
  for (const Block& block : blocks) {
    residency_.free_slot(Tier::host, block.host_slot);
    deferred_eviction_.reader_gone(block.block, Tier::device);
  }
  return true;
}

void SwapOuts::finish(const Block& entry, BlockOutcome outcome) {
  const bool arrived = outcome == BlockOutcome::done;
  const bool unconfirmed = outcome == BlockOutcome::unconfirmed;
  stats_.quarantined_late += unconfirmed ? 1 : 0;
  if (entry.purpose == SwapOutPurpose::stage) {
    staged_.push_back({entry.write, arrived});
    if (!arrived && !unconfirmed) residency_.free_slot(Tier::host, entry.host_slot);
  } else if (arrived) {
    residency_.publish(entry.block, Tier::host);
  } else {
    residency_.fail_fill(entry.block, Tier::host, unconfirmed ? FailedSlot::quarantine : FailedSlot::free);
  }
  // An unconfirmed transfer may still read the device slot.
  if (unconfirmed) return;

  deferred_eviction_.reader_gone(entry.block, Tier::device);
  // (The block still exists: it has a host copy.)
  if (!arrived || entry.purpose == SwapOutPurpose::stage) return;
  // The eviction was cancelled. In exclusive mode the block must not have two copies.
  if (leaves(entry.purpose) && inclusion_ == InclusionPolicy::exclusive && residency_.copy(entry.block, Tier::device).present() &&
      residency_.copy(entry.block, Tier::host).state() == CopyState::ready) {
    residency_.drop(entry.block, Tier::host);
    return;
  }
  deferred_eviction_.drop_unsupported(entry.block, Tier::host);
}

}  // namespace terrace
