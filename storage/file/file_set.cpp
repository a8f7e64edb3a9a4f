#include "storage/file/file_set.hpp"

#include "base/check.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace terrace {

// ---- slots ---------------------------------------------------------------------------------------------------------------

IoOperation FileSet::operation(IoOperation::Kind kind, SlotId slot, std::uint32_t slots) const {
  return {.kind = kind,
          .file = data_[layout_.file_of(slot)],
          .offset = layout_.offset_of(slot),
          .length = is_transfer(kind) ? 0 : slots * layout_.block_bytes};
}

std::uint32_t FileSet::end_of_run(SlotId slot) const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(layout_.end_of_run(slot), layout_.slots));
}

// ---- losses --------------------------------------------------------------------------------------------------------------

std::uint32_t FileSet::lost_slots() const {
  std::uint32_t slots = 0;
  for (std::uint32_t n = 0; any_lost() && n < layout_.directories; ++n) {
    if (health_.lost(n)) slots += layout_.slots_in(n);
  }
  return slots;
}

std::vector<std::filesystem::path> FileSet::lost_directories() const {
  std::vector<std::filesystem::path> lost;
  for (std::uint32_t n = 0; n < layout_.directories; ++n) {
    if (health_.lost(n)) lost.push_back(parts_[n].directory);
  }
  return lost;
}

void FileSet::note_outcome(SlotId slot, bool failed) {
  if (layout_.directories == 1) return;
  if (failed) {
    (void)health_.failed(layout_.directory_of(slot), slot.value() / layout_.stripe_slots);
  } else {
    health_.succeeded(layout_.directory_of(slot));
  }
}

void FileSet::add_to(StoreStat& stat) const {
  stat.directories = layout_.directories;
  stat.directories_lost = health_.lost();
}

// ---- durability ----------------------------------------------------------------------------------------------------------

FileId FileSet::file(std::uint32_t number) const {
  if (number == catalog_file()) return catalog_;
  return number < catalog_file() ? parts_[number].lock : data_[number - first_data_file()];
}

std::filesystem::path FileSet::path_of_file(std::uint32_t number) const {
  if (number == catalog_file()) return path("catalog");
  return number < catalog_file() ? parts_[number].directory / "lock" : data_path(number - first_data_file());
}

std::uint32_t FileSet::directory_of_file(std::uint32_t number) const {
  if (number == catalog_file()) return 0;
  return number < catalog_file() ? number : (number - first_data_file()) % layout_.directories;
}

bool FileSet::file_is_lost(std::uint32_t number) const {
  return number != catalog_file() && health_.lost(directory_of_file(number));
}

bool FileSet::give_up_directory_of(std::uint32_t number) {
  return number != catalog_file() && (file_is_lost(number) || health_.lose(directory_of_file(number)));
}

std::uint64_t FileSet::bytes_expected(std::uint32_t number) const {
  if (number == catalog_file()) return count(layout_.catalog_bytes());
  return number < catalog_file() ? 0 : data_ends_[number - first_data_file()];
}

void FileSet::note_data(SlotId slot) {
  std::uint64_t& end = data_ends_[layout_.file_of(slot)];
  end = std::max(end, layout_.offset_of(slot) + layout_.block_bytes);
}

bool FileSet::take_unsynced(std::uint32_t number) {
  if (file_is_lost(number) || !unsynced_[number - first_data_file()]) return false;
  unsynced_[number - first_data_file()] = false;
  return true;
}

bool FileSet::is_direct() const {
  for (std::uint32_t n = 0; n < data_.size(); ++n) {
    if (!parts_[n % layout_.directories].missing && files_.direct(data_[n]) == Direct::no) return false;
  }
  return true;
}

// ---- size ----------------------------------------------------------------------------------------------------------------

std::filesystem::path FileSet::data_path(std::uint32_t data_file) const {
  return parts_[data_file % layout_.directories].directory / fmt::format("blocks-{:04}", data_file / layout_.directories);
}

StoreLayout FileSet::longer(std::uint32_t slots) const {
  StoreLayout layout = layout_;
  layout.slots = slots;
  return layout;
}

bool FileSet::sparse() const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return !part.missing && files_.sparse(part.lock); });
}

FileId FileSet::prepare_data_file() {
  open_.push_back(files_.prepare(data_path(static_cast<std::uint32_t>(data_.size())), direct_));
  return open_.back();
}

void FileSet::forget_prepared(FileId file) {
  std::erase(open_, file);
  files_.close(file);
}

void FileSet::noted(std::uint32_t slots, std::uint64_t open_slots) {
  superblock_.slots = slots;
  superblock_.open_slots = open_slots;
  if (slots == layout_.slots) return;
  layout_.slots = slots;
  data_ends_.resize(data_.size());
  unsynced_.resize(data_.size(), true);
}

bool FileSet::had_data(SlotId slot) const {
  return layout_.offset_of(slot) + layout_.block_bytes <= data_bytes_before_[layout_.file_of(slot)];
}

// ---- free space ----------------------------------------------------------------------------------------------------------

IoOperation FileSet::look_in(std::uint32_t directory) {
  looked_in_ = directory;
  return {.kind = IoOperation::Kind::free_space, .file = directory == 0 ? catalog_ : data_[directory]};
}

/// A directory without a data file cannot be queried. In a small store only the first directory may have a data file.
std::optional<IoOperation> FileSet::next_look() {
  const auto with_files = static_cast<std::uint32_t>(std::min<std::size_t>(layout_.directories, data_.size()));
  for (std::uint32_t n = 1; n <= with_files; ++n) {
    const std::uint32_t next = (looked_in_ + n) % with_files;
    if (!health_.lost(next)) return look_in(next);
  }
  return std::nullopt;
}

void FileSet::check_unwritten(const std::function<bool(SlotId)>& is_unwritten) const {
  std::vector<std::uint64_t> unwritten(unwritten_.size());
  for (std::uint32_t slot = 0; slot < layout_.slots; ++slot) {
    unwritten[layout_.directory_of(SlotId{slot})] += is_unwritten(SlotId{slot});
  }
  TERRACE_CHECK(unwritten == unwritten_);
}

}  // namespace terrace
