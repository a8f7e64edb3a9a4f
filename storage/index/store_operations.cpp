#include "storage/index/store_operations.hpp"

#include "base/check.hpp"

#include <utility>

namespace terrace {

using State = StoreIndex::State;

namespace {

/// Returns true if the slot must not be used again after a write with this outcome.
bool retires_slot(StoreOperations::WriteOutcome outcome) {
  return outcome == StoreOperations::WriteOutcome::io_failed || outcome == StoreOperations::WriteOutcome::lost;
}

}  // namespace

StoreOperations::StoreOperations(std::uint32_t capacity_blocks, Bytes block_bytes, std::uint32_t writes_max)
    : index_{capacity_blocks}, block_bytes_{block_bytes}, writes_max_{writes_max}, write_of_(capacity_blocks, none) {}

StoreOperations::Id StoreOperations::begin(Kind kind, SlotId slot, std::uint64_t token, const BlockKey& key) {
  if (kind == Kind::write) ++writes_;
  return Id{operations_.add({kind, slot, token, key, none})};
}

void StoreOperations::emit(StoreEvent::Kind kind, std::uint64_t token, const BlockKey& key, ErrorCode error,
                           std::uint64_t write_token) {
  events_.push_back({kind, token, key, error, write_token});
}

std::optional<StoreOperations::Started> StoreOperations::start_read(const StoreRead& read) {
  const std::optional<SlotId> slot = index_.find(read.key);
  if (!slot || index_.at(*slot).state != State::ready) {
    emit(StoreEvent::Kind::read, read.token, read.key, Errc::not_found);
    return std::nullopt;
  }
  index_.use(*slot);
  index_.hold(*slot);
  return Started{begin(Kind::read, *slot, read.token, read.key), *slot};
}

std::optional<StoreOperations::Started> StoreOperations::start_write(const StoreWrite& write) {
  const auto answer = [&](ErrorCode error) -> std::optional<Started> {
    emit(StoreEvent::Kind::written, write.token, write.block.key, error);
    return std::nullopt;
  };

  if (const std::optional<SlotId> slot = index_.find(write.block.key)) {
    index_.use(*slot);
    const bool is_ready = index_.at(*slot).state == State::ready;
    if (!is_ready && (index_.at(*slot).marked_for_removal || writes_ >= writes_max_)) return answer(Errc::refused);
    index_.set_write_token(*slot, write.token);  // events carry the token of the latest write
    if (is_ready) return answer({});
    const std::uint32_t first = write_of_[slot->value()];
    const Id id = begin(Kind::write, *slot, write.token, write.block.key);
    operations_.at(id.value()).next = std::exchange(operations_.at(first).next, id.value());
    return std::nullopt;
  }
  if (writes_ >= writes_max_) return answer(Errc::refused);
  const Result<StoreIndex::Freed> placed = index_.place(write.block);
  if (!placed) return answer(placed.error());
  // The slot may be that of the evicted block. In both cases the slot's catalog record changes.
  note_freed(*placed);
  index_.set_write_token(placed->slot, write.token);
  const Id id = begin(Kind::write, placed->slot, write.token, write.block.key);
  write_of_[placed->slot.value()] = id.value();
  return Started{id, placed->slot};
}

void StoreOperations::note_freed(const StoreIndex::Freed& freed) {
  changed_.push_back(freed.slot);
  suspected_.erase(freed.slot.value());
  if (!freed.evicted) return;
  ++counted_.evicted;
  emit(StoreEvent::Kind::evicted, 0, freed.evicted->key, {}, freed.evicted->write_token);
}

void StoreOperations::end_read(Id id, ReadOutcome outcome) {
  const Operation read = operations_.take(id.value());
  TERRACE_CHECK(read.kind == Kind::read);
  const bool still_here = index_.at(read.slot).state == State::ready;
  switch (outcome) {
    case ReadOutcome::verified:
      ++counted_.reads;
      counted_.read += block_bytes_;
      suspected_.erase(read.slot.value());
      emit(StoreEvent::Kind::read, read.token, read.key);
      break;
    case ReadOutcome::corrupt:
      ++counted_.corrupt;
      emit(StoreEvent::Kind::read, read.token, read.key, Errc::corrupt);
      if (still_here) give_up(read.slot, StoreEvent::Kind::evicted, 0);
      break;
    case ReadOutcome::io_failed:
      // The cause of one failure may be the connection to the device. A second failure in a row means that the block is damaged.
      // The next write to the slot shows whether the medium is damaged.
      ++counted_.io_errors;
      emit(StoreEvent::Kind::read, read.token, read.key, Errc::io_failed);
      if (still_here && !suspected_.insert(read.slot.value()).second) {
        give_up(read.slot, StoreEvent::Kind::evicted, 0);
      }
      break;
    case ReadOutcome::lost:
      emit(StoreEvent::Kind::read, read.token, read.key, Errc::not_found);
      if (still_here) (void)lose(read.slot);
      break;
  }
  index_.release(read.slot);
}

void StoreOperations::end_write(Id id, WriteOutcome outcome) {
  const Operation write = operations_.at(id.value());
  TERRACE_CHECK(write.kind == Kind::write);
  TERRACE_CHECK(write_of_[write.slot.value()] == id.value());
  if (outcome == WriteOutcome::io_failed) ++counted_.io_errors;

  if (index_.at(write.slot).state == State::removing) {
    // The parent was removed while the bytes were being written.
    if (retires_slot(outcome)) index_.retire_slot(write.slot);
    finish_writes(write.slot, Errc::parent_missing);
    index_.release(write.slot);
  } else if (outcome == WriteOutcome::done) {
    write_succeeded(write.slot);
  } else {
    write_failed(write.slot, outcome);
  }
}

void StoreOperations::write_succeeded(SlotId slot) {
  ++counted_.writes;
  counted_.written += block_bytes_;
  std::vector<SlotId> ready = std::exchange(became_ready_, {});
  ready.clear();
  index_.data_arrived(slot, ready);
  for (const SlotId block : ready) {
    changed_.push_back(block);
    finish_writes(block, {});
  }
  // Parents come first. A block that is marked for removal takes all its descendants with it, marked or not.
  for (const SlotId block : ready) {
    const auto mark_for_removal = to_remove_.find(block.value());
    if (mark_for_removal == to_remove_.end()) continue;
    give_up(block, StoreEvent::Kind::removed, mark_for_removal->second);
  }
  became_ready_ = std::move(ready);
}

void StoreOperations::write_failed(SlotId slot, WriteOutcome outcome) {
  const ErrorCode error = outcome == WriteOutcome::no_space ? Errc::full
                          : outcome == WriteOutcome::lost   ? Errc::refused
                                                            : Errc::io_failed;
  std::vector<StoreIndex::Dropped> gone = std::exchange(gone_, {});
  gone.clear();
  index_.drop(slot, gone);
  finish_writes(slot, error);
  for (auto block = gone.rbegin(); block != gone.rend(); ++block) {
    to_remove_.erase(block->slot.value());
    // A descendant whose bytes are still being written gets its event when that write ends.
    if (block->was == State::awaiting_parent) finish_writes(block->slot, Errc::parent_missing);
  }
  gone_ = std::move(gone);
  if (retires_slot(outcome)) index_.retire_slot(slot);
  index_.release(slot);
}

void StoreOperations::finish_writes(SlotId slot, ErrorCode error) {
  std::uint32_t id = std::exchange(write_of_[slot.value()], none);
  while (id != none) {
    const Operation write = operations_.take(id);
    --writes_;
    emit(StoreEvent::Kind::written, write.token, write.key, error);
    id = write.next;
  }
}

void StoreOperations::give_up(SlotId slot, StoreEvent::Kind kind, std::uint64_t token) {
  std::vector<StoreIndex::Dropped> gone = std::exchange(gone_, {});
  gone.clear();
  index_.drop(slot, gone);
  for (const StoreIndex::Dropped& block : gone) {
    const bool named = block.slot == slot || named_.contains(block.slot.value());
    const auto mark_for_removal = to_remove_.find(block.slot.value());
    const std::uint64_t asked_by = named ? token : mark_for_removal != to_remove_.end() ? mark_for_removal->second : 0;
    if (mark_for_removal != to_remove_.end()) to_remove_.erase(mark_for_removal);
    suspected_.erase(block.slot.value());
    if (block.was == State::ready) {
      changed_.push_back(block.slot);
      emit(kind, kind == StoreEvent::Kind::removed ? asked_by : 0, block.key, {}, block.write_token);
      if (kind == StoreEvent::Kind::evicted) ++counted_.evicted;
    } else if (block.was == State::awaiting_parent) {
      finish_writes(block.slot, Errc::parent_missing);
    }
  }
  gone_ = std::move(gone);
}

void StoreOperations::remove(std::span<const BlockKey> keys, std::uint64_t token) {
  for (const BlockKey& key : keys) {
    if (const std::optional<SlotId> slot = index_.find(key)) named_.insert(slot->value());
  }
  for (const BlockKey& key : keys) {
    const std::optional<SlotId> slot = index_.find(key);
    if (!slot) continue;
    if (index_.at(*slot).state == State::ready) {
      give_up(*slot, StoreEvent::Kind::removed, token);
    } else {
      index_.mark_for_removal(*slot);
      to_remove_.try_emplace(slot->value(), token);
    }
  }
  named_.clear();
}

bool StoreOperations::contains(const BlockKey& key) const {
  const std::optional<SlotId> slot = index_.find(key);
  return slot && index_.at(*slot).state == State::ready;
}

void StoreOperations::for_each(const std::function<void(const StoredBlock&)>& visit) const {
  index_.for_each_ready([&](SlotId slot) { visit(index_.block(slot)); });
}

void StoreOperations::adopt_all(const BlockStore::Adopt& adopt) {
  constexpr std::size_t batch = 1024;
  std::vector<SlotId> slots;
  std::vector<StoredBlock> blocks;
  std::vector<std::optional<std::uint64_t>> tokens;
  const auto flush = [&] {
    tokens.assign(blocks.size(), std::nullopt);
    adopt(blocks, tokens);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (tokens[i]) index_.set_write_token(slots[i], *tokens[i]);
    }
    slots.clear();
    blocks.clear();
  };
  index_.for_each_ready([&](SlotId slot) {
    slots.push_back(slot);
    blocks.push_back(index_.block(slot));
    if (blocks.size() == batch) flush();
  });
  if (!blocks.empty()) flush();
}

