#include "runtime/tiering/named_copies.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

NamedCopies::NamedCopies(const ManagerConfig& config, const PoolSizes& sizes, Residency& residency, StoredReads& reads,
                         HostSlotAllocator& host_slots, StorageWriter& storage_writer, Actions& actions, OffloadTotals& totals)
    : flat_{config.key_order == KeyOrder::flat},
      config_{config},
      residency_{residency},
      reads_{reads},
      host_slots_{host_slots},
      storage_writer_{storage_writer},
      actions_{actions},
      totals_{totals},
      uses_(sizes.engine_blocks) {}

// ---- what there is -----------------------------------------------------------------------------------------------------------

void NamedCopies::find(std::span<const BlockKey> keys, std::vector<Prefix>& found) const {
  const PrefixTree& tree = residency_.tree();
  found.clear();
  if (!flat_) {
    // The tree relies on chained keys, and compares only some of them. Keys of a caller may not be chained, so all are compared.
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
    if (slot.value() >= uses_.size()) return Errc::invalid_argument;
  }
  for (const SlotId slot : order.slots) {
    const std::uint16_t use = uses_[slot.value()];
    const bool free = direction == Direction::swap_in ? use == 0 : use < being_written - 1;
    if (!free) return Errc::in_use;
  }
  if (direction == Direction::swap_out) {
    std::vector<Prefix> found;
    find(order.keys, found);
    // Keys that are not chained: the tree would take them for a prefix that it knows.
    const bool chained = flat_ || found.front().length == residency_.tree().find(order.keys).length;
    return chained ? Result<void>{} : Result<void>{Errc::invalid_argument};
  }
  if (order.slots.size() < 2) return {};
  std::vector<SlotId> sorted{order.slots.begin(), order.slots.end()};
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) return Errc::invalid_argument;
  return {};
}

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

void NamedCopies::load(const OffloadOrder& order, std::span<const Prefix> found) {
  const JobIndex index = add(order, Direction::swap_in);
  const PrefixTree& tree = residency_.tree();
  const auto parts = static_cast<std::uint32_t>(order.keys.size()) - order.first;
  Job& job = jobs_.at(index);
  for (const Prefix& prefix : found) {
    if (prefix.length == 0) continue;
    residency_.pin(prefix);
    job.pins.push_back(prefix);
  }
  for (std::uint32_t i = 0; i < parts; ++i) {
    const Prefix prefix = flat_ ? found[i] : found.front();
    const std::uint32_t depth = flat_ ? 0 : order.first + i;
    if (depth >= prefix.length) {
      end_part({index, i}, Errc::not_found);
      continue;
    }
    part({index, i}).block = tree.at(prefix, depth);
    resolve_load({index, i});
  }
  if (parts == 0) finished_.push_back(index);
  sweep();
}

void NamedCopies::store(const OffloadOrder& order, std::uint64_t stamp) {
  const JobIndex index = add(order, Direction::swap_out);
  Job& job = jobs_.at(index);
  const auto parts = static_cast<std::uint32_t>(job.parts.size());
  pin_keys(order, stamp, job.pins, named_);
  for (std::uint32_t i = 0; i < parts; ++i) job.parts[i].block = named_[i];
  job.parents = parents(named_);
  for (std::uint32_t i = 0; i < parts; ++i) resolve_store({index, i});
  if (parts == 0) finished_.push_back(index);
  sweep();
}

/// Pins all blocks of the order before the first of them takes a slot, so that none is evicted for another one. They are used.
void NamedCopies::pin_keys(const OffloadOrder& order, std::uint64_t stamp, std::vector<Prefix>& pins,
                           std::vector<BlockRef>& blocks) {
  blocks.clear();
  if (flat_) {
    for (std::size_t i = 0; i < order.keys.size(); ++i) {
      pins.push_back(residency_.extend_pinned({}, order.keys.subspan(i, 1), order.tenant, {}));
      blocks.push_back(pins.back().last());
    }
  } else if (!order.keys.empty()) {
    const Prefix whole = residency_.extend_pinned({}, order.keys, order.tenant, {});
    pins.push_back(whole);
    for (std::uint32_t i = order.first; i < whole.length; ++i) blocks.push_back(residency_.tree().at(whole, i));
  }
  for (std::size_t i = pins.size(); i-- > 0;) residency_.touch(pins[i], stamp);
}

/// The first blocks of an order are unpinned last. So of blocks that stand alone, the last ones are evicted first.
void NamedCopies::unpin(std::span<const Prefix> pins) {
  for (std::size_t i = pins.size(); i-- > 0;) residency_.unpin_incomplete(pins[i]);
}

