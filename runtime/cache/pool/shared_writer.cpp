#include "runtime/cache/pool/shared_writer.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

namespace terrace {
namespace {

/// A write may start this long before the rate allows it, because a cache is not polled at exact times.
constexpr Duration rate_slack = std::chrono::milliseconds{100};

/// How a block that is not written is reported, and where it is counted.
struct Dropped {
  WriteBackOutcome outcome = WriteBackOutcome::failed;
  std::uint64_t SharedTotals::*count = &SharedTotals::drop_failed;
};

Dropped dropped(ErrorCode why) {
  if (why == Errc::not_found) return {WriteBackOutcome::dropped_gone, &SharedTotals::drop_gone};
  if (why == Errc::cleared) return {WriteBackOutcome::dropped_gone, &SharedTotals::drop_off};
  if (why == Errc::cancelled) return {WriteBackOutcome::failed, &SharedTotals::drop_off};
  if (why == Errc::full) return {WriteBackOutcome::dropped_full, &SharedTotals::drop_full};
  if (why == Errc::no_room) return {WriteBackOutcome::over_budget, &SharedTotals::drop_budget};
  return {};
}

}  // namespace

SharedWriter::SharedWriter(const PoolPart& part, const PoolSizes& sizes, SwapOuts& swap_outs, SharedTotals& totals,
                           KvEvents& events, SharedWriteLimits& limits)
    : PoolPart{part},
      settings_{config_.shared},
      swap_outs_{swap_outs},
      totals_{totals},
      events_{events},
      limits_{limits},
      slots_max_{sizes.staging_blocks / 2},
      block_bytes_{sizes.block_bytes} {
  if (settings_.writes == WritePolicy::selective) hits_.resize(std::size_t{sizes.device_blocks} + sizes.host_blocks);
}

// ---- which prefixes are wished

SharedWriter::Recent& SharedWriter::note(const BlockKey& key) {
  Recent& place = recent_[key.prefix64() % recent_max];
  if (place.name != key.prefix64()) place = {key.prefix64(), {}, {}};
  return place;
}

SharedWriter::Recent SharedWriter::recent(const BlockKey& key) const {
  const Recent& place = recent_[key.prefix64() % recent_max];
  return place.name == key.prefix64() ? place : Recent{};
}

/// Counts a hit of the block. Returns true if it has enough hits to be written.
bool SharedWriter::is_hit_enough(const BlockKey& key) {
  const std::uint32_t wanted = settings_.selective_hits;
  return settings_.writes != WritePolicy::selective || hits_.count(key, wanted).hits >= wanted;
}

void SharedWriter::on_commit(Prefix prefix, std::uint32_t from) {
  if (settings_.writes != WritePolicy::write_through || prefix.length == from) return;
  if (deferred_eviction_.keeps_nothing() && !usable_) {
    totals_.wished += prefix.length - from;
    totals_.drop_off += prefix.length - from;
    return;
  }
  if (stands_alone(prefix)) return wish_unchained(prefix.last());
  if (!extend_wish(prefix, from)) wish(prefix, prefix.length, from);
}

void SharedWriter::on_hits(Prefix prefix) {
  const auto was_wished = [this](BlockRef block) { return recent(residency_.tree().key(block)).wished_until > now_; };
  if (settings_.writes == WritePolicy::none || prefix.length == 0 || was_wished(prefix.last())) return;
  if (stands_alone(prefix)) {
    if (is_hit_enough(residency_.tree().key(prefix.last()))) wish_unchained(prefix.last());
    return;
  }
  std::uint32_t length = prefix.length;
  if (settings_.writes == WritePolicy::selective) {
    length = 0;
    for (std::uint32_t block = 0; block < prefix.length; ++block) {
      if ((block + 1) % counted_one_in != 0 && block + 1 != prefix.length) continue;
      if (is_hit_enough(residency_.tree().key({prefix.node, block}))) length = block + 1;
    }
    if (length == 0 || was_wished({prefix.node, length - 1})) return;
  }
  wish(prefix, length, 0);
}

void SharedWriter::on_commit(std::span<const Prefix> blocks) {
  if (settings_.writes != WritePolicy::write_through) return;
  alone_.clear();
  for (const Prefix& block : blocks) {
    if (block.length > 0 && residency_.usable(block.last(), Tier::host)) alone_.push_back(block.last());
  }
  wish_alone(alone_);
}

void SharedWriter::on_hits(std::span<const Prefix> blocks) {
  if (settings_.writes == WritePolicy::none) return;
  alone_.clear();
  for (const Prefix& block : blocks) {
    if (block.length == 0 || !residency_.usable(block.last(), Tier::host)) continue;
    const BlockKey& key = residency_.tree().key(block.last());
    if (recent(key).wished_until <= now_ && is_hit_enough(key)) alone_.push_back(block.last());
  }
  wish_alone(alone_);
}

/// If there is a wish that ends just before block `from`, appends the new blocks to it. Returns false if there is no such wish.
bool SharedWriter::extend_wish(Prefix prefix, std::uint32_t from) {
  if (from == 0) return false;
  const PrefixTree& tree = residency_.tree();
  const BlockKey before = tree.key({prefix.node, from - 1});
  const auto ends_there = [&](const Wish& wish) {
    return wish.keys.size() == from && wish.keys.back() == before && !wish.stop_with && !wish.job;
  };
  const std::uint32_t found = find_wish(waiting_, active_, ends_there);
  if (found == none || keys_ + prefix.length - from > keys_max) return false;
  Wish& wish = wishes_.at(found);
  for (std::uint32_t block = from; block < prefix.length; ++block) wish.keys.push_back(tree.key({prefix.node, block}));
  note_keys(wish, from);
  return true;
}

/// The wish has got keys: those from number `from` on. The store is known to have the blocks before Wish::started.
void SharedWriter::note_keys(const Wish& wish, std::size_t from) {
  const std::span<const BlockKey> wanted = std::span{wish.keys}.subspan(std::max<std::size_t>(from, wish.started));
  deferred_eviction_.keep(wanted);
  keys_ += wish.keys.size() - from;
  totals_.wished += wanted.size();
  note(wish.keys.back()).wished_until = now_ + settings_.renew_interval;
}

/// Makes a wish for the first `length` blocks of the prefix.
void SharedWriter::wish(Prefix prefix, std::uint32_t length, std::uint32_t from) {
  length = std::min<std::uint32_t>(length, keys_max);
  ++totals_.wishes;
  make_room_for(length);
  waiting_.push_back(make_wish(prefix, length, from));
}

/// A wish without keys, for blocks of the same tenant and group as this one.
SharedWriter::Wish SharedWriter::new_wish(BlockRef block) {
  const PrefixTree& tree = residency_.tree();
  Wish wish;
  wish.keys = spare_keys_.take();
  wish.asked = spare_keys_.take();
  wish.tenant = tree.tenant(block);
  wish.group = tree.group(block);
  return wish;
}

/// Makes a wish. It begins at block `from` if the store is known to have the block before that.
std::uint32_t SharedWriter::make_wish(Prefix prefix, std::uint32_t length, std::uint32_t from) {
  const PrefixTree& tree = residency_.tree();
  Wish wish = new_wish({prefix.node, length - 1});
  for (std::uint32_t block = 0; block < length; ++block) wish.keys.push_back(tree.key({prefix.node, block}));
  if (from > 0 && from < length && recent(wish.keys[from - 1]).there_until > now_) wish.next = from;
  wish.started = wish.next;
  note_keys(wish, 0);
  return wishes_.add(std::move(wish));
}

/// Returns true for an unchained block. A prefix of a group with full attention is chained, even if it has only one block.
bool SharedWriter::stands_alone(Prefix prefix) const {
  const std::vector<GroupConfig>& groups = config_.groups;
  if (groups.empty()) return false;
  return groups[residency_.tree().group(prefix.last()).value()].kind != GroupKind::full;
}

/// Adds the block to a waiting wish for blocks of the same group and tenant, or makes a new wish.
void SharedWriter::wish_unchained(BlockRef block) {
  const PrefixTree& tree = residency_.tree();
  const auto takes_it = [&](std::uint32_t id) {
    const Wish& wish = wishes_.at(id);
    return wish.alone && wish.keys.size() < probe_batch && wish.group == tree.group(block) && wish.tenant == tree.tenant(block);
  };
  const auto open = std::ranges::find_if(waiting_.rbegin(), waiting_.rend(), takes_it);
  if (open == waiting_.rend() || keys_ >= keys_max) return wish_alone({&block, 1});
  Wish& wish = wishes_.at(*open);
  wish.keys.push_back(tree.key(block));
  note_keys(wish, wish.keys.size() - 1);
}

/// Makes a wish for blocks that stand alone.
void SharedWriter::wish_alone(std::span<const BlockRef> blocks) {
  blocks = blocks.first(std::min(blocks.size(), keys_max));
  if (blocks.empty()) return;
  ++totals_.wishes;
  make_room_for(blocks.size());
  Wish wish = new_wish(blocks.back());
  wish.alone = true;
  for (const BlockRef block : blocks) {
    wish.keys.push_back(residency_.tree().key(block));
    note(wish.keys.back()).wished_until = now_ + settings_.renew_interval;
  }
  note_keys(wish, 0);
  waiting_.push_back(wishes_.add(std::move(wish)));
}

void SharedWriter::make_room_for(std::size_t keys) {
  const auto may_be_dropped = [this](std::uint32_t id) { return !wishes_.at(id).job; };
  while (wishes_.size() >= wishes_max || keys_ + keys > keys_max) {
    const auto oldest = std::ranges::find_if(waiting_, may_be_dropped);
    if (oldest == waiting_.end()) return;
    const std::uint32_t id = *oldest;
    waiting_.erase(oldest);
    totals_.drop_bound += wishes_.at(id).keys.size() - wishes_.at(id).started;
    remove_wish(id);
  }
}

// ---- the wishes of jobs

void SharedWriter::order(WriteBackId job, Prefix prefix, std::uint32_t from, std::uint64_t blocks_max) {
  TERRACE_CHECK(find_job(job) == none);
  const std::uint32_t id = make_wish(prefix, prefix.length, from);
  Wish& wish = wishes_.at(id);
  wish.job = job;
  wish.report_from = from;
  wish.blocks_max = blocks_max;
  waiting_.insert(waiting_.begin(), id);
  if (!usable_) stop(id, Errc::refused);
}

void SharedWriter::set_usable(bool usable) {
  usable_ = usable;
  if (usable) return;
  for (const auto& ids : {waiting_, active_}) {
    for (const std::uint32_t id : ids) {
      if (wishes_.at(id).job) stop(id, Errc::refused);
      else if (deferred_eviction_.keeps_nothing()) stop(id, Errc::cancelled);
    }
  }
}

/// The wish starts nothing more. It ends now, or when its probe or writes under way have ended.
void SharedWriter::stop(std::uint32_t id, ErrorCode why) {
  Wish& wish = wishes_.at(id);
  // After a clear, on_staged() drops the blocks that are still being copied to staging: they may be for other weights.
  if (!wish.stop_with || why == Errc::cleared) wish.stop_with = why;
  if (std::erase(waiting_, id) == 0) return continue_wish(id);
  drop_rest(wish);
  remove_wish(id);
}

void SharedWriter::pause(WriteBackId job, bool pauses) {
  const std::uint32_t id = find_job(job);
  if (id != none) wishes_.at(id).paused = pauses;
}

void SharedWriter::cancel(WriteBackId job, std::vector<BlockKey>& keys) {
  const std::uint32_t id = find_job(job);
  if (id == none) return;
  Wish& wish = wishes_.at(id);
  for (std::uint32_t block = std::max(wish.started, wish.report_from); block < wish.keys.size(); ++block) {
    keys.push_back(wish.keys[block]);
  }
  for (std::uint32_t block = std::max(wish.next, wish.report_from); block < wish.started; ++block) {
    if (wish.writing[block - wish.next]) keys.push_back(wish.keys[block]);
  }
  wish.job.reset();
  wish.paused = false;
  stop(id, Errc::cancelled);
}

void SharedWriter::report(const Wish& wish, std::uint32_t block, WriteBackOutcome outcome, ErrorCode error) {
  if (wish.job && block >= wish.report_from) ended_.push_back({*wish.job, wish.keys[block], outcome, error});
}

/// Counts and reports that the blocks from `begin` to before `end` are not written.
void SharedWriter::drop(const Wish& wish, std::uint32_t begin, std::uint32_t end, ErrorCode why) {
  const auto [outcome, count] = dropped(why);
  totals_.*count += end - begin;
  for (std::uint32_t block = begin; block < end; ++block) report(wish, block, outcome, why);
}

/// The blocks from `begin` to before `end` need no device copy any more: the store has them, or they are not written.
void SharedWriter::end_keep(const Wish& wish, std::uint32_t begin, std::uint32_t end) {
  if (!deferred_eviction_.keeps_nothing() || begin == end) return;
  const std::span<const BlockKey> keys = std::span{wish.keys}.first(end);
  deferred_eviction_.end_keep(keys.subspan(begin));
  const PrefixTree& tree = residency_.tree();
  if (wish.alone) {
    for (const BlockKey& key : keys.subspan(begin)) {
      const Prefix block = tree.find({&key, 1});
      if (block.length > 0) deferred_eviction_.not_needed(block.last());
    }
    return;
  }
  // Drops the last block that is still on the device. not_needed() continues with the blocks before it.
  const Prefix there = tree.find(keys);
  std::uint32_t left = there.length;
  while (left > begin && !residency_.copy(tree.at(there, left - 1), Tier::device).present()) --left;
  if (left > begin) deferred_eviction_.not_needed(tree.at(there, left - 1));
}

void SharedWriter::remove_wish(std::uint32_t id) {
  Wish wish = wishes_.take(id);
  TERRACE_CHECK(wish.writing.none());
  end_keep(wish, wish.started, static_cast<std::uint32_t>(wish.keys.size()));
  keys_ -= wish.keys.size();
  spare_keys_.give(std::move(wish.keys));
  spare_keys_.give(std::move(wish.asked));
}

// ---- the steps of a wish

bool SharedWriter::pump() {
  rate_waits_ = false;
  bool changed = false;
  for (std::size_t at = 0; at < active_.size();) {
    const std::uint32_t id = active_[at];
    changed |= start_blocks(id);
    if (at < active_.size() && active_[at] == id) ++at;
  }
  if (pauses()) return changed;
  const auto not_paused = [this](std::uint32_t id) { return !wishes_.at(id).paused; };
  while (active_.size() < active_max) {
    const auto next = std::ranges::find_if(waiting_, not_paused);
    if (next == waiting_.end()) break;
    const std::uint32_t id = *next;
    waiting_.erase(next);
    active_.push_back(id);
    probe(id);
    changed = true;
  }
  return changed;
}

void SharedWriter::probe(std::uint32_t id) {
  Wish& wish = wishes_.at(id);
  const auto keys = static_cast<std::uint32_t>(wish.keys.size());
  wish.state = State::probing;
  wish.end = std::min(keys, wish.next + (wish.gap ? write_batch : probe_batch));
  wish.asked.assign(wish.keys.begin() + wish.next, wish.keys.begin() + wish.end);
  ++probing_;
  actions_.shared.probes.push_back(
      {SharedActions::Probe::Asker::writer, id, wish.asked, wish.group, now_ + settings_.probe_timeout});
}

void SharedWriter::on_probed(std::uint32_t token, ErrorCode error, std::uint32_t leading) {
  Wish& wish = wishes_.at(token);
  TERRACE_CHECK(wish.state == State::probing);
  --probing_;
  const std::uint32_t there = std::min(leading, wish.end - wish.next);
  for (std::uint32_t block = wish.next; block < wish.next + there; ++block) {
    report(wish, block, WriteBackOutcome::already_there);
    if (wish.stop_with) continue;
    actions_.shared.renewals.push_back(named(wish, block));
    record_event(actions_.shared.renewals.back());
  }
  totals_.present += there;
  totals_.renewed += there;
  end_keep(wish, wish.next, wish.next + there);
  wish.next += there;
  if (there > 0 && !wish.alone) note(wish.keys[wish.next - 1]).there_until = now_ + settings_.renew_interval;
  wish.gap = wish.next < wish.end;
  wish.state = State::writing;
  wish.started = wish.next;
  wish.end = wish.gap ? std::min(wish.end, wish.next + write_batch) : wish.next;
  if (error && !wish.stop_with) {
    wish.stop_with = error;
    rest_after(error);
  }
  continue_wish(token);
}

/// In state writing: if the batch is done, ends the wish, or probes its next blocks.
void SharedWriter::continue_wish(std::uint32_t id) {
  Wish& wish = wishes_.at(id);
  if (wish.writing.any() || wish.state != State::writing) return;
  if (!wish.stop_with && wish.started < wish.end) return;
  if (wish.stop_with) {
    drop_rest(wish);
  } else {
    if (wish.started > wish.next && !wish.alone) {
      note(wish.keys[wish.started - 1]).there_until = now_ + settings_.renew_interval;
    }
    wish.next = wish.started;
    if (wish.next < wish.keys.size()) return probe(id);
  }
  std::erase(active_, id);
  remove_wish(id);
}

/// Starts as many blocks of the batch as the bounds allow. Returns true if anything changed.
bool SharedWriter::start_blocks(std::uint32_t id) {
  Wish& wish = wishes_.at(id);
  if (wish.state != State::writing || wish.stop_with || wish.paused || wish.started == wish.end) return false;
  const PrefixTree& tree = residency_.tree();
  Prefix prefix;
  if (!wish.alone) prefix = tree.find(std::span{std::as_const(wish.keys)}.first(wish.end));
  bool changed = false;
  while (wish.started < wish.end && !wish.stop_with) {
    ErrorCode why = Errc::not_found;
    if (wish.alone) {
      const Prefix block = tree.find(std::span{std::as_const(wish.keys)}.subspan(wish.started, 1));
      if (block.length > 0) why = start_block(id, block.last(), wish.started);
    } else if (wish.started < prefix.length) {
      why = start_block(id, tree.at(prefix, wish.started), wish.started);
    }
    if (why == Errc::not_ready) return changed;
    changed = true;
    if (why && (why != Errc::not_found || !wish.alone)) {
      wish.stop_with = why;
      continue;
    }
    const std::uint32_t block = wish.started++;
    if (!why) continue;
    // The block has no copy any more, and is skipped. Blocks that stand alone do not depend on it.
    drop(wish, block, block + 1, why);
    end_keep(wish, block, block + 1);
  }
  continue_wish(id);
  return changed;
}

/// Starts to write the block, or to copy it to staging. Fails: not_found (it has no copy), not_ready (it must wait), no_room (the
/// budget is spent), io_failed (copies from the device fail).
ErrorCode SharedWriter::start_block(std::uint32_t id, BlockRef block, std::uint32_t number) {
  const bool in_host = residency_.usable(block, Tier::host);
  const Copy on_device = residency_.copy(block, Tier::device);
  if (!in_host && !on_device.usable()) return Errc::not_found;
  // A copy that is being evicted has a host copy soon. A read for staging would delay the eviction.
  if (pauses() || (!in_host && on_device.state() == CopyState::evicting)) return Errc::not_ready;
  if (!in_host && !swap_outs_.allowed()) return Errc::io_failed;
  const bool is_full = limits_.writing > Bytes{} && limits_.writing + block_bytes_ > settings_.writing_bytes_max;
  if (writes_.size() >= slots_max_ || is_full) return Errc::not_ready;
  if (settings_.write_rate != BytesPerSecond{} && limits_.next_write > now_ + rate_slack) {
    rate_waits_ = true;
    return Errc::not_ready;
  }
  Wish& wish = wishes_.at(id);
  if (wish.job && wish.blocks_max == 0) return Errc::no_room;
  const std::optional<SlotId> slot = in_host ? residency_.lend_host(block) : residency_.take_staging();
  if (!slot) return Errc::not_ready;
  if (!limits_.budget.take(block_bytes_)) {
    residency_.end_staging(*slot);
    return Errc::no_room;
  }
  if (settings_.write_rate != BytesPerSecond{}) {
    const double seconds = static_cast<double>(count(block_bytes_)) / static_cast<double>(count(settings_.write_rate));
    limits_.next_write =
        std::max(limits_.next_write, now_) + std::chrono::duration_cast<Duration>(std::chrono::duration<double>{seconds});
  }
  wish.writing.set(number - wish.next);
  limits_.writing += block_bytes_;
  if (wish.job) --wish.blocks_max;
  const std::uint32_t write = writes_.add({id, number, named(wish, number), *slot});
  if (in_host) submit(write);
  else swap_outs_.begin(block, *slot, SwapOutPurpose::stage, write | shared_swap_out);
  // From now on the swap-out or the write protects the copy. When it ends, the copy is dropped if nothing else needs it.
  deferred_eviction_.end_keep({&wish.keys[number], 1});
  return {};
}

StoredBlock SharedWriter::named(const Wish& wish, std::uint32_t block) const {
  StoredBlock named;
  named.key = wish.keys[block];
  if (block > 0 && !wish.alone) named.parent = wish.keys[block - 1];
  named.depth = wish.alone ? 0 : block;
  named.tenant = wish.tenant;
  named.group = wish.group;
  return named;
}

void SharedWriter::submit(std::uint32_t write) {
  const Write& it = writes_.at(write);
  actions_.shared.writes.push_back({write, it.block, it.slot, now_ + settings_.write_timeout});
}

void SharedWriter::on_staged(const SwapOuts::Staged& staged) {
  const std::uint32_t write = staged.write & ~shared_swap_out;
  ErrorCode stopped = wishes_.at(writes_.at(write).wish).stop_with;
  // If the wish ends at a later block because that has no copy or the budget is spent, the blocks before it are still written.
  if (stopped == Errc::not_found || stopped == Errc::no_room) stopped = {};
  if (staged.arrived && !stopped) return submit(write);
  if (staged.arrived) residency_.end_staging(writes_.at(write).slot);  // if the bytes did not arrive, SwapOuts has freed the slot
  limits_.budget.give_back(block_bytes_);
  end_write(write, stopped ? stopped : ErrorCode{Errc::io_failed});
}

void SharedWriter::on_written(std::uint32_t token, ErrorCode error) {
  const Write& write = writes_.at(token);
  residency_.end_staging(write.slot);
  if (error) {
    rest_after(error);
  } else {
    ++totals_.written;
    if (wishes_.at(write.wish).stop_with != Errc::cleared) record_event(write.block);
  }
  end_write(token, error);
}

void SharedWriter::end_write(std::uint32_t write, ErrorCode error) {
  const auto [id, number, block, slot] = writes_.take(write);
  limits_.writing = limits_.writing - block_bytes_;
  Wish& wish = wishes_.at(id);
  wish.writing.reset(number - wish.next);
  if (error) drop(wish, number, number + 1, error);
  else report(wish, number, WriteBackOutcome::stored);
  if (error && !wish.stop_with) wish.stop_with = error;
  continue_wish(id);
}

/// Reports to event listeners that the shared store has the block.
void SharedWriter::record_event(const StoredBlock& block) {
  if (!events_.on()) return;
  events_.add({.kind = KvEvent::Kind::stored,
               .source = Source::shared,
               .group = block.group,
               .depth = block.depth,
               .tenant = block.tenant,
               .key = block.key,
               .parent = block.depth > 0 ? std::optional{block.parent} : std::nullopt,
               .expires_after = settings_.kept_for});
}

void SharedWriter::on_time(TimePoint now) {
  now_ = now;
  limits_.budget.on_time(now);
}

TimePoint SharedWriter::next_deadline() const {
  if (usable_ && now_ < rest_until_ && !wishes_.empty()) return rest_until_;
  return rate_waits_ ? limits_.next_write - rate_slack : never;
}

void SharedWriter::stop_all() {
  for (const auto& ids : {waiting_, active_}) {
    for (const std::uint32_t id : ids) stop(id, Errc::cleared);
  }
}

void SharedWriter::check_invariants() const {
  TERRACE_CHECK(waiting_.size() + active_.size() == wishes_.size());
  TERRACE_CHECK(writes_.size() <= slots_max_);
  TERRACE_CHECK(writes_.size() <= 1 || block_bytes_ * writes_.size() <= settings_.writing_bytes_max);
  std::size_t writing = 0;
  std::size_t probing = 0;
  std::size_t keys = 0;
  std::size_t jobs = 0;
  for (const Ids* const ids : {&waiting_, &active_}) {
    for (const std::uint32_t id : *ids) {
      const Wish& wish = *wishes_.find(id);
      writing += wish.writing.count();
      probing += wish.state == State::probing ? 1 : 0;
      keys += wish.keys.size();
      jobs += wish.job ? 1 : 0;
      TERRACE_CHECK(wish.next <= wish.started || wish.state == State::probing);
    }
  }
  TERRACE_CHECK(writing == writes_.size() && probing == probing_ && keys == keys_);
  TERRACE_CHECK(wishes_.size() - jobs <= wishes_max + active_max);
}

}  // namespace terrace
