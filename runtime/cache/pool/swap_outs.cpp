#include "runtime/cache/pool/swap_outs.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace terrace {

// The way of a swap-out. DeviceSlotAllocator::evict decides, and HostSlotAllocator::swap_out takes a host slot. begin() marks
// both copies. start_transfers(), at the end of CacheManager::settle(), makes the transfer, which ActionExecutor gives to the
// device. Cache::poll brings its end to on_event(). finish_evicted(), or finish() for each block, publishes the host copies and
// frees the device slots. The next DeviceSlotAllocator::pump() gives these slots to the first waiters.

void SwapOuts::hold(BlockRef block, SwapOutPurpose purpose) {
  if (evicts(purpose)) residency_.hold_evicting(block, Tier::device);
  else residency_.hold(block, Tier::device);
}

void SwapOuts::begin(BlockRef block, SlotId host_slot, SwapOutPurpose purpose, std::uint32_t write) {
  const SlotId device_slot = residency_.copy(block, Tier::device).slot();
  hold(block, purpose);
  // A staging slot does not hold a copy of the host tier.
  if (purpose != SwapOutPurpose::stage) residency_.begin_fill(block, Tier::host, host_slot);
  const auto piece = static_cast<std::uint32_t>(pieces_.size());
  pieces_.push_back({device_slot, host_slot, 1});
  collected_.push_back({{block.node, block.depth, block.depth + 1}, host_slot, purpose, write, piece, piece + 1});
}

void SwapOuts::begin(Run run, std::span<const SlotId> host_slots, SwapOutPurpose purpose) {
  TERRACE_CHECK(evicts(purpose));
  const std::span<const Copy> on_device = residency_.tree().copies(run, Tier::device);
  const auto piece = static_cast<std::uint32_t>(pieces_.size());
  pieces_.push_back({on_device[0].slot(), host_slots[0], 1});
  for (std::uint32_t i = 1; i < run.size(); ++i) append(pieces_, {on_device[i].slot(), host_slots[i], 1});
  collected_.push_back({run, host_slots[0], purpose, 0, piece, static_cast<std::uint32_t>(pieces_.size())});
  residency_.hold_evicting(run, Tier::device);
  residency_.begin_swap_out(run, host_slots);
}

