#include "runtime/cache/pool/storage_writer.hpp"

#include "base/check.hpp"

#include <bit>
#include <utility>

namespace terrace {

/// Keeps the ancestor `above` that new pending writes depend on. If it is stored, the store renews it, so that it is not evicted
/// next. If it is pending, it gets the same wants, so that it is not cancelled.
void StorageWriter::depend_on(BlockRef above, Wants wants) {
  if (residency_.stored(above)) actions_.touches.push_back(residency_.tree().key(above));
  want(above, wants);
}

StorageWriter::Begun StorageWriter::begin(BlockRef block, Wants wants, std::uint32_t blocks_max) {
  const PrefixTree& tree = residency_.tree();
  if (tree.hidden(block)) return {0, Errc::cleared};  // after a clear, its key may name a block with other contents
  const bool bounded = wants == by_policy;
  if (bounded && full()) {  // checked first, because the walk to the first stored ancestor may be long
    ++stats_.store_skipped;
    return {0, Errc::refused};
  }
  if (residency_.copy(block, Tier::storage).present()) {
    want(block, wants);
    return {};
  }
  chain_.clear();
  for (BlockRef at = block;; at = tree.parent(at)) {
    if (!has_source(at)) {
      if (bounded) ++stats_.store_gone;
      return {0, Errc::not_found};
    }
    chain_.push_back(at);
    if (at.depth == 0) break;
    if (const BlockRef above = tree.parent(at); residency_.copy(above, Tier::storage).present()) {
      depend_on(above, wants);
      break;
    }
  }
  Begun begun;
  for (auto next = chain_.rbegin(); next != chain_.rend(); ++next) {
    const auto left = static_cast<std::uint64_t>(chain_.rend() - next);
    if (bounded && full()) {
      stats_.store_skipped += left;
      return {begun.blocks, Errc::refused};
    }
    if (begun.blocks == blocks_max) return {begun.blocks, Errc::refused};
    if (!budget_.take(block_bytes_)) {
      if (bounded) stats_.store_over_budget += left;
      return {begun.blocks, Errc::full};
    }
    create(*next, wants);
    ++begun.blocks;
  }
  return begun;
}

bool StorageWriter::lets_go(BlockRef victim, Unsaved unsaved) {
  if (!config_.stores_by(WritePolicy::write_back) || residency_.saved(victim)) return true;
  if (unsaved == Unsaved::stays) return false;
  if (save_now(victim) != Saved::later) return true;
  if (unsaved == Unsaved::is_saved) return false;
  ++stats_.store_no_room;
  return true;
}

/// Starts the write of the block and of its ancestors at once, before other wishes. If staging has no room for all of them, the
/// ancestors become wishes.
StorageWriter::Saved StorageWriter::save_now(BlockRef block) {
  const PrefixTree& tree = residency_.tree();
  if (tree.hidden(block)) {
    ++stats_.store_cancelled;
    return Saved::refused;
  }
  chain_.clear();
  for (BlockRef at = block; !residency_.saved(at); at = tree.parent(at)) {
    if (!has_source(at) || (!residency_.usable(at, Tier::host) && !swap_outs_.allowed())) return later_or_refused();
    chain_.push_back(at);
    // If copies from the device cannot begin now, a wish for an ancestor that only the device has is dropped at once, and its end
    // would make the caller try again without end. So in this case the rest of the chain is looked at, too.
    if (at.depth == 0 || (chain_.size() > residency_.staging_free() && swap_outs_.allowed())) break;
  }
  if (chain_.size() > residency_.staging_free()) {
    // Staging has too few slots for the whole chain. Its ancestors become wishes; when they are stored, staging may have room for
    // this block.
    const bool spent = block.depth > 0 && begin(tree.parent(block)).why == Errc::full;
    return spent ? Saved::refused : later_or_refused();
  }
  if (chain_.empty()) return Saved::yes;
  if (const BlockRef first = chain_.back(); first.depth > 0) depend_on(tree.parent(first), by_policy);
  for (auto next = chain_.rbegin(); next != chain_.rend(); ++next) {
    if (PendingWrite* const wish = pending_write_of(*next)) {
      add_wants(*wish, by_policy);
    } else if (budget_.take(block_bytes_)) {
      create(*next, by_policy);
    } else {
      stats_.store_over_budget += static_cast<std::uint64_t>(chain_.rend() - next);
      return Saved::refused;
    }
    TERRACE_CHECK(start(by_number_[residency_.copy(*next, Tier::storage).slot().value()]));
  }
  return Saved::yes;
}

/// Returns `later`. Returns `refused` if the last write failed and none is under way: nothing would show that storage works
/// again, and the caller would wait for ever.
StorageWriter::Saved StorageWriter::later_or_refused() {
  if (!failing_ || started_ > 0) return Saved::later;
  ++stats_.store_failed;
  return Saved::refused;
}

/// Returns the pending write of the block, or nullptr.
StorageWriter::PendingWrite* StorageWriter::pending_write_of(BlockRef block) {
  const Copy copy = residency_.copy(block, Tier::storage);
  return copy.state() == CopyState::filling ? &pending_.at(by_number_[copy.slot().value()]) : nullptr;
}

void StorageWriter::want(BlockRef block, Wants wants) {
  for (PendingWrite* write = pending_write_of(block); write != nullptr; write = pending_write_of(block)) {
    // Invariant: a pending ancestor has all wants of the blocks below it. So the ancestors have these wants already.
    if ((write->wants & wants) == wants) return;
    add_wants(*write, wants);
    if (block.depth == 0) return;
    block = residency_.tree().parent(block);
  }
}

void StorageWriter::add_wants(PendingWrite& write, Wants wants) {
  for (Wants left = wants & ~write.wants; left != 0; left &= left - 1) ++wanted_[std::countr_zero(left)];
  write.wants |= wants;
  if (write.stop_with == Errc::cancelled) write.stop_with = {};
}

void StorageWriter::unwant_all(Wants wants, std::vector<BlockKey>& keys) {
  pending_.for_each([&](std::uint32_t, PendingWrite& write) {
    if ((write.wants & wants) == 0) return;
    for (Wants left = wants & write.wants; left != 0; left &= left - 1) --wanted_[std::countr_zero(left)];
    write.wants &= ~wants;
    keys.push_back(residency_.tree().key(write.block));
    if (write.wants == 0 && write.state != State::writing && !write.stop_with) write.stop_with = Errc::cancelled;
  });
}

void StorageWriter::create(BlockRef block, Wants wants) {
  const std::uint32_t number = residency_.begin_store(block);
  if (number >= by_number_.size()) by_number_.resize(std::size_t{number} + 1, no_write);
  by_number_[number] = pending_.add({.block = block, .number = number, .turn = ++last_turn_});
  add_wants(pending_.at(by_number_[number]), wants);
  wishes_.push_back({by_number_[number], last_turn_});
}

bool StorageWriter::start_wishes() {
  bool changed = false;
  while (!wishes_.empty()) {
    const auto [index, turn] = wishes_.front();
    const PendingWrite* const wish = pending_.find(index);
    // Otherwise save_now() has started it before its turn.
    const bool is_its_turn = wish != nullptr && wish->state == State::wish && wish->turn == turn;
    if (is_its_turn) {
      if (const ErrorCode why = reason_to_drop(*wish)) {
        finish(index, why);
      } else if (is_being_evicted(wish->block) || !start(index)) {
        break;
      }
      changed = true;
    }
    wishes_.pop_front();
  }
  return changed;
}

/// Returns the reason to drop a wish whose turn has come, or no error.
ErrorCode StorageWriter::reason_to_drop(const PendingWrite& wish) const {
  if (wish.stop_with) return wish.stop_with;
  if (!has_source(wish.block)) return Errc::not_found;
  if (!residency_.usable(wish.block, Tier::host) && !swap_outs_.allowed()) return Errc::io_failed;
  if (wish.block.depth == 0 || residency_.saved(residency_.tree().parent(wish.block))) return {};
  return Errc::parent_missing;
}

/// Starts a wish: takes a slot of staging, and brings the bytes there. Returns false if staging is full.
bool StorageWriter::start(std::uint32_t index) {
  PendingWrite& write = pending_.at(index);
  const bool in_host = residency_.usable(write.block, Tier::host);
  const std::optional<SlotId> slot = in_host ? residency_.lend_host(write.block) : residency_.take_staging();
  if (!slot) return false;
  write.slot = *slot;
  ++started_;
  residency_.start_store(write.block);
  if (in_host) {
    queue_or_wait(index);
  } else {
    write.state = State::staging;
    swap_outs_.begin(write.block, *slot, SwapOutPurpose::stage, index);
  }
  return true;
}

void StorageWriter::on_staged(const SwapOuts::Staged& staged) {
  TERRACE_CHECK(pending_.at(staged.write).state == State::staging);
  if (staged.arrived) {
    queue_or_wait(staged.write);
  } else {
    finish(staged.write, Errc::io_failed);
  }
}

bool StorageWriter::parent_is_with_store(const PendingWrite& write) {
  if (write.block.depth == 0) return true;
  const BlockRef above = residency_.tree().parent(write.block);
  if (const PendingWrite* const parent = pending_write_of(above)) return parent->state == State::writing;
  return residency_.stored(above);
}

void StorageWriter::queue_or_wait(std::uint32_t index) {
  PendingWrite& write = pending_.at(index);
  write.state = State::waiting_for_parent;
  if (write.stop_with) return finish(index, write.stop_with);
  if (parent_is_with_store(write)) {
    write.state = State::queued;
    queued_.push_back(index);
    return;
  }
  // If the parent has no write under way, it has failed, and may be a wish again. This write must not wait for a wish: the wish
  // may need the staging slot that this write holds.
  PendingWrite* const parent = pending_write_of(residency_.tree().parent(write.block));
  if (parent == nullptr || parent->state == State::wish) return finish(index, Errc::parent_missing);
  write.next_sibling = std::exchange(parent->first_child, index);
}

bool StorageWriter::give_to_store() {
  bool changed = false;
  while (!queued_.empty() && writing_ < writes_max) {
    const std::uint32_t index = queued_.front();
    queued_.pop_front();
    PendingWrite& write = pending_.at(index);
    TERRACE_CHECK(write.state == State::queued);
    // The parent may have failed after this write was queued.
    if (!write.stop_with && !parent_is_with_store(write)) write.stop_with = Errc::parent_missing;
    if (write.stop_with) {
      finish(index, write.stop_with);
    } else {
      submit(index);
    }
    changed = true;
  }
  return changed;
}

void StorageWriter::submit(std::uint32_t index) {
  PendingWrite& write = pending_.at(index);
  write.state = State::writing;
  ++writing_;
  actions_.writes.push_back({write.number, as_stored(write.block), write.slot});

  std::uint32_t child = std::exchange(write.first_child, no_write);
  while (child != no_write) queue_or_wait(std::exchange(child, pending_.at(child).next_sibling));
}

void StorageWriter::on_written(std::uint32_t number, ErrorCode error) {
  const std::uint32_t index = by_number_[number];
  TERRACE_CHECK(index != no_write && pending_.at(index).state == State::writing);
  // parent_missing is about another block. It does not tell whether the store accepts writes.
  if (error != Errc::parent_missing) failing_ = static_cast<bool>(error);
  finish(index, error);
}

void StorageWriter::finish(std::uint32_t index, ErrorCode error) {
  const PendingWrite ended = pending_.take(index);
  by_number_[ended.number] = no_write;
  if (ended.state != State::wish) --started_;
  ++ended_count_;
  for (Wants left = ended.wants; left != 0; left &= left - 1) --wanted_[std::countr_zero(left)];
  if (ended.state == State::writing) {
    --writing_;
  } else {
    // The store was not given the block, so it wrote nothing.
    budget_.give_back(block_bytes_);
  }
  if ((ended.wants & ~by_policy) != 0) ended_.push_back({ended.wants, residency_.tree().key(ended.block), error});

  if (!error) {
    TERRACE_CHECK(ended.first_child == no_write);
    residency_.publish_stored(ended.block);  // readable now, and durable after the next flush (FlushScheduler)
    flushes_.on_stored();
  } else {
    count_not_stored(error);
    // The store needs the parent of a block. So the writes that wait for this one fail with it.
    const ErrorCode why_below = error == Errc::cancelled || error == Errc::cleared ? error : Errc::parent_missing;
    std::uint32_t child = ended.first_child;
    while (child != no_write) finish(std::exchange(child, pending_.at(child).next_sibling), why_below);
  }
  // In state staging, the copy did not arrive, and SwapOuts frees its slot.
  if (ended.state != State::wish && ended.state != State::staging) residency_.end_staging(ended.slot);
  // Checked before forget_stored(): a block without any copy leaves the tree, and its BlockRef is not valid any more.
  const bool stays = residency_.copy(ended.block, Tier::device).present() || residency_.copy(ended.block, Tier::host).present();
  if (error) residency_.forget_stored(ended.block);
  if (stays) deferred_eviction_.not_needed(ended.block);
}

void StorageWriter::count_not_stored(ErrorCode why) {
  if (why == Errc::not_found) ++stats_.store_gone;
  else if (why == Errc::parent_missing) ++stats_.store_orphaned;
  else if (why == Errc::cancelled || why == Errc::cleared) ++stats_.store_cancelled;
  else ++stats_.store_failed;
}

void StorageWriter::stop_all() {
  pending_.for_each([](std::uint32_t, PendingWrite& write) {
    if (write.state != State::writing) write.stop_with = Errc::cleared;
  });
}

}  // namespace terrace
