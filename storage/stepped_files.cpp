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
  handles_.push_back({found->second, false});
  return OpenedFile{FileId{static_cast<std::uint32_t>(handles_.size() - 1)}, made};
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
  if (used() - resized.bytes.size() + count(size) > disk_bytes_) return errno_code(ENOSPC);
  resized.bytes.resize(count(size));
  resized.durable.resize(count(size));
  return {};
}

Result<Bytes> SteppedFiles::deallocate(FileId id, std::uint64_t offset, Bytes length) {
  if (const int error = number_next().error) return errno_code(error);
  File& emptied = file(id);
  const std::uint64_t begin = std::min<std::uint64_t>(offset, emptied.bytes.size());
  const std::uint64_t end = std::min<std::uint64_t>(begin + count(length), emptied.bytes.size());
  for (std::vector<std::byte>* bytes : {&emptied.bytes, &emptied.durable}) {
    std::fill(bytes->begin() + static_cast<std::ptrdiff_t>(begin), bytes->begin() + static_cast<std::ptrdiff_t>(end),
              std::byte{0});
  }
  return Bytes{end - begin};
}

Result<Bytes> SteppedFiles::free_space(const std::filesystem::path&) {
  if (const int error = number_next().error) return errno_code(error);
  return Bytes{disk_bytes_ - used()};
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
  File& f = file(operation.file);
  switch (operation.kind) {
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
      const std::uint64_t end = operation.offset + length;
      if (end > f.bytes.size()) {
        if (used() + (end - f.bytes.size()) > disk_bytes_) {
          completion.error = ENOSPC;
          return completion;
        }
        f.bytes.resize(end);
        f.durable.resize(end);
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
  for (const auto& [path, f] : files_) total += f->bytes.size();
  return total;
}

}  // namespace terrace
