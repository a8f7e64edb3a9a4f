#include "runtime/cache/pool/named_copies.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

// ---- what there is -----------------------------------------------------------------------------------------------------------

void NamedCopies::find(std::span<const BlockKey> keys, KeyOrder order, std::vector<Prefix>& found) const {
  const PrefixTree& tree = residency_.tree();
  found.clear();
  if (!flat(order)) {
    // The tree relies on chained keys, and compares only some of them. The keys of this caller may not be chained, so all are
    // compared.
    Prefix prefix = tree.find(keys);
    for (std::uint32_t depth = 0; depth < prefix.length; ++depth) {
      if (tree.key({prefix.node, depth}) != keys[depth]) prefix = tree.first(prefix, depth);
    }
    return found.push_back(prefix);
  }
  found.reserve(keys.size());
  for (const BlockKey& key : keys) found.push_back(tree.find(std::span{&key, 1}));
}

OffloadHit NamedCopies::look_up(BlockRef block) const {
  const Copy in_host = residency_.copy(block, Tier::host);
  if (in_host.usable()) return OffloadHit::host;
  if (in_host.present()) return OffloadHit::pending;
  return residency_.stored(block) ? OffloadHit::storage : OffloadHit::miss;
}

Result<void> NamedCopies::check(const OffloadOrder& order, Direction direction) const {
  for (const SlotId slot : order.slots) {
    if (slot.value() >= uses_.size()) {
      return failure<Errc::invalid_argument, "`slots` names a slot that the pool does not have (PoolOptions::device_blocks)">;
    }
  }
  for (const SlotId slot : order.slots) {
    const std::uint16_t use = uses_[slot.value()];
    const bool free = direction == Direction::swap_in ? use == 0 : use < being_written - 1;
    if (!free) return failure<Errc::in_use, "another job uses one of `slots`: wait for the result of its block">;
  }
  if (direction == Direction::swap_out) {
    std::vector<Prefix> found;
    find(order.keys, order.key_order, found);
    // If the keys are not chained, the tree finds a longer prefix than find(): it would confuse them with blocks that it has.
    const bool chained = flat(order.key_order) || found.front().length == residency_.tree().find(order.keys).length;
    if (chained) return {};
    return failure<Errc::invalid_argument, "the keys are not those of one prefix: they contradict blocks that are there">;
  }
  if (order.slots.size() < 2) return {};
  std::vector<SlotId> sorted{order.slots.begin(), order.slots.end()};
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) == sorted.end()) return {};
  return failure<Errc::invalid_argument, "`slots` names a slot twice, and a slot holds one block">;
}

// ---- steps -------------------------------------------------------------------------------------------------------------------

bool NamedCopies::pump() {
  if (joined_.empty()) return false;
  bool changed = false;
  scratch_.swap(joined_);
  for (const PartRef ref : scratch_) {
    if (residency_.copy(part(ref).block, Tier::host).state() == CopyState::filling) {
      joined_.push_back(ref);
      continue;
    }
    changed = true;
    if (jobs_.at(ref.job).direction == Direction::swap_in) resolve_load(ref);
    else resolve_store(ref);
  }
  scratch_.clear();
  end_finished();
  return changed;
}

void NamedCopies::on_read(const StoredReads::Result& result) {
  const PartRef ref{result.reader.number, result.part};
  Part& p = part(ref);
  TERRACE_CHECK(p.state == State::reading);
  switch (result.kind) {
    case StoredReads::Result::Kind::landed:
      if (p.to_host_only()) {
        reads_.release(p.block, result.landing);
        end_part(ref, {});
        break;
      }
      land(ref, result.landing);
      break;
    case StoredReads::Result::Kind::failed: end_part(ref, result.error); break;
    case StoredReads::Result::Kind::given_back: resolve_load(ref); break;
  }
  end_finished();
}

