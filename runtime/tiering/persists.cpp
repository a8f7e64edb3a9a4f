#include "runtime/tiering/persists.hpp"

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

/// What a chain will hang on must not be what storage gives up next, nor be called off.
void Persists::hang_on(BlockRef above, Wants wants) {
  if (residency_.stored(above)) actions_.touches.push_back(residency_.tree().key(above));
  want(above, wants);
}

Persists::Begun Persists::begin(BlockRef block, Wants wants, std::uint32_t blocks_max) {
  const PrefixTree& tree = residency_.tree();
  if (tree.hidden(block)) return {0, Errc::cleared};  // its key may stand for something else by now
  const bool bounded = wants == by_policy;
  if (bounded && full()) {  // before looking how far back storage is behind: that may be far
    ++stats_.persist_skipped;
    return {0, Errc::refused};
  }
  if (residency_.copy(block, Tier::storage).present()) {
    want(block, wants);
    return {};
  }
  chain_.clear();
  for (BlockRef at = block;; at = tree.parent(at)) {
    if (!has_source(at)) {
      if (bounded) ++stats_.persist_gone;
      return {0, Errc::not_found};
    }
    chain_.push_back(at);
    if (at.depth == 0) break;
    if (const BlockRef above = tree.parent(at); residency_.copy(above, Tier::storage).present()) {
      hang_on(above, wants);
      break;
    }
  }
  Begun begun;
  for (auto next = chain_.rbegin(); next != chain_.rend(); ++next) {
    const auto left = static_cast<std::uint64_t>(chain_.rend() - next);
    if (bounded && full()) {
      stats_.persist_skipped += left;
      return {begun.blocks, Errc::refused};
    }
    if (begun.blocks == blocks_max) return {begun.blocks, Errc::refused};
    if (!budget_.take(block_bytes_)) {
      if (bounded) stats_.persist_over_budget += left;
      return {begun.blocks, Errc::full};
    }
    create(*next, wants);
    ++begun.blocks;
  }
  return begun;
}

Persists::Saved Persists::save_now(BlockRef block) {
  const PrefixTree& tree = residency_.tree();
  if (tree.hidden(block)) {
    ++stats_.persist_cancelled;
    return Saved::refused;
  }
  chain_.clear();
  for (BlockRef at = block; !residency_.saved(at); at = tree.parent(at)) {
    if (!has_source(at)) return not_now();
    if (chain_.size() == residency_.staging_free()) {
      // What it builds on goes next: by then some of that may be saved.
      const bool spent = block.depth > 0 && begin(tree.parent(block)).why == Errc::full;
      return spent ? Saved::refused : not_now();
    }
    chain_.push_back(at);
    if (at.depth == 0) break;
  }
  if (chain_.empty()) return Saved::yes;
  if (const BlockRef first = chain_.back(); first.depth > 0) hang_on(tree.parent(first), by_policy);
  for (auto next = chain_.rbegin(); next != chain_.rend(); ++next) {
    if (Persist* const wish = persist_of(*next)) {
      add_wants(*wish, by_policy);
    } else if (budget_.take(block_bytes_)) {
      create(*next, by_policy);
    } else {
      stats_.persist_over_budget += static_cast<std::uint64_t>(chain_.rend() - next);
      return Saved::refused;
    }
    TERRACE_CHECK(start(static_cast<std::uint32_t>(persist_of(*next) - persists_.data())));
  }
  return Saved::yes;
}

/// A storage that fails is not waited for; what is under way will tell whether it still does.
Persists::Saved Persists::not_now() {
  if (!failing_ || started_ > 0) return Saved::later;
  ++stats_.persist_failed;
  return Saved::refused;
}

/// The persist of a block that is on its way.
Persists::Persist* Persists::persist_of(BlockRef block) {
  const Copy copy = residency_.copy(block, Tier::storage);
  return copy.state() == CopyState::filling ? &persists_[by_number_[copy.slot().value()]] : nullptr;
}

void Persists::want(BlockRef block, Wants wants) {
  for (Persist* persist = persist_of(block); persist != nullptr; persist = persist_of(block)) {
    // Whoever wants a block wants what it builds on: from here on up they do already.
    if ((persist->wants & wants) == wants) return;
    add_wants(*persist, wants);
    if (block.depth == 0) return;
    block = residency_.tree().parent(block);
  }
}

void Persists::add_wants(Persist& persist, Wants wants) {
  for (Wants left = wants & ~persist.wants; left != 0; left &= left - 1) ++wanted_[std::countr_zero(left)];
  persist.wants |= wants;
  if (persist.doomed == Errc::cancelled) persist.doomed = {};
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
  const std::uint32_t number = residency_.begin_store(block);
  if (number >= by_number_.size()) by_number_.resize(std::size_t{number} + 1, nobody);
  by_number_[number] = index;

  Persist& persist = persists_[index];
  TERRACE_CHECK(persist.state == State::unused && persist.first_child == nobody);
  persist.block = block;
  persist.number = number;
  persist.state = State::wish;
  persist.turn = ++last_turn_;
  add_wants(persist, wants);
  wishes_.push_back({index, persist.turn});
  return index;
}

