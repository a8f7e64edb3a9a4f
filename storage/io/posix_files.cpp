#include "storage/io/posix_files.hpp"

#include "base/check.hpp"
#include "base/descriptor.hpp"
#include "base/fork.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace terrace {
namespace {

constexpr unsigned file_mode = 0600;
constexpr unsigned directory_mode = 0700;
constexpr std::uint64_t allocation_unit = 512;  // the unit of st_blocks on every file system

bool is_private(const struct stat& found, mode_t type) {
  return (found.st_mode & S_IFMT) == type && found.st_uid == ::geteuid() && (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

/// Checks a file that was opened with O_NONBLOCK, and clears that flag. Returns an errno, or 0 if the file is private.
int check_private_file(int fd) {
  struct stat found {};
  if (::fstat(fd, &found) != 0) return errno;
  if (!is_private(found, S_IFREG) || found.st_nlink != 1) return EPERM;
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 ? 0 : errno;
}

Result<void> done_or_errno(int returned) {
  if (returned != 0) return errno_code(errno);
  return {};
}

}  // namespace

int PosixCalls::open(const char* path, int flags, unsigned mode) { return ::open(path, flags, mode); }
ssize_t PosixCalls::pread(int fd, void* into, std::size_t bytes, off_t offset) { return ::pread(fd, into, bytes, offset); }
ssize_t PosixCalls::pwrite(int fd, const void* from, std::size_t bytes, off_t offset) {
  return ::pwrite(fd, from, bytes, offset);
}
int PosixCalls::fdatasync(int fd) { return ::fdatasync(fd); }
int PosixCalls::fallocate(int fd, off_t offset, off_t bytes) { return ::fallocate(fd, 0, offset, bytes); }
int PosixCalls::punch_hole(int fd, off_t offset, off_t bytes) {
  return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

PosixCalls& PosixCalls::system() {
  static PosixCalls calls;
  return calls;
}

PosixFiles::~PosixFiles() {
  for (std::size_t id = 0; id < files_.size(); ++id) {
    if (files_[id]) PosixFiles::close(FileId{static_cast<std::uint32_t>(id)});
  }
}

Result<Made> PosixFiles::make_directory(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), directory_mode) == 0) return Made::created;
  const int error = errno;
  struct stat found {};
  if (error != EEXIST || ::stat(path.c_str(), &found) != 0) return errno_code(error);
  if (!S_ISDIR(found.st_mode)) return errno_code(ENOTDIR);
  return Made::existed;
}

Result<void> PosixFiles::check_private(const std::filesystem::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return errno_code(errno);
  if (!is_private(found, S_IFDIR)) return errno_code(EPERM);
  return {};
}

Result<void> PosixFiles::remove_directory(const std::filesystem::path& path) { return done_or_errno(::rmdir(path.c_str())); }

Result<Made> PosixFiles::link_directory(const std::filesystem::path& link, const std::filesystem::path& to) {
  if (::symlink(to.c_str(), link.c_str()) == 0) return Made::created;
  if (errno != EEXIST) return errno_code(errno);
  std::error_code error;
  if (std::filesystem::read_symlink(link, error) == to) return Made::existed;
  if (error) return errno_code(error.value());  // the existing entry is not a link
  if (::unlink(link.c_str()) != 0 || ::symlink(to.c_str(), link.c_str()) != 0) return errno_code(errno);
  return Made::existed;
}

int PosixFiles::sync_path(const std::filesystem::path& path) noexcept {
  const Descriptor directory{calls_.open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)};
  if (!directory.is_open()) return errno;
  // Some file systems cannot sync a directory, and return EINVAL.
  return ::fsync(directory.get()) != 0 && errno != EINVAL ? errno : 0;
}

Result<void> PosixFiles::sync_directory(const std::filesystem::path& path) {
  if (const int error = sync_path(path)) return errno_code(error);
  return {};
}

int PosixFiles::open_path(File& file, Create create, Made& made) noexcept {
  constexpr int always = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const auto try_open = [&](int flags) {
    const int fd = calls_.open(file.path.c_str(), always | flags | (file.direct ? O_DIRECT : 0), file_mode);
    if (fd >= 0 || errno != EINVAL || !file.direct) return fd;
    file.direct = false;
    return calls_.open(file.path.c_str(), always | flags, file_mode);
  };
  made = Made::existed;
  int fd = try_open(0);
  if (fd < 0 && errno == ENOENT && create == Create::if_missing) {
    fd = try_open(O_CREAT | O_EXCL);
    made = Made::created;
  }
  if (fd < 0) {
    // The path leads to a symbolic link, a directory or a socket.
    if (errno == ELOOP || errno == EISDIR || errno == ENXIO) errno = EPERM;
    return fd;
  }
  const int error = check_private_file(fd);
  if (error == 0) return close_in_children(fd);
  if (made == Made::created) ::unlink(file.path.c_str());
  ::close(fd);
  errno = error;
  return -1;
}

