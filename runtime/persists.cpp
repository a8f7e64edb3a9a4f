#include "runtime/persists.hpp"

#include "base/check.hpp"

#include <bit>
#include <utility>

namespace terrace {

Persists::Persists(Residency& residency, Departures& departures, SwapOuts& swap_outs, Actions& actions, ManagerStats& stats,
                   WriteBudget& budget, Flushes& flushes)
    : residency_{residency},
      departures_{departures},
      swap_outs_{swap_outs},
      actions_{actions},
      stats_{stats},
      budget_{budget},
      flushes_{flushes} {
  swap_outs_.set_staged_handler([this](const SwapOuts::Staged& staged) { on_staged(staged); });
}

bool Persists::has_source(BlockRef block) const {
  return residency_.usable(block, Tier::host) || residency_.usable(block, Tier::device);
}

Persists::Begun Persists::begin(BlockRef block, Wants wants, std::uint32_t blocks_max) {
  if (residency_.tree().hidden(block)) return {0, Errc::cleared};  // its key may stand for something else by now
  const bool bounded = slow_ && wants == by_policy;
  if (bounded && in_flight_ >= slow_backlog_max) {  // before looking how far back storage is behind: that may be far
    ++stats_.persist_skipped;
    return {0, Errc::refused};
  }
  chain_.clear();
  BlockRef at = block;
  for (; !residency_.copy(at, Tier::storage).present(); at = residency_.tree().parent(at)) {
    if (!has_source(at)) return {0, Errc::not_found};
    chain_.push_back(at);
    if (at.depth == 0) break;
  }
  if (chain_.empty() || chain_.back().depth > 0) {
    const BlockRef above = chain_.empty() ? block : residency_.tree().parent(chain_.back());
    // What the chain will hang on must not be what storage gives up next, nor be called off.
    if (residency_.stored(above) && !chain_.empty()) actions_.touches.push_back(residency_.tree().key(above));
    want(above, wants);
  }
  Begun begun;
  for (auto next = chain_.rbegin(); next != chain_.rend(); ++next) {
    const auto left = static_cast<std::uint64_t>(chain_.rend() - next);
    if (bounded && in_flight_ >= slow_backlog_max) {
      stats_.persist_skipped += left;
      return {begun.blocks, Errc::refused};
    }
    if (begun.blocks == blocks_max) return {begun.blocks, Errc::refused};
    if (!budget_.take(block_bytes_)) {
      if (wants == by_policy) stats_.persist_over_budget += left;
      return {begun.blocks, Errc::full};
    }
    create(*next, wants);
    ++begun.blocks;
  }
  return begun;
}

void Persists::want(BlockRef block, Wants wants) {
  for (;; block = residency_.tree().parent(block)) {
    const Copy copy = residency_.copy(block, Tier::storage);
    if (copy.state() != CopyState::filling) return;
    Persist& persist = persists_[by_number_[copy.slot().value()]];
    // Whoever wants a block wants what it builds on: from here on up they do already.
    if ((persist.wants & wants) == wants) return;
    add_wants(persist, wants);
    if (block.depth == 0) return;
  }
}

void Persists::add_wants(Persist& persist, Wants wants) {
  for (Wants left = wants & ~persist.wants; left != 0; left &= left - 1) ++wanted_[std::countr_zero(left)];
  persist.wants |= wants;
}

void Persists::unwant_all(Wants wants, std::vector<BlockKey>& keys) {
  for (Persist& persist : persists_) {
    if (persist.state == State::unused || (persist.wants & wants) == 0) continue;
    for (Wants left = wants & persist.wants; left != 0; left &= left - 1) --wanted_[std::countr_zero(left)];
    persist.wants &= ~wants;
    keys.push_back(residency_.tree().key(persist.block));
    if (persist.wants == 0 && persist.state != State::writing && !persist.doomed) persist.doomed = Errc::cancelled;
  }
}

std::uint32_t Persists::create(BlockRef block, Wants wants) {
  std::uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<std::uint32_t>(persists_.size());
    persists_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  ++in_flight_;
  const std::uint32_t number = residency_.begin_store(block);
  if (number >= by_number_.size()) by_number_.resize(std::size_t{number} + 1, nobody);
  by_number_[number] = index;

  Persist& persist = persists_[index];
  TERRACE_CHECK(persist.state == State::unused && persist.first_child == nobody);
  persist.block = block;
  persist.number = number;
  add_wants(persist, wants);
  persist.from_staging = !residency_.usable(block, Tier::host);
  if (persist.from_staging) {
    residency_.hold(block, Tier::device);
    persist.state = State::waiting_for_staging;
    waiting_.push_back(index);
  } else {
    residency_.hold(block, Tier::host);
    persist.slot = residency_.copy(block, Tier::host).slot();
    queue_or_wait(index);
  }
  return index;
}

bool Persists::can_stage_now(BlockRef block) const {
  if (!waiting_.empty()) return false;
  const PrefixTree& tree = residency_.tree();
  for (std::uint64_t free = residency_.staging_free(); !residency_.copy(block, Tier::storage).present(); --free) {
    if (free == 0) return false;
    if (block.depth == 0) return true;
    block = tree.parent(block);
  }
  return true;
}

void Persists::on_gone(BlockRef block) {
  doom_below(block, Errc::parent_missing);
  residency_.forget_stored(block);
}

bool Persists::pump() {
  const bool staged = give_staging();
  const bool written = give_to_store();
  return staged || written;
}

bool Persists::give_to_store() {
  bool changed = false;
  while (!queued_.empty() && writing_ < writes_max) {
    const std::uint32_t index = queued_.front();
    queued_.pop_front();
    TERRACE_CHECK(persists_[index].state == State::queued);
    if (persists_[index].doomed) {
      finish(index, persists_[index].doomed);
    } else {
      submit(index);
    }
    changed = true;
  }
  return changed;
}

bool Persists::give_staging() {
  bool changed = false;
  while (!waiting_.empty()) {
    const std::uint32_t index = waiting_.front();
    const BlockRef block = persists_[index].block;
    TERRACE_CHECK(persists_[index].state == State::waiting_for_staging);
    if (persists_[index].doomed) {
      waiting_.pop_front();
      finish(index, persists_[index].doomed);
      changed = true;
      continue;
    }
    const std::optional<SlotId> slot = residency_.take_staging();
    if (!slot) break;
    waiting_.pop_front();
    persists_[index].slot = *slot;
    persists_[index].state = State::staging;
    swap_outs_.begin(block, *slot, SwapOutPurpose::stage, index);
    departures_.reader_gone(block, Tier::device);  // the copy has its own reader now
    changed = true;
  }
  return changed;
}

void Persists::on_staged(const SwapOuts::Staged& staged) {
  TERRACE_CHECK(persists_[staged.persist].state == State::staging);
  if (staged.arrived) {
    queue_or_wait(staged.persist);
  } else {
    finish(staged.persist, Errc::io_failed);
  }
}

void Persists::queue_or_wait(std::uint32_t index) {
  Persist& persist = persists_[index];
  persist.state = State::waiting_for_parent;
  if (persist.doomed) return finish(index, persist.doomed);
  if (persist.block.depth > 0) {
    const Copy above = residency_.copy(residency_.tree().parent(persist.block), Tier::storage);
    if (!above.present()) return finish(index, Errc::parent_missing);  // storage gave it up meanwhile
    if (above.state() == CopyState::filling) {
      Persist& parent = persists_[by_number_[above.slot().value()]];
      if (parent.state != State::writing) {
        persist.next_sibling = std::exchange(parent.first_child, index);
        return;
      }
    }
  }
  persist.state = State::queued;
  queued_.push_back(index);
}

void Persists::submit(std::uint32_t index) {
  Persist& persist = persists_[index];
  persist.state = State::writing;
  ++writing_;
  WriteOrder order;
  order.token = persist.number;
  order.block.key = residency_.tree().key(persist.block);
  order.block.depth = persist.block.depth;
  order.block.name_space = residency_.tree().name_space(persist.block);
  order.block.group = residency_.tree().group(persist.block);
  if (const auto parent = residency_.tree().parent_key(persist.block)) order.block.parent = *parent;
  order.from = persist.slot;
  actions_.writes.push_back(order);

  std::uint32_t child = std::exchange(persist.first_child, nobody);
  while (child != nobody) queue_or_wait(std::exchange(child, persists_[child].next_sibling));
}

void Persists::on_written(std::uint32_t number, ErrorCode error) {
  const std::uint32_t index = by_number_[number];
  TERRACE_CHECK(index != nobody && persists_[index].state == State::writing);
  finish(index, error);
}

void Persists::finish(std::uint32_t index, ErrorCode error) {
  Persist& persist = persists_[index];
  const Persist ended = persist;
  persist = {};
  free_.push_back(index);
  by_number_[ended.number] = nobody;
  --in_flight_;
  for (Wants left = ended.wants; left != 0; left &= left - 1) --wanted_[std::countr_zero(left)];
  if (ended.state == State::writing) {
    --writing_;
  } else {
    budget_.give_back(block_bytes_);
  }
  if ((ended.wants & ~by_policy) != 0) ended_(ended.wants, residency_.tree().key(ended.block), error);

  if (!error) {
    TERRACE_CHECK(ended.first_child == nobody);
    residency_.publish_stored(ended.block);
    flushes_.on_stored();
  } else {
    ++stats_.persist_failed;
    const ErrorCode why_below = error == Errc::cancelled || error == Errc::cleared ? error : Errc::parent_missing;
    doom_below(ended.block, why_below);
    std::uint32_t child = ended.first_child;
    while (child != nobody) finish(std::exchange(child, persists_[child].next_sibling), why_below);
    // A copy that is still read keeps the block in the tree; without one it may leave it with this.
    residency_.forget_stored(ended.block);
  }
  if (!ended.from_staging) {
    departures_.reader_gone(ended.block, Tier::host);
  } else if (ended.state == State::waiting_for_staging) {
    departures_.reader_gone(ended.block, Tier::device);
  } else if (ended.state != State::staging) {
    residency_.pool(Tier::host).put(ended.slot);  // (a copy that did not arrive gives its slot back itself)
  }
}

void Persists::doom_all() {
  for (Persist& persist : persists_) {
    if (persist.state != State::unused && persist.state != State::writing) persist.doomed = Errc::cleared;
  }
}

/// What is on its way below a block that failed cannot be stored; what is with the store already hears so from there. At once,
/// and for good: were it to wait for a second attempt at its ancestor, it might hold the staging slot that the attempt needs.
void Persists::doom_below(BlockRef block, ErrorCode why) {
  const PrefixTree& tree = residency_.tree();
  if (!tree.any_staying_below(block, Tier::storage)) return;
  for (Persist& persist : persists_) {
    if (persist.state == State::unused || persist.state == State::writing || persist.block.depth <= block.depth) continue;
    if (tree.same({persist.block.node, block.depth}, block)) persist.doomed = why;
  }
}

}  // namespace terrace