void NamedCopies::start_transfers(std::uint64_t& last_transfer) {
  // One transfer for each job.
  while (!landed_.empty()) {
    const JobIndex index = landed_.front().job;
    Job& job = jobs_.at(index);
    const bool in = job.direction == Direction::swap_in;
    std::vector<PartRef> refs = spare_refs_.take();
    pairs_.clear();
    std::erase_if(landed_, [&](const PartRef& ref) {
      if (ref.job != index) return false;
      Part& p = job.parts[ref.part];
      p.state = State::crossing;
      submitted(index);
      if (p.memory != nullptr) {
        actions_.copies.push_back({memory_copies_.add(ref), p.landing.slot, p.memory, job.direction});
        return true;
      }
      refs.push_back(ref);
      pairs_.push_back(in ? SlotPair{p.landing.slot, p.slot} : SlotPair{p.slot, p.landing.slot});
      return true;
    });
    if (refs.empty()) {
      spare_refs_.give(std::move(refs));
      continue;
    }
    Transfer transfer;
    transfer.direction = job.direction;
    transfer.urgency = job.urgency;
    transfer.deadline = job.deadline;
    transfer.after = job.after;
    transfer.by_layer = job.by_layer;
    transfer.runs = actions_.spare_runs.take();
    for (const SlotPair& pair : pairs_) append(transfer.runs, {pair.source, pair.destination, 1});
    transfer.id = transfers_.add(last_transfer, std::move(refs));
    job.transfers.add(transfer.id);
    actions_.transfers.push_back(std::move(transfer));
  }
}

bool NamedCopies::on_event(const TransferEvent& event) {
  if (event.kind == TransferEvent::Kind::confirmed) {
    const auto found = unconfirmed_.find(event.id);
    if (found == unconfirmed_.end()) return false;
    const std::vector<PartRef> refs = std::move(found->second);
    unconfirmed_.erase(found);
    unconfirmed_blocks_ -= static_cast<std::uint32_t>(refs.size());
    for (const PartRef ref : refs) finish_copy(ref, Errc::deadline_exceeded);
    end_finished();
    return true;
  }
  if (event.kind == TransferEvent::Kind::layers) {
    const std::vector<PartRef>* const refs = transfers_.find(event.id);
    if (refs != nullptr) set_layers(refs->front().job, event.id, event.layers);
    return refs != nullptr;
  }
  std::optional<std::vector<PartRef>> refs = transfers_.take(event.id);
  if (!refs) return false;
  TERRACE_CHECK(event.outcomes.size() == refs->size());
  const JobIndex index = refs->front().job;
  const bool all_done = std::ranges::all_of(event.outcomes, [](BlockOutcome o) { return o == BlockOutcome::done; });
  if (all_done && jobs_.at(index).unfinished > refs->size()) set_layers(index, event.id, all_layers);
  for (std::size_t i = 0; i < refs->size(); ++i) {
    const PartRef ref = (*refs)[i];
    TERRACE_CHECK(part(ref).state == State::crossing);
    switch (event.outcomes[i]) {
      case BlockOutcome::done: finish_copy(ref, {}); break;
      case BlockOutcome::failed: finish_copy(ref, event.error ? event.error : Errc::io_failed); break;
      case BlockOutcome::cancelled: {
        const ErrorCode why = event.error ? event.error : make_error_code(Errc::cancelled);
        finish_copy(ref, jobs_.at(ref.job).cancelled ? make_error_code(Errc::cancelled) : why);
        break;
      }
      case BlockOutcome::unconfirmed:
        // The transfer may still touch the named slot. So the block gets its result only when the device confirms the end.
        part(ref).state = State::unconfirmed;
        unconfirmed_[event.id].push_back(ref);
        ++unconfirmed_blocks_;
        ++totals_.unconfirmed;
        break;
    }
  }
  spare_refs_.give(std::move(*refs));
  end_finished();
  return true;
}

void NamedCopies::on_copied(std::uint64_t token) {
  finish_copy(memory_copies_.take(token), {});
  end_finished();
}

/// The copy between the named slot and the host slot has ended.
void NamedCopies::finish_copy(PartRef ref, ErrorCode error) {
  const Part& p = part(ref);
  if (jobs_.at(ref.job).direction == Direction::swap_in) {
    reads_.release(p.block, p.landing);
  } else if (error) {
    residency_.fail_host_fill(p.block);
  } else {
    publish_host(p.block);
  }
  end_part(ref, error);
}

