#pragma once

#include "storage/file/file_set.hpp"
#include "storage/file/superblock_io.hpp"
#include "storage/format/catalog_scan.hpp"
#include "storage/format/store_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace terrace::test {

/// The files of a stopped store. They are closed with the object.
class FilesOfStore {
 public:
  explicit FilesOfStore(FileSystem& files) : files_{files} {}
  ~FilesOfStore() {
    for (const FileId file : open_) files_.close(file);
  }
  FilesOfStore(const FilesOfStore&) = delete;
  FilesOfStore& operator=(const FilesOfStore&) = delete;

  [[nodiscard]] std::optional<FileId> open(const std::filesystem::path& path) {
    const Result<OpenedFile> opened = files_.open(path, Create::no, Direct::no);
    if (!opened) return std::nullopt;
    open_.push_back(opened->id);
    return opened->id;
  }

 private:
  FileSystem& files_;
  std::vector<FileId> open_;
};

/// Makes a stopped store sparse: gives back the disk space of all slots without a record, as a copy of its files that leaves out
/// zeros would. Blocks and records stay as they are. Returns false, and changes nothing, if the store has no superblock or
/// catalog. The engine must have nothing else under way.
[[nodiscard]] inline bool punch_free_slots(const std::filesystem::path& directory, IoEngine& engine) {
  FilesOfStore files{engine.files()};
  const std::optional<FileId> lock = files.open(directory / "lock");
  const std::optional<FileId> catalog = files.open(directory / "catalog");
  if (!lock || !catalog) return false;
  const std::optional<Superblock> superblock = read_superblock(engine, *catalog, *lock).superblock;
  if (!superblock || !known_version(superblock->version) || !plausible(*superblock)) return false;
  const StoreLayout layout = layout_of(*superblock);
  const Result<Bytes> size = engine.files().size(*catalog);
  if (!size || *size < layout.catalog_bytes()) return false;

  AlignedBuffer records{layout.catalog_pages() * catalog_page_bytes};
  const IoOperation read{
      .kind = IoOperation::Kind::read, .file = *catalog, .offset = layout.page_offset(0), .into = records.span()};
  if (error_of(run_alone(engine, read), records.size())) return false;
  const auto is_free = [&](std::uint32_t slot) {
    return !decode_record(records.span(std::size_t{slot} * record_bytes, record_bytes));
  };
  std::vector<std::optional<FileId>> data;
  for (std::uint32_t n = 0; n < layout.data_files(); ++n) {
    const std::filesystem::path where = part_directory(directory, n % layout.directories);
    data.push_back(files.open(where / fmt::format("blocks-{:04}", n / layout.directories)));
  }

  for (std::uint32_t slot = 0; slot < layout.slots;) {
    // Free slots from this one on that are consecutive in one file.
    const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(layout.end_of_run(SlotId{slot}), layout.slots));
    std::uint32_t next = slot;
    while (next < end && is_free(next)) ++next;
    const std::optional<FileId> file = data[layout.file_of(SlotId{slot})];
    if (next > slot && file) {
      (void)run_alone(engine, {.kind = IoOperation::Kind::deallocate,
                               .file = *file,
                               .offset = layout.offset_of(SlotId{slot}),
                               .length = (next - slot) * layout.block_bytes});
    }
    slot = std::max(next, slot + 1);
  }
  return true;
}

}  // namespace terrace::test