bool Persists::pump() {
  const bool started = start_wishes();
  const bool written = give_to_store();
  return started || written;
}

bool Persists::start_wishes() {
  bool changed = false;
  while (!wishes_.empty()) {
    const auto [index, turn] = wishes_.front();
    const Persist& wish = persists_[index];
    if (wish.state == State::wish && wish.turn == turn) {  // (else it was started ahead of its turn)
      if (const ErrorCode why = hopeless(wish)) {
        finish(index, why);
      } else if (is_leaving(wish.block) || !start(index)) {
        break;
      }
      changed = true;
    }
    wishes_.pop_front();
  }
  return changed;
}

/// The block's only copy is being swapped out, which another reader would hold up: soon it is in the host.
bool Persists::is_leaving(BlockRef block) const {
  return !residency_.usable(block, Tier::host) && residency_.copy(block, Tier::device).state() == CopyState::leaving;
}

/// Why a wish whose turn has come is dropped, if it is.
ErrorCode Persists::hopeless(const Persist& wish) const {
  if (wish.doomed) return wish.doomed;
  if (!has_source(wish.block)) return Errc::not_found;
  if (wish.block.depth == 0 || residency_.saved(residency_.tree().parent(wish.block))) return {};
  return Errc::parent_missing;
}

/// Takes the wish's slot's worth of staging, and its bytes there. False where staging is full.
bool Persists::start(std::uint32_t index) {
  Persist& persist = persists_[index];
  const bool in_host = residency_.usable(persist.block, Tier::host);
  const std::optional<SlotId> slot = in_host ? residency_.lend_host(persist.block) : residency_.take_staging();
  if (!slot) return false;
  persist.slot = *slot;
  ++started_;
  residency_.start_store(persist.block);
  if (in_host) {
    queue_or_wait(index);
  } else {
    persist.state = State::staging;
    swap_outs_.begin(persist.block, *slot, SwapOutPurpose::stage, index);
  }
  return true;
}

bool Persists::give_to_store() {
  bool changed = false;
  while (!queued_.empty() && writing_ < writes_max) {
    const std::uint32_t index = queued_.front();
    queued_.pop_front();
    Persist& persist = persists_[index];
    TERRACE_CHECK(persist.state == State::queued);
    if (!persist.doomed && !parent_is_with_store(persist)) persist.doomed = Errc::parent_missing;  // it failed meanwhile
    if (persist.doomed) {
      finish(index, persist.doomed);
    } else {
      submit(index);
    }
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

bool Persists::parent_is_with_store(const Persist& persist) {
  if (persist.block.depth == 0) return true;
  const BlockRef above = residency_.tree().parent(persist.block);
  if (const Persist* const parent = persist_of(above)) return parent->state == State::writing;
  return residency_.stored(above);
}

void Persists::queue_or_wait(std::uint32_t index) {
  Persist& persist = persists_[index];
  persist.state = State::waiting_for_parent;
  if (persist.doomed) return finish(index, persist.doomed);
  if (parent_is_with_store(persist)) {
    persist.state = State::queued;
    queued_.push_back(index);
    return;
  }
  // A parent that failed meanwhile may be wished for again. It is not waited for: it might wait for the very slot held here.
  Persist* const parent = persist_of(residency_.tree().parent(persist.block));
  if (parent == nullptr || parent->state == State::wish) return finish(index, Errc::parent_missing);
  persist.next_sibling = std::exchange(parent->first_child, index);
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
  failing_ = error && error != Errc::parent_missing;
  finish(index, error);
}

void Persists::finish(std::uint32_t index, ErrorCode error) {
  Persist& persist = persists_[index];
  const Persist ended = persist;
  persist = {};
  free_.push_back(index);
  by_number_[ended.number] = nobody;
  if (ended.state != State::wish) --started_;
  ++ended_count_;
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
    count_not_stored(error);
    const ErrorCode why_below = error == Errc::cancelled || error == Errc::cleared ? error : Errc::parent_missing;
    std::uint32_t child = ended.first_child;
    while (child != nobody) finish(std::exchange(child, persists_[child].next_sibling), why_below);
  }
  // (A copy that did not arrive gives its slot back itself.)
  if (ended.state != State::wish && ended.state != State::staging) residency_.end_staging(ended.slot);
  // Without another copy the block leaves the tree.
  const bool stays = residency_.copy(ended.block, Tier::device).present() || residency_.copy(ended.block, Tier::host).present();
  if (error) residency_.forget_stored(ended.block);
  if (stays) departures_.not_needed(ended.block);
}

void Persists::count_not_stored(ErrorCode why) {
  if (why == Errc::not_found) ++stats_.persist_gone;
  else if (why == Errc::parent_missing) ++stats_.persist_orphaned;
  else if (why == Errc::cancelled || why == Errc::cleared) ++stats_.persist_cancelled;
  else ++stats_.persist_failed;
}

void Persists::doom_all() {
  for (Persist& persist : persists_) {
    if (persist.state != State::unused && persist.state != State::writing) persist.doomed = Errc::cleared;
  }
}

}  // namespace terrace
