#include "runtime/cache/pool/loads.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {

Loads::LoadId Loads::new_load() {
  if (free_.empty()) {
    free_.push_back(static_cast<LoadId>(loads_.size()));
    loads_.emplace_back();
  }
  const LoadId id = free_.back();
  free_.pop_back();
  TERRACE_CHECK(!loads_[id].in_use);
  loads_[id].in_use = true;
  ++open_;
  return id;
}

Loads::LoadId Loads::start(std::span<const LoadRun> runs, std::span<const SlotId> device_slots, std::uint32_t waiter,
                           Deadlines deadlines, bool by_layer) {
  TERRACE_CHECK(!runs.empty());
  const LoadId id = new_load();
  Load& load = loads_[id];
  std::uint32_t parts = 0;
  for (auto run = runs.begin(); run != runs.end(); ++run) {
    parts += run->blocks.size();
    // The next run continues this prefix if it is deeper. Otherwise it begins another prefix.
    const auto next = std::next(run);
    if (next != runs.end() && next->blocks.begin >= run->blocks.end) continue;
    const Prefix prefix{run->blocks.node, run->blocks.end};
    residency_.pin(prefix);
    load.prefixes.push_back({prefix, parts, std::nullopt, Source::host});
  }
  TERRACE_CHECK(device_slots.size() == parts);
  load.deadlines = deadlines;
  load.waiters.push_back(waiter);
  load.unfinished = load.unsubmitted = parts;
  load.by_layer = by_layer;

  load.parts.reserve(parts);
  for (const LoadRun& run : runs) begin_run(id, run, device_slots.subspan(load.parts.size(), run.blocks.size()));
  set_deadline(id);
  return id;
}

void Loads::begin_run(LoadId id, const LoadRun& run, std::span<const SlotId> device_slots) {
  Load& load = loads_[id];
  const auto begin = static_cast<std::uint32_t>(load.parts.size());
  load.parts.resize(begin + device_slots.size());
  const std::span<Part> parts = std::span{load.parts}.subspan(begin);
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    parts[i].block = {run.blocks.node, run.blocks.begin + i};
    parts[i].device_slot = device_slots[i];
    parts[i].source = run.source;
  }
  residency_.begin_load(run.blocks, device_slots, id, run.source);
  if (run.source == Source::host) {
    residency_.hold(run.blocks, Tier::host);
    const std::span<const Copy> in_host = residency_.tree().copies(run.blocks, Tier::host);
    for (std::uint32_t i = 0; i < parts.size(); ++i) parts[i].landing.slot = in_host[i].slot();
    return add_landed({id, begin, static_cast<std::uint32_t>(load.parts.size())});
  }
  load.unread += run.blocks.size();
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    parts[i].state = State::reading;
    parts[i].read = reads_.add({.reader = {StoredReads::Reader::Kind::load, id},
                                .part = begin + i,
                                .block = parts[i].block,
                                .source = run.source,
                                .tenant = residency_.tree().tenant(parts[i].block)});
  }
}

void Loads::add_landed(PartRange parts) {
  landed_blocks_ += parts.size();
  const bool follows = !landed_.empty() && landed_.back().load == parts.load && landed_.back().end == parts.begin;
  if (follows) landed_.back().end = parts.end;
  else landed_.push_back(parts);
}

void Loads::join(LoadId id, std::uint32_t waiter, Deadlines deadlines, bool by_layer) {
  Load& load = loads_[id];
  TERRACE_CHECK(std::ranges::find(load.waiters, waiter) == load.waiters.end());
  load.waiters.push_back(waiter);
  load.by_layer |= by_layer;
  // The time for reads counts from the start of the load (Deadlines::now), not from the time at which this waiter joins.
  if (deadlines.reads != never) deadlines.reads -= deadlines.now - load.deadlines.now;
  load.deadlines.reads = std::max(load.deadlines.reads, deadlines.reads);
  set_deadline(id);
  if (deadlines.copies > load.deadlines.copies) {
    load.deadlines.copies = deadlines.copies;
    for (const LayersBrought::Entry& transfer : load.transfers.all())
      actions_.postponements.push_back({transfer.id, deadlines.copies});
  }
}

/// Only a load that waits for reads has a deadline for them.
void Loads::set_deadline(LoadId id) {
  const Load& load = loads_[id];
  reads_.set_deadline({StoredReads::Reader::Kind::load, id}, load.unread > 0 ? load.deadlines.reads : never);
}