std::uint32_t NamedCopies::parents(std::span<const BlockRef> blocks) const {
  if (flat_) return 0;
  const auto is_new = [this](BlockRef block) {
    return !residency_.copy(block, Tier::host).present() && !residency_.stored(block);
  };
  const auto last = std::ranges::find_if(blocks.rbegin(), blocks.rend(), is_new);
  return static_cast<std::uint32_t>(blocks.rend() - last);
}

NamedCopies::Reserved NamedCopies::reserve(const OffloadOrder& order, std::uint64_t stamp, std::span<SlotId> slots) {
  Reserved reserved;
  reserved.pins.reserve(slots.size());
  reserved.blocks.reserve(slots.size());
  pin_keys(order, stamp, reserved.pins, named_);
  const std::uint32_t needed = parents(named_);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const BlockRef block = named_[i];
    slots[i] = no_host_slot;
    if (residency_.copy(block, Tier::host).present() || (residency_.stored(block) && i >= needed)) {
      ++totals_.already_there;
      continue;
    }
    if (residency_.tree().hidden(block) || !residency_.supported(block, Tier::host)) continue;
    const std::optional<SlotId> slot = host_slots_.take_for_store(order.tenant);
    if (!slot) {
      ++totals_.store_full;
      continue;
    }
    residency_.begin_fill(block, Tier::host, *slot);
    slots[i] = *slot;
    reserved.blocks.push_back(block);
  }
  if (reserved.blocks.empty()) unpin(std::exchange(reserved.pins, {}));
  if (!flat_ || reserved.blocks.size() == reserved.pins.size()) return reserved;
  // Blocks that stand alone and need no slot are not kept.
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
    residency_.publish(block, Tier::host);
    if (config_.stores_by(WritePolicy::write_through) && !residency_.stored(block)) storage_writer_.write_through(block, 1);
  }
  unpin(reserved.pins);
}

/// The block goes on from what there is of it now.
void NamedCopies::resolve_load(PartRef ref) {
  Part& p = part(ref);
  const Copy in_host = residency_.copy(p.block, Tier::host);
  if (in_host.usable() && p.to_host_only()) {
    end_part(ref, {});
  } else if (in_host.usable()) {
    residency_.hold(p.block, Tier::host);
    p.landing = {in_host.slot()};
    p.state = State::landed;
    landed_.push_back(ref);
  } else if (in_host.present()) {
    if (p.state != State::joined) ++totals_.joined;
    p.state = State::joined;
    joined_.push_back(ref);
  } else if (residency_.stored(p.block)) {
    p.source = Source::storage;
    p.state = State::reading;
    p.read = reads_.add({.reader = {StoredReads::Reader::Kind::named_copy, ref.job},
                         .part = ref.part,
                         .block = p.block,
                         .tenant = jobs_.at(ref.job).tenant,
                         .urgency = jobs_.at(ref.job).urgency,
                         .overtaken = StoredReads::Overtaken::is_given_back,
                         .only_host_copy = p.to_host_only()});
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
  if (in_host.present()) {
    if (p.state != State::joined) ++totals_.joined;
    p.state = State::joined;
    joined_.push_back(ref);
    return;
  }
  if (residency_.tree().hidden(p.block)) return end_part(ref, Errc::cleared);
  if (!residency_.supported(p.block, Tier::host)) return end_part(ref, Errc::parent_missing);
  const std::optional<SlotId> slot = host_slots_.take_for_store(jobs_.at(ref.job).tenant);
  if (!slot) return end_part(ref, Errc::full);
  residency_.begin_fill(p.block, Tier::host, *slot);
  p.landing = {*slot};
  p.state = State::landed;
  landed_.push_back(ref);
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
  sweep();
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
      p.landing = result.landing;
      p.state = State::landed;
      landed_.push_back(ref);
      break;
    case StoredReads::Result::Kind::failed: end_part(ref, result.error); break;
    case StoredReads::Result::Kind::given_back: resolve_load(ref); break;
  }
  sweep();
}

void NamedCopies::flush(std::uint64_t& last_transfer, PoolId pool) {
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
    transfer.pool = pool;
    transfer.direction = job.direction;
    transfer.urgency = job.urgency;
    transfer.deadline = job.deadline;
    transfer.after = job.after;
    transfer.by_layer = job.by_layer;
    transfer.runs = actions_.spare_runs.take();
    coalesce(pairs_, transfer.runs);
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
    sweep();
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
        // Something may still move. The result must wait.
        part(ref).state = State::unconfirmed;
        unconfirmed_[event.id].push_back(ref);
        ++unconfirmed_blocks_;
        ++totals_.unconfirmed;
        break;
    }
  }
  spare_refs_.give(std::move(*refs));
  sweep();
  return true;
}

