#include "runtime/swap_outs.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {

void SwapOuts::begin(BlockRef block, SlotId host_slot, SwapOutPurpose purpose, std::uint32_t persist) {
  const Block entry{block, residency_.copy(block, Tier::device).slot(), host_slot, purpose, persist};
  if (purpose == SwapOutPurpose::evict) {
    departures_.hold_leaving(block, Tier::device);
  } else {
    residency_.hold(block, Tier::device);
  }
  if (purpose != SwapOutPurpose::stage) residency_.begin_fill(block, Tier::host, host_slot);
  collected_.push_back(entry);
  if (instant_) finish(entry, BlockOutcome::done);
}

void SwapOuts::flush(JobId& next_job, PoolId pool) {
  // In the order of the slots, so that neighbours become runs. Instant copies keep the order in which they were decided: one
  // may use what another gave up.
  if (!instant_) std::ranges::sort(collected_, {}, [](const Block& block) { return block.device_slot; });
  // One plan per urgency: what a request's room waits for goes before what nobody does.
  for (const Urgency urgency : {Urgency::request, Urgency::make_room, Urgency::persist}) {
    TransferPlan plan;
    std::vector<Block> blocks;
    pairs_.clear();
    for (const Block& block : collected_) {
      if (urgency_of(block) != urgency) continue;
      blocks.push_back(block);
      pairs_.push_back({block.device_slot, block.host_slot});
      plan.after = std::max(plan.after, residency_.pool(Tier::device).fence(block.device_slot));
    }
    if (blocks.empty()) continue;
    next_job = JobId{next_job.value() + 1};
    plan.job = next_job;
    plan.pool = pool;
    plan.direction = Direction::swap_out;
    plan.urgency = urgency;
    plan.runs = coalesce(pairs_);
    actions_.plans.push_back(std::move(plan));
    jobs_.emplace(next_job.value(), std::move(blocks));
  }
  collected_.clear();
}

Urgency SwapOuts::urgency_of(const Block& block) const {
  // A copy that leaves, by way of storage too, makes room that somebody waits for.
  if (residency_.pool(Tier::device).leaving(block.device_slot)) return Urgency::request;
  return block.purpose == SwapOutPurpose::stage ? Urgency::persist : Urgency::make_room;
}

bool SwapOuts::on_event(const TransferEvent& event) {
  const auto job = jobs_.find(event.job.value());
  if (job == jobs_.end()) return false;
  std::vector<Block> blocks = std::move(job->second);
  jobs_.erase(job);
  if (instant_) return true;

  if (event.kind == TransferEvent::Kind::confirmed) {
    for (const Block& block : blocks) {
      residency_.pool(Tier::host).put(block.host_slot);
      departures_.reader_gone(block.block, Tier::device);
    }
    return true;
  }
  TERRACE_CHECK(event.outcomes.size() == blocks.size());
  std::vector<Block> unconfirmed;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    finish(blocks[i], event.outcomes[i]);
    if (event.outcomes[i] == BlockOutcome::unconfirmed) unconfirmed.push_back(blocks[i]);
  }
  if (!unconfirmed.empty()) jobs_.emplace(event.job.value(), std::move(unconfirmed));
  return true;
}

void SwapOuts::finish(const Block& entry, BlockOutcome outcome) {
  const bool arrived = outcome == BlockOutcome::done;
  const bool unconfirmed = outcome == BlockOutcome::unconfirmed;
  if (entry.purpose == SwapOutPurpose::stage) {
    staged_({entry.block, entry.host_slot, entry.persist, arrived});
    if (!arrived && !unconfirmed) residency_.pool(Tier::host).put(entry.host_slot);
  } else if (arrived) {
    residency_.publish(entry.block, Tier::host);
  } else {
    residency_.fail_fill(entry.block, Tier::host, unconfirmed ? FailedSlot::quarantine : FailedSlot::free);
  }
  // An unconfirmed transfer may still read the device slot.
  if (unconfirmed) return;

  departures_.reader_gone(entry.block, Tier::device);
  // (With its host copy there, the block surely still is.)
  if (!arrived || entry.purpose == SwapOutPurpose::stage) return;
  // Rescued; exclusive wants no second copy.
  if (entry.purpose == SwapOutPurpose::evict && relation_ == Relation::exclusive &&
      residency_.copy(entry.block, Tier::device).present() &&
      residency_.copy(entry.block, Tier::host).state() == CopyState::ready) {
    residency_.drop(entry.block, Tier::host);
    return;
  }
  departures_.drop_unsupported(entry.block, Tier::host);
}

}  // namespace terrace