void Loads::leave(LoadId id, std::uint32_t waiter) {
  Load& load = loads_[id];
  if (load.unfinished == 0 || std::erase(load.waiters, waiter) == 0 || !load.waiters.empty()) return;
  for (const LayersBrought::Entry& transfer : load.transfers.all()) actions_.cancels.push_back(transfer.id);
  if (load.unread > 0) abandon_reads(id);
}

std::uint32_t Loads::layers(LoadId id) const {
  const Load& load = loads_[id];
  return load.unsubmitted > 0 || load.lost ? 0 : load.transfers.least();
}

bool Loads::transfers_for(LoadId id, std::uint32_t layers, std::vector<TransferId>& out) const {
  const Load& load = loads_[id];
  if (load.unsubmitted > 0 || load.lost) return false;
  load.transfers.append_open(layers, out);
  return true;
}

void Loads::set_layers(LoadId id, TransferId transfer, std::uint32_t layers) {
  Load& load = loads_[id];
  const bool grew = load.transfers.set(transfer, layers);
  if (grew && load.by_layer && this->layers(id) > 0) events_.push_back({.kind = Event::Kind::layers, .load = id});
}

Loads::LoadId Loads::load_of(BlockRef block) const {
  const SlotId slot = residency_.copy(block, Tier::device).slot();
  const LoadId id = residency_.slots_of(Tier::device).load(slot);
  TERRACE_CHECK(id < loads_.size() && loads_[id].in_use);
  return id;
}

void Loads::on_read(const StoredReads::Result& result) {
  const LoadId id = result.reader.number;
  Load& load = loads_[id];
  Part& part = load.parts[result.part];
  TERRACE_CHECK(part.state == State::reading);
  if (--load.unread == 0) set_deadline(id);
  if (result.kind == StoredReads::Result::Kind::failed) return end_part(id, result.part, State::failed);
  // `given_back` needs Overtaken::is_given_back or, in exclusive mode, only_host_copy. A load uses neither.
  TERRACE_CHECK(result.kind == StoredReads::Result::Kind::landed);
  part.landing = result.landing;
  part.state = State::landed;
  add_landed({id, result.part, result.part + 1});
}

/// Ends the load without the parts that have not been read yet, because they are late or because the last waiter has left. If
/// copies of other parts are under way, the load ends when they end.
void Loads::abandon_reads(LoadId id) {
  Load& load = loads_[id];
  load.late = !load.waiters.empty();
  load.unread = 0;
  set_deadline(id);
  const auto parts = static_cast<std::uint32_t>(load.parts.size());
  for (std::uint32_t i = 0; i < parts; ++i) {
    Part& part = loads_[id].parts[i];
    if (part.state != State::reading) continue;
    reads_.cancel(part.read);
    stats_.loads_late += load.late;
    end_part(id, i, State::failed);
  }
}

void Loads::start_transfers(std::uint64_t& last_transfer) {
  // One transfer for each load.
  while (!landed_.empty()) {
    const LoadId id = landed_.front().load;
    Load& load = loads_[id];
    std::vector<PartRange> ranges = spare_ranges_.take();
    std::erase_if(landed_, [&](const PartRange& parts) {
      if (parts.load == id) ranges.push_back(parts);
      return parts.load == id;
    });
    Transfer transfer;
    transfer.direction = Direction::swap_in;
    transfer.urgency = Urgency::request;
    transfer.deadline = load.deadlines.copies;
    transfer.by_layer = load.by_layer;
    transfer.runs = actions_.spare_runs.take();
    const SlotAllocator& device = residency_.slots_of(Tier::device);
    std::uint32_t blocks = 0;
    for (const PartRange& range : ranges) {
      blocks += range.size();
      for (Part& part : std::span{load.parts}.subspan(range.begin, range.size())) {
        part.state = State::crossing;
        append(transfer.runs, {part.landing.slot, part.device_slot, 1});
        // The transfer must not write to a slot while earlier compute may still touch it.
        transfer.after = std::max(transfer.after, device.fence(part.device_slot));
      }
    }
    load.unsubmitted -= blocks;
    landed_blocks_ -= blocks;
    crossing_ += blocks;
    transfer.id = transfers_.add(last_transfer, std::move(ranges));
    load.transfers.add(transfer.id);
    actions_.transfers.push_back(std::move(transfer));
  }
}