void NamedCopies::publish_host(BlockRef block) {
  residency_.publish(block, Tier::host);
  if (config_.stores_by(WritePolicy::write_through) && !residency_.stored(block)) storage_writer_.write_through(block, 1);
}

// ---- layers ------------------------------------------------------------------------------------------------------------------

Result<void> NamedCopies::transfers_for(OffloadJobId id, Direction direction, std::uint32_t layers,
                                        std::vector<TransferId>& out) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    const auto is_end = [id](const OffloadEvent& each) { return each.job == id && each.kind == OffloadEvent::Kind::ended; };
    const auto end = std::ranges::find_if(events_, is_end);
    TERRACE_CHECK(end != events_.end());
    return direction == Direction::swap_out || !end->error ? Result<void>{} : end->error;
  }
  const Job& job = *jobs_.find(found->second);
  const bool in = direction == Direction::swap_in;
  if (in && job.error) return job.error;
  if (job.unsubmitted > 0) return Errc::not_ready;
  for (const LayersBrought::Entry& each : job.transfers.all()) {
    if (unconfirmed_.contains(each.id)) return in ? Errc::deadline_exceeded : Errc::not_ready;
    if (in ? each.layers < layers : transfers_.find(each.id) != nullptr) out.push_back(each.id);
  }
  return {};
}

void NamedCopies::set_layers(JobIndex index, TransferId transfer, std::uint32_t layers) {
  Job& job = jobs_.at(index);
  const bool grew = job.transfers.set(transfer, layers);
  const std::uint32_t arrived = this->layers(job);
  if (!grew || !job.by_layer || arrived == 0) return;
  // Another transfer of the job has not brought all layers: parts are unfinished, and all are in a transfer.
  TERRACE_CHECK(arrived != all_layers);
  events_.push_back({.kind = OffloadEvent::Kind::layers, .job = job.id, .layers = arrived});
}

// ---- the end -----------------------------------------------------------------------------------------------------------------

void NamedCopies::count(const Job& job, const Part& part, ErrorCode error) {
  if (error == Errc::deadline_exceeded) ++totals_.late;
  const bool crossed = part.state == State::crossing;
  if (job.direction == Direction::swap_in) {
    if (!error) ++loaded(part.source);
    else ++(error == Errc::not_found ? totals_.load_misses : totals_.load_failures);
  } else if (!error) {
    if (crossed) ++totals_.stored;
  } else {
    ++(error == Errc::full ? totals_.store_full : totals_.store_failures);
  }
}

std::uint64_t& NamedCopies::loaded(Source source) {
  if (source == Source::shared) return totals_.loaded_shared;
  return source == Source::storage ? totals_.loaded_storage : totals_.loaded_host;
}

/// Reports the result of a block. Nothing touches its named slot any more.
void NamedCopies::end_part(PartRef ref, ErrorCode error) {
  Job& job = jobs_.at(ref.job);
  Part& p = job.parts[ref.part];
  count(job, p, error);
  if (p.state != State::crossing && p.state != State::unconfirmed) submitted(ref.job);
  p.state = State::ended;
  unuse(p, job.direction);
  if (error) {
    ++job.failed;
    if (!job.error) job.error = error;
  }
  events_.push_back({.job = job.id, .block = job.first + ref.part, .error = error, .source = p.source});
  --in_flight_;
  TERRACE_CHECK(job.unfinished > 0);
  if (--job.unfinished == 0) finished_.push_back(ref.job);
}

/// Ends the jobs whose last block has its result. end_part() does not do this, so that a job still exists while its callers loop
/// over its parts.
void NamedCopies::end_finished() {
  while (!finished_.empty()) {
    const Job job = jobs_.take(finished_.back());
    finished_.pop_back();
    by_id_.erase(job.id);
    if (shared_writer_) offer_ended(job);
    unpin(job.pins);
    events_.push_back({.kind = OffloadEvent::Kind::ended,
                       .job = job.id,
                       .error = job.error,
                       .moved = static_cast<std::uint32_t>(job.parts.size()) - job.failed,
                       .failed = job.failed});
  }
}

