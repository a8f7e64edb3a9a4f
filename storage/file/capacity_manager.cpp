#include "storage/file/capacity_manager.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace terrace {

using State = StoreIndex::State;
using Kind = IoOperation::Kind;

namespace {

bool is_no_space(int error) { return error == ENOSPC || error == EDQUOT; }

}  // namespace

CapacityManager::CapacityManager(const FileStoreConfig& config, StoreOperations& operations, StoreDirectory& directory,
                                 const DirectoryHealth& health, IoEngine& engine)
    : operations_{operations},
      directory_{directory},
      health_{health},
      engine_{engine},
      config_floor_{count(config.floor)},
      piece_slots_{static_cast<std::uint32_t>(
          std::clamp<std::uint64_t>(count(config.growth_piece_bytes) / count(config.block_bytes), 1, slots_max))},
      ahead_{config.writes_max},
      without_room_(directory.layout().directories) {}

std::uint32_t CapacityManager::open_slots() const { return index().capacity() - index().count(State::closing); }

void CapacityManager::start(std::vector<SlotId>& gone) {
  sparse_ = directory_.sparse();
  const std::uint32_t slots = index().slots();
  const std::uint32_t wanted = directory_.open_slots();
  if (config_floor_ > 0) {
    has_room_.assign(slots, !sparse_);
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      const State state = index().at(SlotId{slot}).state;
      if (state == State::ready) has_room_[slot] = true;
      if (state != State::lost) without_room(SlotId{slot}) += !has_room_[slot];
    }
  }
  if (wanted < slots || directory_.has_holes()) {
    // Which of the free slots have room nobody knows: none has, when they have been through closing.
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
  const StoreLayout& layout = directory_.layout();
  const SlotId last = closing_.back();
  hole_ = {last.value(), 0};
  while (!closing_.empty() && hole_.count < piece_slots_) {
    const SlotId slot = closing_.back();
    if (slot.value() + hole_.count != last.value() || layout.file_of(slot) != layout.file_of(last)) break;
    hole_ = {slot.value(), hole_.count + 1};
    closing_.pop_back();
  }
  const IoOperation operation{.kind = Kind::deallocate,
                              .token = hole_token,
                              .file = directory_.data(SlotId{hole_.first}),
                              .offset = layout.offset_of(SlotId{hole_.first}),
                              .length = hole_.count * layout.block_bytes};
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

/// Of the slots, so many are open: what the superblock has to say. 0: all of them, with their room.
std::uint64_t CapacityManager::noted_slots() const {
  const std::uint32_t slots = index().slots();
  return open_slots() + lost_slots() == slots && index().limit() >= slots ? 0 : std::min(index().limit(), slots);
}

void CapacityManager::next_step() {
  const std::uint64_t note = noted_slots();
  if (note != directory_.superblock().open_slots && note != note_failed_) {
    write_superblock(index().slots());
    return;
  }
  const bool look_due = on_demand() && first_writes_ - looked_at_ >= look_every;
  if (halted_ && on_demand() && writes_ >= retry_at_) halted_ = false;
  const bool larger = open_slots() + lost_slots() < index().limit() && !halted_ && (!on_demand() || index().free() < ahead_);
  if (larger) {
    grow();
  } else if (look_due) {
    look_at_next();
  }
}

/// In turn. Directories that have no file yet, as all but the first of a small store, have nobody to ask about.
void CapacityManager::look_at_next() {
  const auto with_files =
      static_cast<std::uint32_t>(std::min<std::size_t>(directory_.layout().directories, directory_.data_files().size()));
  for (std::uint32_t n = 1; n <= with_files; ++n) {
    const std::uint32_t next = (looked_in_ + n) % with_files;
    if (!health_.lost(next)) return look_at(next);
  }
  looked_at_ = first_writes_;
}

void CapacityManager::look_at(std::uint32_t directory) {
  looked_in_ = directory;
  submit(Step::looking, {.kind = Kind::free_space, .file = directory_.any_file_in(directory)});
}

void CapacityManager::grow() {
  const std::uint32_t wanted = index().limit() - open_slots();
  if (index().closed_to_take() > 0) {
    take_run(std::min({wanted, piece_slots_, tried_ > 0 ? tried_ : slots_max}));
  } else if (index().count(State::closing) > 0) {
    return;  // those come first
  } else if (health_.lost() > 0) {
    return fail(errno_code(EIO));
  } else {
    const StoreLayout& layout = directory_.layout();
    numbering_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(layout.next_row(), index().limit()));
    TERRACE_CHECK(numbering_ > layout.slots);
  }
  if (config_floor_ > 0) {
    look_at(numbering_ > 0 ? 0 : directory_.layout().directory_of(SlotId{run_.first}));
  } else if (numbering_ > 0) {
    number_slots();
  } else {
    allocate();
  }
}

