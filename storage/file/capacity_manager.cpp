#include "storage/file/capacity_manager.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace terrace {

using State = StoreIndex::State;
using Kind = IoOperation::Kind;

CapacityManager::CapacityManager(const FileStoreConfig& config, StoreOperations& operations, FileSet& files, IoEngine& engine)
    : operations_{operations},
      files_{files},
      engine_{engine},
      config_floor_{count(config.floor)},
      piece_slots_{static_cast<std::uint32_t>(
          std::clamp<std::uint64_t>(count(config.growth_piece_bytes) / count(config.block_bytes), 1, slots_max))},
      ahead_{config.writes_max} {}

void CapacityManager::start(std::vector<SlotId>& gone) {
  sparse_ = files_.sparse();
  const std::uint32_t slots = index().slots();
  const std::uint32_t wanted = files_.open_slots();
  if (config_floor_ > 0) {
    has_room_.assign(slots, !sparse_);
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      const State state = index().at(SlotId{slot}).state;
      if (state == State::ready) has_room_[slot] = true;
      if (state != State::lost && !has_room_[slot]) files_.add_unwritten(SlotId{slot});
    }
  }
  if (wanted < slots || files_.has_holes()) {
    // It is unknown which free slots have disk space. After they have been closed, none of them has space.
    index().limit(std::min(wanted, index().count(State::ready)));
    while (const auto shrunk = index().shrink()) {
      if (shrunk->evicted) gone.push_back(shrunk->slot);
    }
  } else if (on_demand()) {
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      if (index().at(SlotId{slot}).state != State::absent) continue;
      index().close_free(SlotId{slot});
      closed(SlotId{slot});
    }
  }
  index().limit(wanted);
}

Result<void> CapacityManager::resize(std::uint32_t slots) {
  if (slots == 0) return Errc::invalid_argument;
  if (slots > slots_max) return Errc::never_fits;
  index().limit(slots);
  halted_ = false;
  tried_ = 0;
  pump();
  return {};
}

void CapacityManager::pump() {
  if (stopped_) return;
  shrink();
  if (!closing_.empty() && hole_.count == 0) punch();
  if (step_ == Step::idle) next_step();
}

void CapacityManager::shrink() {
  if (index().excess() > 0 && operations_.shrink(evictions_max) == evictions_max) engine_.waker().wake();
  index().take_closing(scratch_);
  if (scratch_.empty()) return;
  closing_.insert(closing_.end(), scratch_.begin(), scratch_.end());
  std::sort(closing_.begin(), closing_.end());
}

void CapacityManager::punch() {
  const SlotId last = closing_.back();
  hole_ = {last.value(), 0};
  while (!closing_.empty() && hole_.count < piece_slots_) {
    const SlotId slot = closing_.back();
    if (slot.value() + hole_.count != last.value() || !files_.in_one_file(slot, last)) break;
    hole_ = {slot.value(), hole_.count + 1};
    closing_.pop_back();
  }
  IoOperation operation = files_.operation(Kind::deallocate, SlotId{hole_.first}, hole_.count);
  operation.token = hole_token;
  engine_.submit({&operation, 1});
}

void CapacityManager::hole_ended(const IoCompletion& completion) {
  if (completion.error != 0) {
    counted_.room_kept += hole_.count;
    if (completion.error != EOPNOTSUPP) operations_.count_io_error();
  }
  for (std::uint32_t slot = hole_.first; slot < hole_.first + hole_.count; ++slot) {
    index().close(SlotId{slot});
    closed(SlotId{slot});
  }
  hole_ = {};
}

/// The number of open slots that the superblock must have. 0: all slots are open and have their disk space.
std::uint64_t CapacityManager::noted_slots() const {
  const std::uint32_t slots = index().slots();
  return open_slots() + lost_slots() == slots && index().limit() >= slots ? 0 : std::min(index().limit(), slots);
}

void CapacityManager::next_step() {
  const std::uint64_t note = noted_slots();
  if (note != files_.superblock().open_slots && note != note_failed_) return write_superblock(index().slots());
  const bool look_due = on_demand() && first_writes_ - looked_at_ >= look_every;
  if (halted_ && on_demand() && writes_ >= retry_at_) halted_ = false;
  const bool larger = open_slots() + lost_slots() < index().limit() && !halted_ && (!on_demand() || index().free() < ahead_);
  if (larger) {
    grow();
  } else if (look_due) {
    if (const std::optional<IoOperation> look = files_.next_look()) return submit(Step::looking, *look);
    looked_at_ = first_writes_;
  }
}

void CapacityManager::grow() {
  const std::uint32_t wanted = index().limit() - open_slots();
  if (index().closed_to_take() > 0) {
    take_run(std::min({wanted, piece_slots_, tried_ > 0 ? tried_ : slots_max}));
  } else if (index().count(State::closing) > 0) {
    return;  // finish closing slots first
  } else if (files_.any_lost()) {
    return fail(errno_code(EIO));
  } else {
    numbering_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(files_.layout().next_row(), index().limit()));
    TERRACE_CHECK(numbering_ > files_.layout().slots);
  }
  if (config_floor_ > 0) {
    submit(Step::looking, numbering_ > 0 ? files_.look_at_catalog() : files_.look_at(SlotId{run_.first}));
  } else if (numbering_ > 0) {
    number_slots();
  } else {
    allocate();
  }
}