void StoreOperations::touch(std::span<const BlockKey> keys) {
  for (const BlockKey& key : keys) {
    if (const std::optional<SlotId> slot = index_.find(key)) index_.use(*slot);
  }
}

std::size_t StoreOperations::shrink(std::uint32_t slots_max) {
  std::uint32_t closed = 0;
  for (; closed < slots_max; ++closed) {
    const std::optional<StoreIndex::Freed> shrunk = index_.shrink();
    if (!shrunk) break;
    if (shrunk->evicted) note_freed(*shrunk);
  }
  return closed;
}

bool StoreOperations::lose(SlotId slot) {
  if (index_.at(slot).state == State::ready) give_up(slot, StoreEvent::Kind::evicted, 0);
  return index_.lose(slot);
}

void StoreOperations::extend(std::uint32_t slots) {
  index_.extend(slots);
  write_of_.resize(slots, none);
}

std::size_t StoreOperations::poll(std::vector<StoreEvent>& out) {
  const std::size_t count = events_.size();
  out.insert(out.end(), events_.begin(), events_.end());
  events_.clear();
  return count;
}

void StoreOperations::take_changed(std::vector<SlotId>& changed) {
  changed.clear();
  changed.swap(changed_);
}

StoreStat StoreOperations::stat() const {
  StoreStat stat = quick_stat();
  stat.orphans = index_.count_orphans();
  return stat;
}