/// The lowest of the closed slots, and those that follow it.
void CapacityManager::take_run(std::uint32_t count) {
  const StoreLayout& layout = directory_.layout();
  scratch_.clear();
  if (layout.directories > 1) count = std::min(count, layout.stripe_slots);
  index().take_closed(count, scratch_);
  run_ = {scratch_.front().value(), 0};
  for (const SlotId slot : scratch_) {
    const bool follows = slot.value() == run_.first + run_.count && layout.file_of(slot) == layout.file_of(SlotId{run_.first});
    if (follows) {
      ++run_.count;
    } else {
      index().put_closed(slot);
    }
  }
}

/// The run ends before its slot `from`.
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
  if (completion.token == hole_token) {
    hole_ended(completion);
  } else {
    step_ended(completion);
  }
}

void CapacityManager::step_ended(const IoCompletion& completion) {
  const Step step = std::exchange(step_, Step::idle);
  switch (step) {
    case Step::idle: TERRACE_CHECK(false); break;
    case Step::looking: looked(completion); break;
    case Step::opening_file:
      if (completion.error != 0) {
        directory_.forget_prepared(new_file_);
        fail(errno_code(completion.error));
      } else {
        directory_.add_data_file(new_file_);
        number_slots();
      }
      break;
    case Step::lengthening:
      if (completion.error != 0) {
        fail(errno_code(completion.error));
      } else {
        write_superblock(numbering_);
      }
      break;
    case Step::writing_superblock: superblock_step(completion); break;
    case Step::allocating: allocated(completion.error); break;
    case Step::giving_back: break;
  }
}

void CapacityManager::looked(const IoCompletion& completion) {
  looked_at_ = first_writes_;
  if (completion.error != 0) return fail(errno_code(completion.error));
  const std::uint64_t promised = config_floor_ + (on_demand() ? without_room_[looked_in_] * block_bytes() : 0);
  if (on_demand() && completion.bytes < promised) close_unwritten(looked_in_);
  if (run_.count == 0 && numbering_ == 0) return;  // it was only a look
  const std::uint64_t room = completion.bytes > promised ? completion.bytes - promised : 0;
  if (numbering_ > 0) {
    StoreLayout longer = directory_.layout();
    longer.slots = numbering_;
    const Bytes catalog = longer.catalog_bytes() - directory_.layout().catalog_bytes();
    if (room >= count(catalog) + block_bytes()) return number_slots();
  } else if (room >= block_bytes()) {
    put_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(run_.count, room / block_bytes())));
    return allocate();
  }
  ++counted_.floor_stopped;
  fail(errno_code(ENOSPC));
}

void CapacityManager::number_slots() {
  StoreLayout longer = directory_.layout();
  longer.slots = numbering_;
  if (directory_.data_files().size() >= longer.data_files()) return lengthen();
  new_file_ = directory_.prepare_data_file();
  submit(Step::opening_file, {.kind = Kind::open, .file = new_file_});
}

void CapacityManager::lengthen() {
  StoreLayout longer = directory_.layout();
  const std::uint64_t before = count(longer.catalog_bytes());
  longer.slots = numbering_;
  const std::uint64_t after = count(longer.catalog_bytes());
  if (after == before) return write_superblock(numbering_);
  submit(Step::lengthening, {.kind = Kind::allocate, .file = directory_.catalog(), .offset = before, .length = after - before});
}

Superblock CapacityManager::superblock_with(std::uint32_t slots, std::uint64_t open_slots) const {
  Superblock superblock = directory_.superblock();
  superblock.slots = slots;
  superblock.open_slots = open_slots;
  return superblock;
}

void CapacityManager::write_superblock(std::uint32_t slots) {
  noting_ = numbering_ > 0 ? std::min(index().limit(), slots) : noted_slots();
  superblock_write_.begin(superblock_with(slots, noting_), directory_.catalog(), directory_.lock_file());
  submit(Step::writing_superblock, superblock_write_.operation());
}

void CapacityManager::superblock_step(const IoCompletion& completion) {
  const bool failed{superblock_write_.ended(completion)};
  if (failed || superblock_write_.is_done()) return superblock_written(!failed);
  submit(Step::writing_superblock, superblock_write_.operation());
}

