#include "storage/stepped_files.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace terrace {

IoFault SteppedFiles::number_next() {
  const auto fault = faults_.find(next_number_++);
  return fault == faults_.end() ? IoFault{} : fault->second;
}

Result<Made> SteppedFiles::make_directory(const std::filesystem::path& path) {
  if (const int error = number_next().error) return errno_code(error);
  if (files_.contains(path)) return errno_code(ENOTDIR);
  return directories_.emplace(path, true).second ? Made::created : Made::existed;
}

Result<void> SteppedFiles::remove_directory(const std::filesystem::path& path) {
  if (const int error = number_next().error) return errno_code(error);
  const bool used = std::any_of(files_.begin(), files_.end(), [&](const auto& f) { return f.first.parent_path() == path; });
  if (used) return errno_code(ENOTEMPTY);
  if (directories_.erase(path) == 0) return errno_code(ENOENT);
  return {};
}

Result<void> SteppedFiles::sync_directory(const std::filesystem::path&) {
  if (const int error = number_next().error) return errno_code(error);
  return {};
}

Result<OpenedFile> SteppedFiles::open(const std::filesystem::path& path, Create create, Direct) {
  if (const int error = number_next().error) return errno_code(error);
  if (!directories_.contains(path.parent_path())) return errno_code(ENOENT);
  auto found = files_.find(path);
  Made made = Made::existed;
  if (found == files_.end()) {
    if (create == Create::no) return errno_code(ENOENT);
    found = files_.emplace(path, std::make_shared<File>()).first;
    made = Made::created;
  }
  handles_.push_back({found->second, false, {}});
  return OpenedFile{FileId{static_cast<std::uint32_t>(handles_.size() - 1)}, made};
}

FileId SteppedFiles::prepare(const std::filesystem::path& path, Direct) {
  handles_.push_back({nullptr, false, path});
  return FileId{static_cast<std::uint32_t>(handles_.size() - 1)};
}

void SteppedFiles::close(FileId id) {
  if (handles_[id.value()].has_lock) file(id).locked = false;
  handles_[id.value()] = {};
}

Result<void> SteppedFiles::remove_file(const std::filesystem::path& path) {
  if (const int error = number_next().error) return errno_code(error);
  if (files_.erase(path) == 0) return errno_code(ENOENT);
  return {};
}

Result<void> SteppedFiles::lock(FileId id) {
  const int error = number_next().error;
  if (file(id).locked || error == EWOULDBLOCK) return Errc::in_use;
  if (error != 0) return errno_code(error);
  file(id).locked = handles_[id.value()].has_lock = true;
  return {};
}

Result<Bytes> SteppedFiles::size(FileId id) {
  if (const int error = number_next().error) return errno_code(error);
  return Bytes{file(id).bytes.size()};
}

Result<void> SteppedFiles::resize(FileId id, Bytes size) {
  if (const int error = number_next().error) return errno_code(error);
  File& resized = file(id);
  if (count(size) >= resized.bytes.size()) {
    if (const int error = allocate(resized, 0, count(size))) return errno_code(error);
    return {};
  }
  resized.bytes.resize(count(size));
  resized.durable.resize(count(size));
  // (The last page is whole no more.)
  resized.holes.erase(resized.holes.lower_bound(count(size) / page_bytes), resized.holes.end());
  return {};
}

void SteppedFiles::make_longer(File& f, std::uint64_t size) {
  const std::uint64_t before = f.bytes.size();
  if (size <= before) return;
  f.bytes.resize(size);
  f.durable.resize(size);
  (void)punch(f, before, size - before);
}

/// Whole pages of it; returns what that gave back.
std::uint64_t SteppedFiles::punch(File& f, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t before = room_of(f);
  const std::uint64_t end = std::min<std::uint64_t>(offset + length, f.bytes.size());
  for (std::uint64_t page = (offset + page_bytes - 1) / page_bytes; (page + 1) * page_bytes <= end; ++page) f.holes.insert(page);
  return before - room_of(f);
}

bool SteppedFiles::take_room(File& f, std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return true;
  const auto first = f.holes.lower_bound(offset / page_bytes);
  const auto last = f.holes.upper_bound((offset + length - 1) / page_bytes);
  const std::uint64_t longer = std::max<std::uint64_t>(offset + length, f.bytes.size()) - f.bytes.size();
  const std::uint64_t needed = static_cast<std::uint64_t>(std::distance(first, last)) * page_bytes + longer;
  if (needed > disk_bytes_ - std::min(used(), disk_bytes_)) return false;
  f.holes.erase(first, last);
  f.bytes.resize(f.bytes.size() + longer);
  f.durable.resize(f.bytes.size());
  return true;
}

int SteppedFiles::allocate(File& f, std::uint64_t offset, std::uint64_t length) {
  if (preallocates_) return take_room(f, offset, length) ? 0 : ENOSPC;
  make_longer(f, offset + length);
  return 0;
}

Result<Bytes> SteppedFiles::deallocate(FileId id, std::uint64_t offset, Bytes length) {
  if (const int error = number_next().error) return errno_code(error);
  return Bytes{deallocate(file(id), offset, count(length))};
}