void NamedCopies::on_copied(std::uint64_t token) {
  finish_copy(memory_copies_.take(token), {});
  sweep();
}

/// Nothing moves any more between the named slot and the host slot.
void NamedCopies::finish_copy(PartRef ref, ErrorCode error) {
  const Part& p = part(ref);
  if (jobs_.at(ref.job).direction == Direction::swap_in) {
    reads_.release(p.block, p.landing);
  } else if (error) {
    residency_.fail_host_fill(p.block);
  } else {
    residency_.publish(p.block, Tier::host);
    if (config_.stores_by(WritePolicy::write_through) && !residency_.stored(p.block)) storage_writer_.write_through(p.block, 1);
  }
  end_part(ref, error);
}

// ---- layers ------------------------------------------------------------------------------------------------------------------

std::uint32_t NamedCopies::layers(const Job& job) const {
  return job.unsubmitted > 0 || job.failed > 0 ? 0 : job.transfers.least();
}

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
  const std::uint32_t before = this->layers(job);
  job.transfers.set(transfer, layers);
  const std::uint32_t after = this->layers(job);
  if (!job.by_layer || after <= before || after == all_layers) return;
  OffloadEvent event;
  event.kind = OffloadEvent::Kind::layers;
  event.job = job.id;
  event.layers = after;
  events_.push_back(event);
}

// ---- the end -----------------------------------------------------------------------------------------------------------------

void NamedCopies::count(const Job& job, const Part& part, ErrorCode error) {
  if (error == Errc::deadline_exceeded) ++totals_.late;
  const bool crossed = part.state == State::crossing;
  if (job.direction == Direction::swap_in) {
    if (!error) ++(part.source == Source::storage ? totals_.loaded_storage : totals_.loaded_host);
    else ++(error == Errc::not_found ? totals_.load_misses : totals_.load_failures);
  } else if (!error) {
    if (crossed) ++totals_.stored;
  } else {
    ++(error == Errc::full ? totals_.store_full : totals_.store_failures);
  }
}

/// A part has begun to cross, or will not. The deadline is for those before that; the transfers have one of their own.
void NamedCopies::submitted(JobIndex index) {
  if (--jobs_.at(index).unsubmitted == 0) reads_.set_deadline({StoredReads::Reader::Kind::named_copy, index}, never);
}

/// The result of a block. Nothing touches its named slot any more.
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
  OffloadEvent event;
  event.kind = OffloadEvent::Kind::block;
  event.job = job.id;
  event.block = job.first + ref.part;
  event.error = error;
  event.source = p.source;
  events_.push_back(event);
  --in_flight_;
  TERRACE_CHECK(job.unfinished > 0);
  if (--job.unfinished == 0) finished_.push_back(ref.job);
}

/// Ends jobs whose last block has its result. Not done in end_part(), so that loops over the parts of a job stay simple.
void NamedCopies::sweep() {
  while (!finished_.empty()) {
    const Job job = jobs_.take(finished_.back());
    finished_.pop_back();
    by_id_.erase(job.id);
    unpin(job.pins);
    OffloadEvent event;
    event.kind = OffloadEvent::Kind::ended;
    event.job = job.id;
    event.error = job.error;
    event.failed = job.failed;
    event.moved = static_cast<std::uint32_t>(job.parts.size()) - job.failed;
    events_.push_back(event);
  }
}

/// Ends the parts of a job that have not begun to cross the link.
void NamedCopies::end_waiting(JobIndex index, ErrorCode error) {
  const auto of_job = [index](const PartRef& ref) { return ref.job == index; };
  std::erase_if(joined_, of_job);
  std::erase_if(landed_, of_job);
  const auto parts = static_cast<std::uint32_t>(jobs_.at(index).parts.size());
  for (std::uint32_t i = 0; i < parts; ++i) {
    const Part& p = part({index, i});
    switch (p.state) {
      case State::joined: end_part({index, i}, error); break;
      case State::reading:
        reads_.cancel(p.read);
        end_part({index, i}, error);
        break;
      case State::landed:
        if (jobs_.at(index).direction == Direction::swap_in) reads_.release(p.block, p.landing);
        else residency_.fail_host_fill(p.block);
        end_part({index, i}, error);
        break;
      case State::crossing:
      case State::unconfirmed:
      case State::ended: break;
    }
  }
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
  sweep();
  return true;
}

void NamedCopies::on_late(JobIndex job) {
  end_waiting(job, Errc::deadline_exceeded);
  sweep();
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