/// Takes the lowest closed slot, and the closed slots that follow it directly in the same file.
void CapacityManager::take_run(std::uint32_t count) {
  scratch_.clear();
  index().take_closed(std::min(count, files_.layout().run_slots()), scratch_);
  run_ = {scratch_.front().value(), 0};
  for (const SlotId slot : scratch_) {
    if (slot.value() == run_.first + run_.count && files_.in_one_file(slot, SlotId{run_.first})) {
      ++run_.count;
    } else {
      index().put_closed(slot);
    }
  }
}

/// Shortens the run to its first `from` slots, and puts the other slots back.
void CapacityManager::put_back(std::uint32_t from) {
  for (std::uint32_t slot = run_.first + from; slot < run_.first + run_.count; ++slot) index().put_closed(SlotId{slot});
  run_.count = from;
}

void CapacityManager::submit(Step step, IoOperation operation) {
  TERRACE_CHECK(step_ == Step::idle);
  step_ = step;
  operation.token = growth_token;
  engine_.submit({&operation, 1});
}

void CapacityManager::ended(const IoCompletion& completion) {
  if (completion.token == hole_token) return hole_ended(completion);
  switch (std::exchange(step_, Step::idle)) {
    case Step::idle: TERRACE_CHECK(false); break;
    case Step::looking: looked(completion); break;
    case Step::opening_file:
      if (completion.error != 0) {
        files_.forget_prepared(new_file_);
        return fail(errno_code(completion.error));
      }
      files_.add_data_file(new_file_);
      return number_slots();
    case Step::lengthening:
      if (completion.error != 0) return fail(errno_code(completion.error));
      return write_superblock(numbering_);
    case Step::writing_superblock: {
      const bool failed{superblock_write_.ended(completion)};
      if (failed || superblock_write_.is_done()) return superblock_written(!failed);
      return submit(Step::writing_superblock, superblock_write_.operation());
    }
    case Step::allocating: allocated(completion.error); break;
    case Step::giving_back: break;
  }
}

void CapacityManager::looked(const IoCompletion& completion) {
  looked_at_ = first_writes_;
  if (completion.error != 0) return fail(errno_code(completion.error));
  // Slots without disk space take it when they are written, so their space counts as used.
  const std::uint64_t promised = config_floor_ + (on_demand() ? files_.unwritten_at_last_look() * block_bytes() : 0);
  if (on_demand() && completion.bytes < promised) close_unwritten();
  if (run_.count == 0 && numbering_ == 0) return;  // it was a routine query of the free space, not the start of a growth step
  const std::uint64_t room = completion.bytes > promised ? completion.bytes - promised : 0;
  if (numbering_ > 0) {
    const Bytes catalog = files_.catalog_bytes(numbering_) - files_.catalog_bytes(files_.layout().slots);
    if (room >= count(catalog) + block_bytes()) return number_slots();
  } else if (room >= block_bytes()) {
    put_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(run_.count, room / block_bytes())));
    return allocate();
  }
  ++counted_.floor_stopped;
  fail(errno_code(ENOSPC));
}

void CapacityManager::number_slots() {
  if (files_.has_files_for(numbering_)) return lengthen();
  new_file_ = files_.prepare_data_file();
  submit(Step::opening_file, {.kind = Kind::open, .file = new_file_});
}

void CapacityManager::lengthen() {
  const std::uint64_t before = count(files_.catalog_bytes(files_.layout().slots));
  const std::uint64_t after = count(files_.catalog_bytes(numbering_));
  if (after == before) return write_superblock(numbering_);
  submit(Step::lengthening, {.kind = Kind::allocate, .file = files_.catalog(), .offset = before, .length = after - before});
}

Superblock CapacityManager::superblock_with(std::uint32_t slots, std::uint64_t open_slots) const {
  Superblock superblock = files_.superblock();
  superblock.slots = slots;
  superblock.open_slots = open_slots;
  return superblock;
}

void CapacityManager::write_superblock(std::uint32_t slots) {
  noting_ = numbering_ > 0 ? std::min(index().limit(), slots) : noted_slots();
  superblock_write_.begin(superblock_with(slots, noting_), files_.catalog(), files_.superblock_copy());
  submit(Step::writing_superblock, superblock_write_.operation());
}

CapacityManager::Note CapacityManager::note() const {
  if (step_ == Step::writing_superblock) return Note::waiting;
  const std::uint64_t wanted = noted_slots();
  if (wanted == files_.superblock().open_slots) return Note::written;
  return wanted == note_failed_ ? Note::failed : Note::waiting;
}

