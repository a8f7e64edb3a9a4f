// The part of FileStore that goes on without a directory whose device has failed.

#include "storage/file/file_store.hpp"

#include <algorithm>

namespace terrace {

using State = StoreIndex::State;

void FileStore::note_outcome(SlotId slot, bool failed) {
  const StoreLayout& layout = directory_.layout();
  if (layout.directories == 1) return;
  if (failed) {
    (void)health_.failed(layout.directory_of(slot), slot.value() / layout.stripe_slots);
  } else {
    health_.succeeded(layout.directory_of(slot));
  }
}

bool FileStore::is_swept() const {
  std::uint32_t due = 0;
  for (std::uint32_t n = 0; health_.lost() > 0 && n < directory_.layout().directories; ++n) {
    if (health_.lost(n)) due += directory_.layout().slots_in(n);
  }
  return operations_.index().count(State::lost) == due;
}

/// Again and again, until all are: slots that an operation has, or that are closing, come later.
void FileStore::sweep_lost(Sweep extent) {
  if (is_swept()) return;
  const StoreLayout& layout = directory_.layout();
  const StoreIndex& index = operations_.index();
  const std::uint32_t before = index.count(State::lost);
  std::uint32_t looks = extent == Sweep::all ? layout.slots : std::min(sweep_looks_max, layout.slots);
  while (looks > 0) {
    const SlotId slot{sweep_at_ < layout.slots ? sweep_at_ : 0};
    if (!is_lost(slot)) {
      const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(layout.end_of_run(slot), layout.slots));
      looks -= std::min(looks, end - slot.value());
      sweep_at_ = end;
      continue;
    }
    const bool was_closed = index.at(slot).state == State::closed || index.at(slot).state == State::lost;
    if (operations_.lose(slot) && !was_closed) space_.lost(slot);
    sweep_at_ = slot.value() + 1;
    --looks;
  }
  // Somebody is to poll the events, and go on.
  if (index.count(State::lost) > before) engine_.waker().wake();
}

std::vector<std::filesystem::path> FileStore::lost_directories() const {
  std::vector<std::filesystem::path> lost;
  for (std::uint32_t n = 0; n < directory_.layout().directories; ++n) {
    if (health_.lost(n)) lost.push_back(directory_.directory(n));
  }
  return lost;
}

}  // namespace terrace