/// Tells the shared writer about the blocks of a job that has ended.
void NamedCopies::offer_ended(const Job& job) {
  if (job.failed == job.parts.size() || job.pins.empty()) return;
  if (job.direction == Direction::swap_out) return offer_new(job.pins, job.flat, job.first);
  // A load to the host tier is a preparation, and not a use of the blocks. So it is not a hit.
  if (job.parts.front().to_host_only()) return;
  if (job.flat) shared_writer_->on_hits(job.pins);
  else shared_writer_->on_hits(leading_in_host(job.pins.front(), 0));
}

/// Tells the shared writer about the blocks from depth `from` on, which have just got copies in the host tier.
void NamedCopies::offer_new(std::span<const Prefix> pins, bool flat, std::uint32_t from) {
  if (!shared_writer_ || pins.empty()) return;
  if (flat) return shared_writer_->on_commit(pins);
  const Prefix there = leading_in_host(pins.front(), from);
  if (there.length > from) shared_writer_->on_commit(there, from);
}

/// Returns the prefix up to the first block without a usable copy in the host tier. Looks only at the blocks from depth `from`
/// on.
Prefix NamedCopies::leading_in_host(Prefix whole, std::uint32_t from) const {
  std::uint32_t end = from;
  while (end < whole.length && residency_.usable({whole.node, end}, Tier::host)) ++end;
  return end < whole.length ? residency_.tree().first(whole, end) : whole;
}

/// Ends the parts of a job that have not begun to cross the link.
void NamedCopies::end_waiting(JobIndex index, ErrorCode error) {
  const auto of_job = [index](const PartRef& ref) { return ref.job == index; };
  std::erase_if(joined_, of_job);
  std::erase_if(landed_, of_job);
  const auto parts = static_cast<std::uint32_t>(jobs_.at(index).parts.size());
  for (std::uint32_t i = 0; i < parts; ++i) {
    const Part& p = part({index, i});
    if (p.state != State::joined && p.state != State::reading && p.state != State::landed) continue;
    if (p.state == State::reading) {
      reads_.cancel(p.read);
    } else if (p.state == State::landed) {
      if (jobs_.at(index).direction == Direction::swap_in) reads_.release(p.block, p.landing);
      else residency_.fail_host_fill(p.block);
    }
    end_part({index, i}, error);
  }
}

void NamedCopies::take_events(std::vector<OffloadEvent>& events) {
  events.insert(events.end(), events_.begin(), events_.end());
  events_.clear();
}

bool NamedCopies::cancel(OffloadJobId id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  const JobIndex index = found->second;
  Job& job = jobs_.at(index);
  job.cancelled = true;
  for (const LayersBrought::Entry& transfer : job.transfers.all()) {
    if (transfers_.find(transfer.id) != nullptr) actions_.cancels.push_back(transfer.id);
  }
  end_waiting(index, Errc::cancelled);
  end_finished();
  return true;
}

void NamedCopies::on_late(JobIndex job) {
  end_waiting(job, Errc::deadline_exceeded);
  end_finished();
}

void NamedCopies::check_invariants() const {
  std::uint64_t unfinished = 0;
  std::uint64_t used = 0;
  for (const auto& [id, index] : by_id_) {
    const Job* const job = jobs_.find(index);
    TERRACE_CHECK(job != nullptr && job->id == id && job->unfinished > 0);
    const auto open = [](const Part& part) { return part.state != State::ended; };
    TERRACE_CHECK(static_cast<std::uint64_t>(std::ranges::count_if(job->parts, open)) == job->unfinished);
    unfinished += job->unfinished;
    for (const Part& part : job->parts) {
      if (part.state == State::ended || part.slot == no_slot) continue;
      ++used;
      TERRACE_CHECK((uses_[part.slot.value()] == being_written) == (job->direction == Direction::swap_in));
    }
  }
  TERRACE_CHECK(unfinished == in_flight_);
  TERRACE_CHECK(jobs_.size() == by_id_.size());
  std::uint64_t counted = 0;
  for (const std::uint16_t use : uses_) counted += use == being_written ? 1U : use;
  TERRACE_CHECK(counted == used);
}

}  // namespace terrace