void CapacityManager::retry_note() {
  if (note() != Note::failed) return;
  note_failed_ = ~std::uint64_t{0};
  pump();
}

bool CapacityManager::write_note() {
  TERRACE_CHECK(stopped_);
  if (note() == Note::written) return true;
  const Superblock superblock = superblock_with(index().slots(), noted_slots());
  if (terrace::write_superblock(engine_, superblock, files_.catalog(), files_.superblock_copy())) {
    operations_.count_io_error();
    note_failed_ = noted_slots();
    return false;
  }
  files_.noted(index().slots(), noted_slots());
  return true;
}

void CapacityManager::superblock_written(bool whole) {
  if (!whole) {
    note_failed_ = noting_;
    numbering_ > 0 ? fail(Errc::io_failed) : operations_.count_io_error();
    return;
  }
  note_failed_ = ~std::uint64_t{0};
  files_.noted(numbering_ > 0 ? numbering_ : index().slots(), noting_);
  if (numbering_ == 0) return;
  const std::uint32_t before = index().slots();
  operations_.extend(numbering_);
  if (config_floor_ > 0) has_room_.resize(numbering_, false);
  for (std::uint32_t slot = before; slot < numbering_; ++slot) index().put_closed(SlotId{slot});
  numbering_ = 0;
}

void CapacityManager::allocate() { submit(Step::allocating, files_.operation(Kind::allocate, SlotId{run_.first}, run_.count)); }

void CapacityManager::allocated(int error) {
  sparse_ = files_.sparse();
  if (error == 0) {
    for (std::uint32_t slot = run_.first; slot < run_.first + run_.count; ++slot) opened(SlotId{slot});
    run_ = {};
    return;
  }
  const IoOperation give_back = files_.operation(Kind::deallocate, SlotId{run_.first}, run_.count);
  if (is_no_space(error) && run_.count > 1) {
    // Try half of the piece in the next step.
    tried_ = run_.count / 2;
    put_back(0);
  } else {
    fail(errno_code(error));
  }
  // A part of the piece may have been allocated. No other step can use these slots meanwhile, because only one step runs at a
  // time.
  submit(Step::giving_back, give_back);
}

void CapacityManager::opened(SlotId slot) {
  index().open(slot);
  if (config_floor_ == 0) return;
  has_room_[slot.value()] = !sparse_;
  if (sparse_) files_.add_unwritten(slot);
}

void CapacityManager::closed(SlotId slot) {
  if (config_floor_ == 0) return;
  if (!has_room_[slot.value()]) files_.remove_unwritten(slot);
  has_room_[slot.value()] = false;
}

void CapacityManager::wrote(SlotId slot) {
  if (config_floor_ == 0) return;
  ++writes_;
  if (has_room_[slot.value()]) return;
  has_room_[slot.value()] = true;
  files_.remove_unwritten(slot);
  ++first_writes_;
}

void CapacityManager::close_unwritten() {
  if (files_.unwritten_at_last_look() == 0) return;
  for (std::uint32_t slot = 0; slot < index().slots(); ++slot) {
    if (has_room_[slot] || index().at(SlotId{slot}).state != State::absent) continue;
    if (!files_.last_look_was_for(SlotId{slot})) continue;
    index().close_free(SlotId{slot});
    closed(SlotId{slot});
  }
}

void CapacityManager::fail(ErrorCode error) {
  if (error.category() != boost::system::generic_category() || !is_no_space(error.value())) operations_.count_io_error();
  put_back(0);
  run_ = {};
  numbering_ = 0;
  tried_ = 0;
  halted_ = true;
  retry_at_ = writes_ + retry_writes;
  ++counted_.growth_stopped;
  counted_.growth_error = error;
}

void CapacityManager::add_to(StoreStat& stat) const {
  if (lost_slots() > 0) stat.wanted_blocks = std::min<std::uint64_t>(stat.wanted_blocks, index().slots() - lost_slots());
  if (halted_) stat.wanted_blocks = std::min<std::uint64_t>(stat.wanted_blocks, open_slots());
  stat.growth_stopped = counted_.growth_stopped;
  if (halted_) stat.growth_error = counted_.growth_error;
  stat.floor_stopped = counted_.floor_stopped;
  stat.room_kept = counted_.room_kept;
}

void CapacityManager::check_invariants() const {
  const StoreIndex& i = index();
  TERRACE_CHECK(i.slots() == files_.layout().slots);
  std::uint64_t closed = 0;
  for (std::uint32_t slot = 0; slot < i.slots(); ++slot) closed += i.at(SlotId{slot}).state == State::closed;
  TERRACE_CHECK(closed == i.closed_to_take() + run_.count);
  files_.check_unwritten([&](SlotId slot) {
    const State state = i.at(slot).state;
    return config_floor_ > 0 && state != State::closed && state != State::lost && !has_room_[slot.value()];
  });
  // The index hands over closing slots with the next pump().
  TERRACE_CHECK(stopped_ || closing_.size() + hole_.count <= i.count(State::closing));
}

}  // namespace terrace