Result<OpenedFile> PosixFiles::open(const std::filesystem::path& path, Create create, Direct direct) {
  OpenedFile opened{prepare(path, direct)};
  File& opening = file(opened.id);
  opening.fd = open_path(opening, create, opened.made);
  if (opening.fd >= 0) return opened;
  const int error = errno;
  files_.pop_back();
  return errno_code(error);
}

FileId PosixFiles::prepare(const std::filesystem::path& path, Direct direct) {
  auto file = std::make_unique<File>();
  file->path = std::filesystem::absolute(path);
  file->direct = direct == Direct::yes;
  files_.push_back(std::move(file));
  return FileId{static_cast<std::uint32_t>(files_.size() - 1)};
}

void PosixFiles::close(FileId id) {
  if (const int fd = file(id).fd; fd >= 0) {
    leave_to_children(fd);
    ::close(fd);
  }
  files_[id.value()].reset();
}

Result<void> PosixFiles::remove_file(const std::filesystem::path& path) { return done_or_errno(::unlink(path.c_str())); }

Result<void> PosixFiles::lock(FileId id) {
  const File& locked = file(id);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(locked.fd, F_OFD_SETLK, &whole) != 0) {
    if (errno == EAGAIN || errno == EACCES) return Errc::in_use;
    return errno_code(errno);
  }
  // Another process may have removed the name, or given it to another file, between our open() and our lock. Then the start of
  // that other process succeeds, and this one fails.
  struct stat ours {};
  struct stat named {};
  const bool same = ::fstat(locked.fd, &ours) == 0 && ::stat(locked.path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
                    ours.st_dev == named.st_dev;
  if (!same) return Errc::in_use;
  return {};
}

Result<Bytes> PosixFiles::size(FileId id) {
  struct stat found {};
  if (::fstat(file(id).fd, &found) != 0) return errno_code(errno);
  return Bytes{static_cast<std::uint64_t>(found.st_size)};
}

Result<Bytes> PosixFiles::allocated(FileId id) {
  struct stat found {};
  if (::fstat(file(id).fd, &found) != 0) return errno_code(errno);
  return Bytes{static_cast<std::uint64_t>(found.st_blocks) * allocation_unit};
}

Result<void> PosixFiles::resize(FileId id, Bytes wanted) {
  return done_or_errno(::ftruncate(file(id).fd, static_cast<off_t>(count(wanted))));
}

int PosixFiles::allocate(File& file, off_t offset, off_t bytes) noexcept {
  if (calls_.fallocate(file.fd, offset, bytes) == 0) return 0;
  if (errno != EOPNOTSUPP) return errno;
  file.sparse = true;
  struct stat found {};
  if (::fstat(file.fd, &found) != 0) return errno;
  if (found.st_size >= offset + bytes) return 0;
  return ::ftruncate(file.fd, offset + bytes) == 0 ? 0 : errno;
}

Result<Bytes> PosixFiles::free_space(const std::filesystem::path& path) {
  struct statvfs found {};
  if (::statvfs(path.c_str(), &found) != 0) return errno_code(errno);
  return Bytes{static_cast<std::uint64_t>(found.f_bavail) * found.f_frsize};
}

/// (The kernel also sends SIGXFSZ, to the thread that makes the call. The engines' threads block it.)
Bytes PosixFiles::file_bytes_max() const {
  struct rlimit limit {};
  const bool known = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return Bytes{known ? std::uint64_t{limit.rlim_cur} : std::numeric_limits<std::uint64_t>::max()};
}

PosixFiles::File& PosixFiles::file(FileId id) const {
  TERRACE_CHECK(id.value() < files_.size());
  TERRACE_CHECK(files_[id.value()] != nullptr);
  return *files_[id.value()];
}

/// Some file systems accept O_DIRECT in open() and refuse it at the first read or write. Clearing the flag twice does no harm.
bool PosixFiles::leave_direct(File& file) noexcept {
  const int flags = ::fcntl(file.fd, F_GETFL);
  if (flags < 0 || ::fcntl(file.fd, F_SETFL, flags & ~O_DIRECT) != 0) return false;
  file.direct = false;
  return true;
}

