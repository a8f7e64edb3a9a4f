#include "tests/simulated/simulated_io.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>
#include <string>
#include <utility>

namespace terrace {
namespace {

constexpr std::uint64_t sector = 512;

std::vector<std::byte> survivor(const SimulatedFiles::File& file, const std::function<bool(bool whole)>& survives) {
  std::vector<std::byte> bytes = file.durable;
  // If a change of the size is lost, the later ones are lost too, and so are writes into the range that they added or cut.
  std::optional<std::uint64_t> lost_from;
  for (const SimulatedFiles::File::Change& change : file.unsynced) {
    if (change.resizes) {
      if (!lost_from && survives(true)) {
        bytes.resize(change.offset);
      } else {
        lost_from = std::min({lost_from.value_or(bytes.size()), std::uint64_t{bytes.size()}, change.offset});
      }
      continue;
    }
    const std::uint64_t end = std::min(change.offset + change.bytes.size(), lost_from.value_or(bytes.size()));
    bool whole = true;
    for (std::uint64_t at = change.offset; at < end; whole = false) {
      const std::uint64_t next = std::min(end, (at / sector + 1) * sector);
      if (survives(whole)) {
        std::copy_n(change.bytes.begin() + static_cast<std::ptrdiff_t>(at - change.offset), next - at,
                    bytes.begin() + static_cast<std::ptrdiff_t>(at));
      }
      at = next;
    }
  }
  return bytes;
}

}  // namespace

IoFault SimulatedFiles::number_next() {
  const auto fault = faults_.find(next_number_++);
  return fault == faults_.end() ? IoFault{} : fault->second;
}

int SimulatedFiles::error_at(const std::filesystem::path& path) {
  const int planned = number_next().error;
  return planned == 0 && broken(path) ? EIO : planned;
}

void SimulatedFiles::changed() {
  if (tell_) tell_();
}

void SimulatedFiles::write(File& file, std::uint64_t offset, std::vector<std::byte> bytes) {
  std::copy(bytes.begin(), bytes.end(), file.bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  file.unsynced.push_back({file.changes++, offset, std::move(bytes), false});
}

void SimulatedFiles::resize(File& file, std::uint64_t size) {
  if (size == file.bytes.size()) return;
  file.bytes.resize(size);
  // (The last page is no longer a whole page.)
  file.holes.erase(file.holes.lower_bound(size / page_bytes), file.holes.end());
  file.unsynced.push_back({file.changes++, size, {}, true});
}

void SimulatedFiles::make_longer(File& f, std::uint64_t size) {
  const std::uint64_t before = f.bytes.size();
  if (size <= before) return;
  resize(f, size);
  punch(f, before, size - before);
}

/// Only whole pages become holes.
void SimulatedFiles::punch(File& f, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t end = std::min<std::uint64_t>(offset + length, f.bytes.size());
  for (std::uint64_t page = (offset + page_bytes - 1) / page_bytes; (page + 1) * page_bytes <= end; ++page) f.holes.insert(page);
}

bool SimulatedFiles::take_room(File& f, std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return true;
  const auto holes = [&] {
    return std::pair{f.holes.lower_bound(offset / page_bytes), f.holes.upper_bound((offset + length - 1) / page_bytes)};
  };
  const auto [first, last] = holes();
  const std::uint64_t begin = std::max<std::uint64_t>(offset, f.bytes.size());
  const std::uint64_t end = std::max(offset + length, begin);
  const std::uint64_t needed = static_cast<std::uint64_t>(std::distance(first, last)) * page_bytes + (end - begin);
  if (needed > disk_bytes_ - std::min(used(), disk_bytes_)) return false;
  make_longer(f, begin);  // the skipped part takes no space
  const auto [from, to] = holes();
  f.holes.erase(from, to);
  resize(f, end);
  return true;
}

int SimulatedFiles::allocate(File& f, std::uint64_t offset, std::uint64_t length) {
  if (offset + length > file_bytes_max_) return EFBIG;
  if (preallocates_) return take_room(f, offset, length) ? 0 : ENOSPC;
  make_longer(f, offset + length);
  return 0;
}

void SimulatedFiles::deallocate(File& f, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t begin = std::min<std::uint64_t>(offset, f.bytes.size());
  const std::uint64_t end = std::min<std::uint64_t>(begin + length, f.bytes.size());
  write(f, begin, std::vector<std::byte>(end - begin));
  punch(f, begin, end - begin);
}

Result<Made> SimulatedFiles::make_directory(const std::filesystem::path& path) {
  if (const int error = error_at(path)) return errno_code(error);
  if (names_.files.contains(path)) return errno_code(ENOTDIR);
  const Made made = names_.directories.insert(path).second ? Made::created : Made::existed;
  changed();
  return made;
}

/// All files here belong to the user.
Result<void> SimulatedFiles::check_private(const std::filesystem::path& path) {
  if (const int error = error_at(path)) return errno_code(error);
  if (!names_.directories.contains(path)) return errno_code(names_.files.contains(path) ? EPERM : ENOENT);
  return {};
}

Result<void> SimulatedFiles::remove_directory(const std::filesystem::path& path) {
  if (const int error = error_at(path)) return errno_code(error);
  const bool used =
      std::any_of(names_.files.begin(), names_.files.end(), [&](const auto& f) { return f.first.parent_path() == path; });
  if (used) return errno_code(ENOTEMPTY);
  if (names_.directories.erase(path) == 0) return errno_code(ENOENT);
  changed();
  return {};
}

Result<Made> SimulatedFiles::link_directory(const std::filesystem::path& link, const std::filesystem::path& to) {
  if (const int error = error_at(link)) return errno_code(error);
  auto& file = names_.files[link];
  const Made made = file ? Made::existed : Made::created;
  file = std::make_shared<File>();
  file->is_link = true;
  const auto bytes = std::as_bytes(std::span{to.native()});
  file->bytes = file->durable = {bytes.begin(), bytes.end()};
  changed();
  return made;
}

Result<void> SimulatedFiles::sync_directory(const std::filesystem::path& path) {
  if (const int error = error_at(path)) return errno_code(error);
  const auto in_it = [&](const std::filesystem::path& name) { return name.parent_path() == path && name != path; };
  std::erase_if(durable_.files, [&](const auto& f) { return in_it(f.first); });
  std::erase_if(durable_.directories, in_it);
  for (const auto& [name, f] : names_.files) {
    if (in_it(name)) durable_.files.emplace(name, f);
  }
  std::copy_if(names_.directories.begin(), names_.directories.end(),
               std::inserter(durable_.directories, durable_.directories.end()), in_it);
  changed();
  return {};
}

std::filesystem::path SimulatedFiles::resolved(const std::filesystem::path& path) const {
  const auto directory = names_.files.find(path.parent_path());
  if (directory == names_.files.end() || !directory->second->is_link) return path;
  const std::vector<std::byte>& to = directory->second->bytes;
  return std::filesystem::path{std::string{reinterpret_cast<const char*>(to.data()), to.size()}} / path.filename();
}

Result<OpenedFile> SimulatedFiles::open(const std::filesystem::path& name, Create create, Direct) {
  const std::filesystem::path path = resolved(name);
  if (const int error = error_at(path)) return errno_code(error);
  if (!names_.directories.contains(path.parent_path())) return errno_code(ENOENT);
  auto found = names_.files.find(path);
  Made made = Made::existed;
  if (found == names_.files.end()) {
    if (create == Create::no) return errno_code(ENOENT);
    found = names_.files.emplace(path, std::make_shared<File>()).first;
    made = Made::created;
    changed();
  }
  handles_.push_back({found->second, false, path});
  return OpenedFile{FileId{static_cast<std::uint32_t>(handles_.size() - 1)}, made};
}

FileId SimulatedFiles::prepare(const std::filesystem::path& path, Direct) {
  handles_.push_back({nullptr, false, path});
  return FileId{static_cast<std::uint32_t>(handles_.size() - 1)};
}

void SimulatedFiles::close(FileId id) {
  if (handles_[id.value()].has_lock) file(id).locked = false;
  handles_[id.value()] = {};
}

Result<void> SimulatedFiles::remove_file(const std::filesystem::path& path) {
  if (const int error = error_at(path)) return errno_code(error);
  if (names_.files.erase(path) == 0) return errno_code(ENOENT);
  changed();
  return {};
}

Result<void> SimulatedFiles::lock(FileId id) {
  const int error = error_at(handles_[id.value()].path);
  if (file(id).locked || error == EWOULDBLOCK) return Errc::in_use;
  if (error != 0) return errno_code(error);
  file(id).locked = handles_[id.value()].has_lock = true;
  return {};
}

Result<Bytes> SimulatedFiles::size(FileId id) {
  if (const int error = error_at(handles_[id.value()].path)) return errno_code(error);
  return Bytes{file(id).bytes.size()};
}

Result<Bytes> SimulatedFiles::allocated(FileId id) {
  if (const int error = error_at(handles_[id.value()].path)) return errno_code(error);
  return Bytes{room_of(file(id))};
}

Result<void> SimulatedFiles::resize(FileId id, Bytes size) {
  if (const int error = error_at(handles_[id.value()].path)) return errno_code(error);
  File& resized = file(id);
  if (count(size) < resized.bytes.size()) {
    resize(resized, count(size));
  } else if (const int error = allocate(resized, 0, count(size))) {
    return errno_code(error);
  }
  changed();
  return {};
}

Result<Bytes> SimulatedFiles::free_space(const std::filesystem::path& path) {
  if (const int error = error_at(path)) return errno_code(error);
  return Bytes{disk_bytes_ - std::min(used(), disk_bytes_)};
}

std::span<std::byte> SimulatedFiles::content(const std::filesystem::path& path) {
  const auto found = names_.files.find(path);
  if (found == names_.files.end()) return {};
  return found->second->bytes;
}

bool SimulatedFiles::exists(const std::filesystem::path& path) const {
  return names_.files.contains(path) || names_.directories.contains(path);
}

std::vector<std::filesystem::path> SimulatedFiles::files_in(const std::filesystem::path& directory) const {
  std::vector<std::filesystem::path> found;
  for (const auto& [name, f] : names_.files) {
    if (name.parent_path() == directory) found.push_back(name);
  }
  return found;
}

SimulatedFiles SimulatedFiles::after_power_failure(const std::function<bool(bool whole)>& survives) const {
  SimulatedFiles left;
  left.disk_bytes_ = disk_bytes_;
  left.preallocates_ = preallocates_;
  Names& there = left.names_;

  std::set<std::filesystem::path> directories = names_.directories;
  directories.insert(durable_.directories.begin(), durable_.directories.end());
  for (const std::filesystem::path& name : directories) {  // parents first
    const bool parent_gone = directories.contains(name.parent_path()) && !there.directories.contains(name.parent_path());
    const bool is = names_.directories.contains(name);
    const bool was = durable_.directories.contains(name);
    if (!parent_gone && (is == was || survives(true) ? is : was)) there.directories.insert(name);
  }

  std::set<std::filesystem::path> files;
  for (const Names* names : {&names_, &durable_}) {
    for (const auto& [name, f] : names->files) files.insert(name);
  }
  const auto file_of = [](const Names& names, const std::filesystem::path& name) {
    const auto found = names.files.find(name);
    return found == names.files.end() ? nullptr : found->second;
  };
  for (const std::filesystem::path& name : files) {
    const auto is = file_of(names_, name);
    const auto was = file_of(durable_, name);
    const auto chosen = is == was || survives(true) ? is : was;
    if (chosen == nullptr || !there.directories.contains(name.parent_path())) continue;
    auto copy = std::make_shared<File>();
    copy->bytes = copy->durable = survivor(*chosen, survives);
    copy->is_link = chosen->is_link;
    // A hole of which something was kept is no hole.
    for (const std::uint64_t page : chosen->holes) {
      if ((page + 1) * page_bytes > copy->bytes.size()) break;
      const auto in_it = std::span{copy->bytes}.subspan(page * page_bytes, page_bytes);
      if (std::ranges::all_of(in_it, [](std::byte byte) { return byte == std::byte{0}; })) copy->holes.insert(page);
    }
    there.files.emplace(name, std::move(copy));
  }
  left.durable_ = there;
  return left;
}

void SimulatedFiles::lose_unsynced() {
  SimulatedFiles left = after_power_failure([](bool) { return false; });
  names_ = std::move(left.names_);
  durable_ = std::move(left.durable_);
}

SimulatedFiles SimulatedFiles::left_by(End end) const {
  if (end == End::power_failure) return after_power_failure([](bool) { return false; });
  SimulatedFiles left;
  left.disk_bytes_ = disk_bytes_;
  left.preallocates_ = preallocates_;
  left.names_.directories = names_.directories;
  left.durable_.directories = durable_.directories;
  std::map<const File*, std::shared_ptr<File>> copies;
  const auto copy = [&](const Names& from, Names& to) {
    for (const auto& [path, of] : from.files) {
      std::shared_ptr<File>& file = copies[of.get()];
      if (file == nullptr) file = std::make_shared<File>(*of);
      file->locked = false;
      to.files.emplace(path, file);
    }
  };
  copy(names_, left.names_);
  copy(durable_, left.durable_);
  return left;
}

IoCompletion SimulatedFiles::perform(const IoOperation& operation, const IoFault& fault, std::uint64_t changes) {
  IoCompletion completion{operation.token, fault.error, 0, 0};
  if (broken(handles_[operation.file.value()].path)) completion.error = EIO;
  if (reads_fail_ && operation.kind == IoOperation::Kind::read) completion.error = EIO;
  if (completion.error != 0) return completion;
  if (operation.kind == IoOperation::Kind::open) {
    Handle& handle = handles_[operation.file.value()];
    TERRACE_CHECK(handle.file == nullptr && !handle.path.empty());
    auto& opened = names_.files[handle.path];
    if (!opened) opened = std::make_shared<File>();
    handle.file = durable_.files[handle.path] = opened;
    changed();
    return completion;
  }
  File& f = file(operation.file);
  switch (operation.kind) {
    case IoOperation::Kind::open: break;
    case IoOperation::Kind::allocate:
      completion.error = allocate(f, operation.offset, std::min(operation.length, fault.bytes_max.value_or(operation.length)));
      if (fault.bytes_max) completion.error = ENOSPC;
      changed();
      return completion;
    case IoOperation::Kind::deallocate:
      deallocate(f, operation.offset, operation.length);
      changed();
      return completion;
    case IoOperation::Kind::check: {
      const auto named = names_.files.find(handles_[operation.file.value()].path);
      if (named == names_.files.end()) {
        completion.error = ENOENT;
      } else if (named->second.get() != &f) {
        completion.error = ESTALE;
      } else if (f.bytes.size() < operation.length) {
        completion.error = ENODATA;
      }
      return completion;
    }
    case IoOperation::Kind::free_space: completion.bytes = disk_bytes_ - std::min(used(), disk_bytes_); return completion;
    case IoOperation::Kind::sync: {
      const auto end = std::find_if(f.unsynced.begin(), f.unsynced.end(), [&](const auto& c) { return c.number >= changes; });
      for (auto change = f.unsynced.begin(); change != end; ++change) {
        if (change->resizes) {
          f.durable.resize(change->offset);
        } else {
          std::copy(change->bytes.begin(), change->bytes.end(), f.durable.begin() + static_cast<std::ptrdiff_t>(change->offset));
        }
      }
      f.unsynced.erase(f.unsynced.begin(), end);
      changed();
      return completion;
    }
    case IoOperation::Kind::read: {
      const std::uint64_t there = f.bytes.size() - std::min<std::uint64_t>(operation.offset, f.bytes.size());
      completion.bytes = std::min({operation.into.size(), there, fault.bytes_max.value_or(there)});
      std::copy_n(f.bytes.end() - static_cast<std::ptrdiff_t>(there), completion.bytes, operation.into.begin());
      if (fault.flip && completion.bytes > 0) operation.into[completion.bytes / 2] ^= std::byte{0x10};
      if (operation.fingerprint != nullptr)
        completion.checksum = payload_checksum(operation.key, *operation.fingerprint, operation.into);
      return completion;
    }
    case IoOperation::Kind::write: {
      if (operation.fingerprint != nullptr)
        completion.checksum = payload_checksum(operation.key, *operation.fingerprint, operation.from);
      const std::uint64_t length = std::min<std::uint64_t>(operation.from.size(), fault.bytes_max.value_or(~0ULL));
      if (operation.offset + length > file_bytes_max_) {
        completion.error = EFBIG;
        return completion;
      }
      if (!take_room(f, operation.offset, length)) {
        completion.error = ENOSPC;
        return completion;
      }
      std::vector<std::byte> bytes(operation.from.begin(), operation.from.begin() + static_cast<std::ptrdiff_t>(length));
      if (fault.flip && length > 0) bytes[length / 2] ^= std::byte{0x10};
      write(f, operation.offset, std::move(bytes));
      changed();
      completion.bytes = length;
      return completion;
    }
  }
  return completion;
}

SimulatedFiles::File& SimulatedFiles::file(FileId id) {
  TERRACE_CHECK(id.value() < handles_.size());
  TERRACE_CHECK(handles_[id.value()].file != nullptr);
  return *handles_[id.value()].file;
}

std::uint64_t SimulatedFiles::used() const {
  std::uint64_t total = 0;
  for (const auto& [path, f] : names_.files) total += room_of(*f);
  return total;
}

// ---- the engine --------------------------------------------------------------------------------------------------------

void SimulatedIo::submit(std::span<const IoOperation> batch) {
  for (const IoOperation& operation : batch) {
    const IoFault fault = files_.number_next();
    queue_.push_back({operation, fault, operation.kind == IoOperation::Kind::sync ? files_.changes(operation.file) : 0});
  }
}

std::size_t SimulatedIo::poll(std::vector<IoCompletion>& out) {
  const std::size_t count = completed_.size();
  out.insert(out.end(), completed_.begin(), completed_.end());
  completed_.clear();
  return count;
}

void SimulatedIo::wait() {
  while (completed_.empty()) {
    if (queue_.empty()) release_stalled();
    if (queue_.empty()) return;
    step(0);
  }
}

void SimulatedIo::step(std::size_t i) {
  TERRACE_CHECK(i < queue_.size());
  Queued next = std::move(queue_[i]);
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
  if (next.fault.stall) {
    stalled_.push_back(std::move(next));
    return;
  }
  completed_.push_back(files_.perform(next.operation, next.fault, next.changes));
}

void SimulatedIo::release_stalled() {
  for (Queued& released : stalled_) {
    released.fault.stall = false;
    queue_.push_back(std::move(released));
  }
  stalled_.clear();
}

}  // namespace terrace