void SwapOuts::start_transfers(std::uint64_t& last_transfer) {
  if (collected_.empty()) return;
  // Sorted by device slot, so that neighbouring slots become one run.
  std::ranges::sort(collected_, {}, [this](const Blocks& blocks) { return pieces(blocks).front().source; });
  // One transfer for each urgency. Each urgency has a lane (TransferScheduler), and the lanes decide which transfer starts first.
  for (const Urgency urgency : {Urgency::request, Urgency::make_room, Urgency::store}) {
    Transfer transfer;
    std::vector<Blocks> all = spare_.take();
    transfer.runs = actions_.spare_runs.take();
    std::uint64_t ahead = 0;
    for (const Blocks& blocks : collected_) {
      if (urgency_of(blocks) != urgency) continue;
      all.push_back(blocks);
      if (blocks.purpose == SwapOutPurpose::evict_ahead) ahead += blocks.run.size();
      for (const SlotRun& piece : pieces(blocks)) {
        append(transfer.runs, piece);
        // The transfer must not read a slot before compute has written it. A transfer has only one fence, so all its blocks wait
        // for the block that is written last.
        transfer.after = std::max(transfer.after, residency_.slots_of(Tier::device).fence({piece.source, piece.count}));
      }
    }
    if (all.empty()) {
      spare_.give(std::move(all));
      actions_.spare_runs.give(std::move(transfer.runs));
      continue;
    }
    transfer.direction = Direction::swap_out;
    transfer.urgency = urgency;
    // The transfer has no deadline: the slots that it frees can serve any request, and a copy under way cannot be cancelled.
    transfer.id = transfers_.add(last_transfer, std::move(all));
    if (ahead > 0) ahead_.push_back({transfer.id, ahead});
    ahead_blocks_ += ahead;
    actions_.transfers.push_back(std::move(transfer));
  }
  collected_.clear();
  pieces_.clear();
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

Urgency SwapOuts::urgency_of(const Blocks& blocks) const {
  if (blocks.purpose == SwapOutPurpose::evict_ahead) return Urgency::make_room;
  // Usually a request waits for the slot of an evicting copy, even if the purpose is `stage`. Under write-back, evict_ahead() and
  // a resize also evict through staging. Their swap-outs look the same here, so they are urgent, too.
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  for (const SlotRun& piece : pieces(blocks)) {
    for (std::uint32_t i = 0; i < piece.count; ++i) {
      if (device.evicting(SlotId{piece.source.value() + i})) return Urgency::request;
    }
  }
  // An inclusive copy makes room, too: with a copy in the host, the device copy can be dropped at once. If the purpose is
  // `evict`, a hit has cancelled the eviction, so no request waits for this slot.
  return blocks.purpose == SwapOutPurpose::stage ? Urgency::store : Urgency::make_room;
}

bool SwapOuts::on_event(const TransferEvent& event) {
  std::optional<std::vector<Blocks>> all = transfers_.take(event.id);
  if (!all) return false;
  forget_ahead(event.id);
  bool all_arrived = true;
  for (const BlockOutcome outcome : event.outcomes) {
    // Only a transfer whose deadline has passed can have unconfirmed blocks, and these transfers have none.
    TERRACE_CHECK(outcome != BlockOutcome::unconfirmed);
    all_arrived &= outcome == BlockOutcome::done;
  }
  std::span<const BlockOutcome> outcomes = event.outcomes;
  for (auto blocks = all->begin(); blocks != all->end();) {
    Run run = blocks->run;
    auto end = std::next(blocks);
    if (all_arrived && evicts(blocks->purpose)) {
      for (; end != all->end() && end->run.node == run.node && end->run.begin == run.end && evicts(end->purpose); ++end)
        run.end = end->run.end;
      TERRACE_CHECK(outcomes.size() >= run.size());
      if (finish_evicted(run)) {
        outcomes = outcomes.subspan(run.size());
        blocks = end;
        continue;
      }
    }
    for (; blocks != end; ++blocks) {
      TERRACE_CHECK(outcomes.size() >= blocks->run.size());
      for (std::uint32_t i = 0; i < blocks->run.size(); ++i)
        finish({blocks->run.node, blocks->run.begin + i}, *blocks, outcomes[i] == BlockOutcome::done);
      outcomes = outcomes.subspan(blocks->run.size());
    }
  }
  TERRACE_CHECK(outcomes.empty());
  spare_.give(std::move(*all));
  return true;
}

/// Ends the evictions of blocks whose bytes have all arrived. Returns false, and changes nothing, if finish() may do different
/// things for these blocks: a split has moved some of them, a request has pinned some, other transfers read some, blocks after
/// them stay on the device, or their host copies would have no support.
bool SwapOuts::finish_evicted(Run run) {
  const PrefixTree& tree = residency_.tree();
  const std::optional<Run> node = tree.blocks_in(run.node);
  if (!node || node->begin > run.begin || node->end < run.end || tree.pinned({run.node, run.begin})) return false;
  if (tree.any_staying_below({run.node, run.end - 1}, Tier::device)) return false;
  if (!residency_.supported({run.node, run.begin}, Tier::host) || !residency_.unhold_before_drop(run, Tier::device)) return false;
  residency_.publish(run, Tier::host);
  deferred_eviction_.drop_now(run, Tier::device, run.size());
  return true;
}

/// Ends the swap-out of one block.
void SwapOuts::finish(BlockRef block, const Blocks& of, bool arrived) {
  // The host copy comes first, because the drop of the device copy asks the host whether the block is lost, and whether copies
  // below it lose their support.
  if (of.purpose == SwapOutPurpose::stage) {
    staged_.push_back({of.write, arrived});
    if (!arrived) residency_.free_slot(Tier::host, of.host_slot);
  } else if (arrived) {
    residency_.publish(block, Tier::host);
  } else {
    residency_.fail_fill(block, Tier::host, FailedSlot::free);
  }
  // This ends the hold. If the device copy is still evicting, it is dropped here, and its slot is free.
  deferred_eviction_.reader_gone(block, Tier::device);
  // Without a host copy, the block may have left the tree with its device copy.
  if (!arrived || of.purpose == SwapOutPurpose::stage) return;
  // If the eviction was cancelled, the device copy is still there. In exclusive mode the block must not have two copies.
  if (evicts(of.purpose) && residency_.copy(block, Tier::device).present() && residency_.drop_second(block)) return;
  deferred_eviction_.drop_unsupported(block, Tier::host);
}

}  // namespace terrace