StoreStat StoreOperations::quick_stat() const {
  StoreStat stat = counted_;
  stat.capacity_blocks = index_.capacity();
  stat.blocks = index_.count(State::ready);
  stat.writing = std::uint64_t{index_.count(State::writing)} + index_.count(State::awaiting_parent);
  stat.wanted_blocks = index_.limit();
  stat.quarantined = std::uint64_t{index_.count(State::removing)} + index_.count(State::bad) + index_.count(State::closing);
  stat.free = index_.free();
  return stat;
}

void StoreOperations::check_invariants() const {
  index_.check_invariants();
  std::vector<std::uint32_t> touching(index_.slots(), 0);
  std::uint32_t writes = 0;
  operations_.for_each([&](std::uint32_t, const Operation& operation) {
    writes += operation.kind == Kind::write;
    if (operation.kind == Kind::read) ++touching[operation.slot.value()];
  });
  TERRACE_CHECK(writes == writes_);
  std::uint32_t chained = 0;
  for (std::uint32_t slot = 0; slot < index_.slots(); ++slot) {
    const StoreIndex::Entry& e = index_.at(SlotId{slot});
    const bool has_write = write_of_[slot] != none;
    if (e.state == State::writing || e.state == State::awaiting_parent) TERRACE_CHECK(has_write);
    if (e.state != State::writing && e.state != State::awaiting_parent && e.state != State::removing) TERRACE_CHECK(!has_write);
    if (has_write && e.state != State::awaiting_parent) ++touching[slot];
    TERRACE_CHECK(touching[slot] == e.operations);
    TERRACE_CHECK(to_remove_.contains(slot) == e.marked_for_removal);
    for (std::uint32_t id = write_of_[slot]; id != none; id = operations_.at(id).next) {
      ++chained;
      TERRACE_CHECK(operations_.at(id).slot.value() == slot);
      if (e.state != State::removing) TERRACE_CHECK(operations_.at(id).key == e.key);
    }
  }
  TERRACE_CHECK(chained == writes_);
  TERRACE_CHECK(named_.empty());
}

}  // namespace terrace