IoCompletion PosixFiles::perform(const IoOperation& operation, File& file, AlignedBuffer& scratch) noexcept {
  IoCompletion completion{operation.token, 0, 0, 0};
  if (operation.kind == IoOperation::Kind::sync) {
    while (calls_.fdatasync(file.fd) != 0) {
      if (errno == EINTR) continue;
      completion.error = errno;
      break;
    }
    return completion;
  }
  if (!is_transfer(operation.kind)) {
    work_on(operation, file, completion);
    return completion;
  }

  const bool reading = operation.kind == IoOperation::Kind::read;
  const std::uint64_t length = reading ? operation.into.size() : operation.from.size();
  // Nothing writes to the buffer of a write operation. The cast lets one pointer serve both directions.
  std::byte* buffer = reading ? operation.into.data() : const_cast<std::byte*>(operation.from.data());
  std::byte* const callers = buffer;
  if (!reading && operation.fingerprint != nullptr) {
    completion.checksum = payload_checksum(operation.key, *operation.fingerprint, operation.from);
  }
  if (file.direct && !io_aligned(callers)) {
    try {
      if (scratch.size() < length) scratch = AlignedBuffer{length};
    } catch (const std::bad_alloc&) {
      completion.error = ENOMEM;
      return completion;
    }
    buffer = scratch.data();
    if (!reading) std::memcpy(buffer, callers, length);
  }

  completion.error = move_bytes(operation, file, buffer, length, completion.bytes);
  if (reading && completion.error == 0 && completion.bytes == length) {
    if (buffer != callers) std::memcpy(callers, buffer, length);
    if (operation.fingerprint != nullptr)
      completion.checksum = payload_checksum(operation.key, *operation.fingerprint, operation.into);
  }
  return completion;
}

void PosixFiles::work_on(const IoOperation& operation, File& file, IoCompletion& completion) noexcept {
  const auto offset = static_cast<off_t>(operation.offset);
  const auto length = static_cast<off_t>(operation.length);
  switch (operation.kind) {
    case IoOperation::Kind::open: {
      Made made = Made::existed;
      file.fd = open_path(file, Create::if_missing, made);
      if (file.fd < 0) {
        completion.error = errno;
      } else if (made == Made::created) {
        completion.error = sync_path(file.path.parent_path());
      }
      return;
    }
    case IoOperation::Kind::allocate: completion.error = allocate(file, offset, length); return;
    case IoOperation::Kind::deallocate: completion.error = calls_.punch_hole(file.fd, offset, length) == 0 ? 0 : errno; return;
    case IoOperation::Kind::check: completion.error = check(file, operation.length); return;
    case IoOperation::Kind::free_space: {
      struct statvfs found {};
      if (::fstatvfs(file.fd, &found) != 0) {
        completion.error = errno;
      } else {
        completion.bytes = static_cast<std::uint64_t>(found.f_bavail) * found.f_frsize;
      }
      return;
    }
    default: TERRACE_CHECK(false);
  }
}

/// Returns an errno, or 0.
int PosixFiles::check(const File& file, std::uint64_t bytes) noexcept {
  struct stat ours {};
  struct stat named {};
  if (::fstat(file.fd, &ours) != 0 || ::lstat(file.path.c_str(), &named) != 0) return errno;
  if (ours.st_ino != named.st_ino || ours.st_dev != named.st_dev) return ESTALE;
  return static_cast<std::uint64_t>(ours.st_size) < bytes ? ENODATA : 0;
}

int PosixFiles::move_bytes(const IoOperation& operation, File& file, std::byte* buffer, std::uint64_t length,
                           std::uint64_t& moved) noexcept {
  while (moved < length) {
    const auto at = static_cast<off_t>(operation.offset + moved);
    const bool was_direct = file.direct;
    const ssize_t n = operation.kind == IoOperation::Kind::read ? calls_.pread(file.fd, buffer + moved, length - moved, at)
                                                                : calls_.pwrite(file.fd, buffer + moved, length - moved, at);
    if (n > 0) {
      moved += static_cast<std::uint64_t>(n);
      continue;
    }
    if (n == 0) return 0;  // end of file, or the device accepts no more; another try would not help
    if (errno == EINTR) continue;
    if (errno == EINVAL && was_direct && moved == 0) {
      if (!leave_direct(file)) return EINVAL;
      continue;
    }
    return errno;
  }
  return 0;
}

}  // namespace terrace