CapacityManager::Note CapacityManager::note() const {
  if (step_ == Step::writing_superblock) return Note::waiting;
  const std::uint64_t wanted = noted_slots();
  if (wanted == directory_.superblock().open_slots) return Note::written;
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
  if (terrace::write_superblock(engine_, superblock, directory_.catalog(), directory_.lock_file())) {
    operations_.count_io_error();
    note_failed_ = noted_slots();
    return false;
  }
  directory_.noted(index().slots(), noted_slots());
  return true;
}

void CapacityManager::superblock_written(bool whole) {
  if (!whole) {
    note_failed_ = noting_;
    numbering_ > 0 ? fail(Errc::io_failed) : operations_.count_io_error();
    return;
  }
  note_failed_ = ~std::uint64_t{0};
  directory_.noted(numbering_ > 0 ? numbering_ : index().slots(), noting_);
  if (numbering_ == 0) return;
  const std::uint32_t before = index().slots();
  operations_.extend(numbering_);
  if (config_floor_ > 0) has_room_.resize(numbering_, false);
  for (std::uint32_t slot = before; slot < numbering_; ++slot) index().put_closed(SlotId{slot});
  numbering_ = 0;
}

void CapacityManager::allocate() {
  const StoreLayout& layout = directory_.layout();
  submit(Step::allocating, {.kind = Kind::allocate,
                            .file = directory_.data(SlotId{run_.first}),
                            .offset = layout.offset_of(SlotId{run_.first}),
                            .length = run_.count * layout.block_bytes});
}

void CapacityManager::allocated(int error) {
  sparse_ = directory_.sparse();
  if (error == 0) {
    for (std::uint32_t slot = run_.first; slot < run_.first + run_.count; ++slot) opened(SlotId{slot});
    run_ = {};
    return;
  }
  const StoreLayout& layout = directory_.layout();
  const IoOperation give_back{.kind = Kind::deallocate,
                              .file = directory_.data(SlotId{run_.first}),
                              .offset = layout.offset_of(SlotId{run_.first}),
                              .length = run_.count * layout.block_bytes};
  if (is_no_space(error) && run_.count > 1) {
    tried_ = run_.count / 2;
    put_back(0);
  } else {
    fail(errno_code(error));
  }
  // Part of the piece may have been taken. (Nobody else takes these slots meanwhile: one step at a time.)
  submit(Step::giving_back, give_back);
}

void CapacityManager::opened(SlotId slot) {
  index().open(slot);
  if (config_floor_ == 0) return;
  has_room_[slot.value()] = !sparse_;
  without_room(slot) += sparse_;
}

void CapacityManager::closed(SlotId slot) {
  if (config_floor_ == 0) return;
  without_room(slot) -= !has_room_[slot.value()];
  has_room_[slot.value()] = false;
}

void CapacityManager::wrote(SlotId slot) {
  if (config_floor_ == 0) return;
  ++writes_;
  if (has_room_[slot.value()]) return;
  has_room_[slot.value()] = true;
  --without_room(slot);
  ++first_writes_;
}

void CapacityManager::close_unwritten(std::uint32_t directory) {
  if (without_room_[directory] == 0) return;
  for (std::uint32_t slot = 0; slot < index().slots(); ++slot) {
    if (has_room_[slot] || index().at(SlotId{slot}).state != State::absent) continue;
    if (directory_.layout().directory_of(SlotId{slot}) != directory) continue;
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
  stat.growth_error = counted_.growth_error;
  stat.floor_stopped = counted_.floor_stopped;
  stat.room_kept = counted_.room_kept;
}

void CapacityManager::check_invariants() const {
  const StoreIndex& i = index();
  TERRACE_CHECK(i.slots() == directory_.layout().slots);
  std::uint64_t closed = 0;
  std::vector<std::uint64_t> without_room(without_room_.size());
  for (std::uint32_t slot = 0; slot < i.slots(); ++slot) {
    const State state = i.at(SlotId{slot}).state;
    closed += state == State::closed;
    if (config_floor_ == 0 || state == State::closed || state == State::lost) continue;
    without_room[directory_.layout().directory_of(SlotId{slot})] += !has_room_[slot];
  }
  TERRACE_CHECK(closed == i.closed_to_take() + run_.count);
  TERRACE_CHECK(without_room == without_room_);
  // The index hands over what closes with the next pump.
  TERRACE_CHECK(stopped_ || closing_.size() + hole_.count <= i.count(State::closing));
}

}  // namespace terrace