std::uint64_t SteppedFiles::deallocate(File& emptied, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t begin = std::min<std::uint64_t>(offset, emptied.bytes.size());
  const std::uint64_t end = std::min<std::uint64_t>(begin + length, emptied.bytes.size());
  for (std::vector<std::byte>* bytes : {&emptied.bytes, &emptied.durable}) {
    std::fill(bytes->begin() + static_cast<std::ptrdiff_t>(begin), bytes->begin() + static_cast<std::ptrdiff_t>(end),
              std::byte{0});
  }
  return punch(emptied, begin, end - begin);
}

Result<Bytes> SteppedFiles::free_space(const std::filesystem::path&) {
  if (const int error = number_next().error) return errno_code(error);
  return Bytes{disk_bytes_ - std::min(used(), disk_bytes_)};
}

std::span<std::byte> SteppedFiles::content(const std::filesystem::path& path) {
  const auto found = files_.find(path);
  if (found == files_.end()) return {};
  return found->second->bytes;
}

bool SteppedFiles::exists(const std::filesystem::path& path) const {
  return files_.contains(path) || directories_.contains(path);
}

void SteppedFiles::lose_unsynced() {
  for (auto& [path, lost] : files_) {
    lost->bytes = lost->durable;
    lost->unsynced.clear();
  }
}

SteppedFiles SteppedFiles::left_by(End end) const {
  SteppedFiles left;
  left.directories_ = directories_;
  left.disk_bytes_ = disk_bytes_;
  left.preallocates_ = preallocates_;
  for (const auto& [path, of] : files_) {
    left.files_[path] = std::make_shared<File>(*of);
    left.files_[path]->locked = false;
  }
  if (end == End::power_failure) left.lose_unsynced();
  return left;
}

IoCompletion SteppedFiles::perform(const IoOperation& operation, const IoFault& fault) {
  IoCompletion completion{operation.token, fault.error, 0, 0};
  if (fault.error != 0) return completion;
  if (operation.kind == IoOperation::Kind::open) {
    Handle& handle = handles_[operation.file.value()];
    TERRACE_CHECK(handle.file == nullptr && !handle.path.empty());
    auto& opened = files_[handle.path];
    if (!opened) opened = std::make_shared<File>();
    handle.file = opened;
    return completion;
  }
  File& f = file(operation.file);
  switch (operation.kind) {
    case IoOperation::Kind::open: break;
    case IoOperation::Kind::allocate: completion.error = allocate(f, operation.offset, operation.length); return completion;
    case IoOperation::Kind::deallocate: completion.bytes = deallocate(f, operation.offset, operation.length); return completion;
    case IoOperation::Kind::free_space:
      completion.bytes = disk_bytes_ - std::min(used(), disk_bytes_);
      return completion;
    case IoOperation::Kind::sync:
      for (const File::Unsynced& write : f.unsynced) {
        const std::uint64_t end = std::min<std::uint64_t>(write.offset + write.length, f.bytes.size());
        for (std::uint64_t at = write.offset; at < end; ++at) f.durable[at] = f.bytes[at];
      }
      f.unsynced.clear();
      return completion;
    case IoOperation::Kind::read: {
      const std::uint64_t there = f.bytes.size() - std::min<std::uint64_t>(operation.offset, f.bytes.size());
      completion.bytes = std::min({operation.into.size(), there, fault.bytes_max.value_or(there)});
      std::copy_n(f.bytes.end() - static_cast<std::ptrdiff_t>(there), completion.bytes, operation.into.begin());
      if (fault.flip && completion.bytes > 0) operation.into[completion.bytes / 2] ^= std::byte{0x10};
      if (operation.seal != nullptr) completion.checksum = payload_checksum(operation.key, *operation.seal, operation.into);
      return completion;
    }
    case IoOperation::Kind::write: {
      if (operation.seal != nullptr) completion.checksum = payload_checksum(operation.key, *operation.seal, operation.from);
      const std::uint64_t length = std::min<std::uint64_t>(operation.from.size(), fault.bytes_max.value_or(~0ULL));
      if (!take_room(f, operation.offset, length)) {
        completion.error = ENOSPC;
        return completion;
      }
      std::copy_n(operation.from.begin(), length, f.bytes.begin() + static_cast<std::ptrdiff_t>(operation.offset));
      if (fault.flip && length > 0) f.bytes[operation.offset + length / 2] ^= std::byte{0x10};
      f.unsynced.push_back({operation.offset, length});
      completion.bytes = length;
      return completion;
    }
  }
  return completion;
}

SteppedFiles::File& SteppedFiles::file(FileId id) {
  TERRACE_CHECK(id.value() < handles_.size());
  TERRACE_CHECK(handles_[id.value()].file != nullptr);
  return *handles_[id.value()].file;
}

std::uint64_t SteppedFiles::used() const {
  std::uint64_t total = 0;
  for (const auto& [path, f] : files_) total += room_of(*f);
  return total;
}

}  // namespace terrace