bool Loads::on_event(const TransferEvent& event) {
  if (event.kind == TransferEvent::Kind::confirmed) return on_confirmed(event.id);
  if (event.kind == TransferEvent::Kind::layers) {
    const std::vector<PartRange>* const parts = transfers_.find(event.id);
    if (parts != nullptr) set_layers(parts->front().load, event.id, event.layers);
    return parts != nullptr;
  }
  std::optional<std::vector<PartRange>> ranges = transfers_.take(event.id);
  if (!ranges) return false;
  const LoadId id = ranges->front().load;
  const std::size_t blocks = event.outcomes.size();
  crossing_ -= static_cast<std::uint32_t>(blocks);
  const bool all_done = std::ranges::all_of(event.outcomes, [](BlockOutcome o) { return o == BlockOutcome::done; });
  const bool others_follow = loads_[id].unfinished > blocks;
  if (all_done && others_follow) set_layers(id, event.id, all_layers);
  auto outcome = event.outcomes.begin();
  for (const PartRange& range : *ranges) {
    if (all_done) {
      TERRACE_CHECK(event.outcomes.end() - outcome >= range.size());
      outcome += range.size();
      end_arrived(range);
      continue;
    }
    for (std::uint32_t index = range.begin; index < range.end; ++index) {
      TERRACE_CHECK(outcome != event.outcomes.end());
      end_crossing(id, index, *outcome++, event.id);
    }
  }
  TERRACE_CHECK(outcome == event.outcomes.end());
  spare_ranges_.give(std::move(*ranges));
  return true;
}

/// The parts from `first` on, before `end`, that are in the same state and for neighbouring blocks of one node, as a run of these
/// blocks. It has at least one block.
Run Loads::neighbours(LoadId id, std::uint32_t first, std::uint32_t end) const {
  const std::span<const Part> parts = std::span{loads_[id].parts}.first(end).subspan(first);
  const PrefixTree& tree = residency_.tree();
  // A split may have moved the block to another node since the load began.
  const auto [begun_in, depth] = parts.front().block;
  const NodeId node = tree.at({begun_in, depth + 1}, depth).node;
  Run run{node, depth, depth + 1};
  const std::uint32_t node_end = tree.flat() ? run.end : tree.blocks_in(node)->end;
  for (const Part& part : parts.subspan(1)) {
    const bool follows = part.block.node == begun_in && part.block.depth == run.end && part.state == parts.front().state;
    if (!follows || run.end == node_end) break;
    ++run.end;
  }
  return run;
}

/// The copies of these parts have arrived. The same as end_crossing() for each.
void Loads::end_arrived(PartRange range) {
  Load& load = loads_[range.load];
  for (std::uint32_t i = range.begin; i < range.end;) {
    const Run run = neighbours(range.load, i, range.end);
    const std::span<Part> parts = std::span{load.parts}.subspan(i, run.size());
    const bool staging = std::ranges::any_of(parts, [](const Part& part) { return part.landing.staging; });
    const bool together = !staging && residency_.unhold_last(run);
    for (Part& part : parts) {
      TERRACE_CHECK(part.state == State::crossing);
      part.state = State::arrived;
      load.arrived[part.source] = now_;
      if (!together) reads_.release(part.block, part.landing);
    }
    i += run.size();
  }
  TERRACE_CHECK(load.unfinished >= range.size());
  load.unfinished -= range.size();
  if (load.unfinished == 0) finish(range.load);
}

/// The transfer of a part has ended.
void Loads::end_crossing(LoadId id, std::uint32_t index, BlockOutcome outcome, TransferId transfer) {
  Part& part = loads_[id].parts[index];
  TERRACE_CHECK(part.state == State::crossing);
  switch (outcome) {
    case BlockOutcome::done: return end_part(id, index, State::arrived);
    case BlockOutcome::failed:
    case BlockOutcome::cancelled: return end_part(id, index, State::failed);
    case BlockOutcome::unconfirmed:
      unconfirmed_[transfer].load = id;
      unconfirmed_[transfer].parts.emplace_back(index, part);
      return end_part(id, index, State::unconfirmed);
  }
}

/// The device confirms that the transfer's unconfirmed parts are not being copied any more.
bool Loads::on_confirmed(TransferId id) {
  const auto found = unconfirmed_.find(id);
  if (found == unconfirmed_.end()) return false;
  const auto& [load, has_ended, parts] = found->second;
  for (const auto& [index, part] : parts) {
    // If their load still waits for other parts, they become ordinary failed parts: finish() need not quarantine their slots.
    if (has_ended) {
      residency_.free_slot(Tier::device, part.device_slot);
    } else {
      TERRACE_CHECK(loads_[load].parts[index].state == State::unconfirmed);
      loads_[load].parts[index].state = State::failed;
    }
    reads_.release(part.block, part.landing);
  }
  unconfirmed_.erase(found);
  return true;
}

void Loads::end_part(LoadId id, std::uint32_t index, State state) {
  Load& load = loads_[id];
  Part& part = load.parts[index];
  const bool crossed = part.state == State::crossing;
  part.state = state;
  // The transfer of an unconfirmed part may still read the landing slot, so the slot is not released.
  if (crossed && state != State::unconfirmed) reads_.release(part.block, part.landing);
  if (!crossed) --load.unsubmitted;
  if (state == State::arrived) load.arrived[part.source] = now_;
  else load.lost = true;
  TERRACE_CHECK(load.unfinished > 0);
  if (--load.unfinished == 0) finish(id);
}

void Loads::finish(LoadId id) {
  Load& load = loads_[id];
  auto prefix = load.prefixes.begin();
  for (std::uint32_t i = 0, size = 1; i < load.parts.size(); i += size) {
    const Part& part = load.parts[i];
    if (i == prefix->end) ++prefix;
    // A block is not supported if the block before it did not arrive. Then the block is dropped, because a copy needs all copies
    // before it in its prefix.
    if (part.state == State::arrived && residency_.supported(part.block, Tier::device)) {
      const Run run = neighbours(id, i, prefix->end);
      residency_.publish(run, Tier::device);
      for (std::uint32_t depth = run.begin; depth < run.end; ++depth) residency_.drop_second({run.node, depth});
      size = run.size();
      continue;
    }
    size = 1;
    if (!prefix->missing) {
      prefix->missing = part.block;
      prefix->missing_from = part.source;
    }
    ++stats_.load_failures;
    stats_.quarantined_late += part.state == State::unconfirmed ? 1 : 0;
    residency_.fail_fill(part.block, Tier::device, part.state == State::unconfirmed ? FailedSlot::quarantine : FailedSlot::free);
  }
  // The load ends, but these transfers may still write to its device slots. The slots stay in quarantine until on_confirmed().
  for (auto& [transfer, unconfirmed] : unconfirmed_) unconfirmed.has_ended |= unconfirmed.load == id;
  for (const PinnedPrefix& each : load.prefixes) {
    if (each.missing) events_.push_back({Event::Kind::missing, id, *each.missing, load.late, each.missing_from});
  }
  events_.push_back({.kind = Event::Kind::ended, .load = id});
}

void Loads::close(LoadId id) {
  Load& load = loads_[id];
  TERRACE_CHECK(load.in_use && load.unfinished == 0);
  for (const PinnedPrefix& each : load.prefixes) residency_.unpin_incomplete(each.pin, each.missing);
  load.clear();
  --open_;
  free_.push_back(id);
}

void Loads::check_invariants() const {
  std::size_t open = 0;
  std::size_t landed_in_all = 0;
  std::size_t crossing_in_all = 0;
  for (const Load& load : loads_) {
    if (!load.in_use) continue;
    const auto parts_in = [&](State state) {
      return static_cast<std::size_t>(std::ranges::count(load.parts, state, &Part::state));
    };
    const std::size_t reading = parts_in(State::reading);
    const std::size_t landed = parts_in(State::landed);
    const std::size_t crossing = parts_in(State::crossing);
    TERRACE_CHECK(load.unread == reading);
    TERRACE_CHECK(load.unsubmitted == reading + landed);
    TERRACE_CHECK(load.unfinished == reading + landed + crossing);
    // A load without waiters waits only for copies under way, never for storage. So its device slots become free soon.
    if (load.waiters.empty()) TERRACE_CHECK(reading == 0);
    ++open;
    landed_in_all += landed;
    crossing_in_all += crossing;
  }
  TERRACE_CHECK(open == open_);
  TERRACE_CHECK(landed_in_all == landed_blocks_);
  TERRACE_CHECK(crossing_in_all == crossing_);
}

}  // namespace terrace
