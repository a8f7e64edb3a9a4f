#include "terrace/host_memory.hpp"

#include "base/descriptor.hpp"
#include "base/failure.hpp"
#include "transfer/host/first_touch.hpp"
#include "transfer/host/mapping.hpp"
#include "transfer/host/memory_limits.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace terrace {
namespace {

/// Rows of a region that Terrace makes begin at multiples of this, unless the caller gives a stride.
constexpr std::uint64_t region_alignment = 4096;
/// Larger than the memory that any process can address. No sum of sizes below it overflows.
constexpr std::uint64_t region_bytes_max = std::uint64_t{1} << 57;

/// Returns the stride of a region's rows: `row_stride`, or, if that is 0, row_bytes rounded up to region_alignment. Throws
/// std::invalid_argument if the region is empty or too large, or if rows would overlap.
Bytes region_stride(std::uint32_t rows, Bytes row_bytes, Bytes row_stride) {
  const std::uint64_t bytes = count(row_bytes);
  if (rows == 0 || bytes == 0) throw std::invalid_argument{"a region needs at least one row of at least one byte"};
  std::uint64_t stride = count(row_stride);
  if (stride == 0 && bytes <= region_bytes_max) stride = (bytes + region_alignment - 1) / region_alignment * region_alignment;
  if (bytes > region_bytes_max || stride > region_bytes_max / rows) {
    throw std::invalid_argument{
        fmt::format("a region of {} rows of {} is more than a process can address", rows, to_string(row_bytes))};
  }
  if (stride < bytes) {
    throw std::invalid_argument{
        fmt::format("a region's row stride of {} is less than its rows of {}", to_string(Bytes{stride}), to_string(row_bytes))};
  }
  return Bytes{stride};
}

/// Throws std::runtime_error, with the size that fits, if the limits of this process do not allow the memory.
void check_memory(Bytes bytes, MemoryCheck check) {
  if (check == MemoryCheck::no) return;
  const MemoryRequest request{.bytes = bytes, .unit = Bytes{region_alignment}, .spare = MiB * 64};
  if (const auto refusal = preflight(request, read_memory_limits())) {
    throw std::runtime_error{fmt::format("a region of {}: {}", to_string(bytes), *refusal)};
  }
}

// ---- the file of a shared region ---------------------------------------------------------------------------------------------

constexpr std::array<char, 8> magic{'T', 'R', 'C', 'S', 'H', 'M', '0', '1'};
/// Rows begin after one page, which holds the header.
constexpr std::uint64_t rows_offset = region_alignment;
/// How often create() tries to replace a stale region while other processes do the same.
constexpr int tries_max = 16;

/// The first bytes of a region. Creator and joiners run on one machine, so the numbers have its byte order.
struct Header {
  std::array<char, 8> magic{};
  std::uint64_t rows = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t row_stride = 0;
  std::uint64_t total_bytes = 0;
  RegionNonce nonce{};
  std::array<std::byte, 32> digest{};
};
static_assert(sizeof(Header) == 88);

[[noreturn]] void fail(int error, const std::string& sentence) {
  throw std::system_error{error, std::generic_category(), sentence};
}
[[noreturn]] void fail(Errc error, const std::string& sentence) { throw std::system_error{make_error_code(error), sentence}; }

/// The creator's open file holds a lock on the first byte until the creator ends, in whatever way.
struct flock creator_lock() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return lock;
}

bool take_creator_lock(int fd) {
  struct flock lock = creator_lock();
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/// Returns true if another open file has the creator's lock.
bool is_locked(int fd) {
  struct flock lock = creator_lock();
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string by_number(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

/// Opens the file of a descriptor once more, so that the new descriptor has its own locks and position.
Descriptor open_again(int fd) { return Descriptor{::open(by_number(fd).c_str(), O_RDWR | O_CLOEXEC)}; }

void check_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  if (!name.empty() && name.size() <= 200 && name.front() != '.' && std::ranges::all_of(name, is_allowed)) return;
  throw std::invalid_argument{
      "a shared region's name has 1 to 200 letters, digits, '-', '_' and '.', and does not begin with '.'"};
}

Header header_of(const SharedLayout& layout) {
  Header header;
  header.magic = magic;
  header.rows = layout.rows;
  header.row_bytes = count(layout.row_bytes);
  header.row_stride = count(region_stride(layout.rows, layout.row_bytes, layout.row_stride));
  header.total_bytes = rows_offset + header.row_stride * header.rows;
  header.digest = layout.digest;
  return header;
}

/// Reads the header. Fails: incompatible if the file is no region, or an errno.
Result<Header> read_header(int fd) {
  Header header;
  const ssize_t got = ::pread(fd, &header, sizeof header, 0);
  if (got < 0) return ErrorCode{errno, boost::system::generic_category()};
  if (got != sizeof header || header.magic != magic) return Errc::incompatible;
  return header;
}

/// Fails with EPERM if other users may open the file, or if it is not a regular file.
Result<void> check_private(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return ErrorCode{errno, boost::system::generic_category()};
  const bool is_private = S_ISREG(file.st_mode) && file.st_uid == ::geteuid() && (file.st_mode & 077) == 0;
  if (!is_private) return ErrorCode{EPERM, boost::system::generic_category()};
  return {};
}

/// A directory, and the name of a file in it.
struct Place {
  std::filesystem::path directory;
  std::string name;

  [[nodiscard]] std::filesystem::path path() const { return directory / name; }
  [[nodiscard]] Descriptor open() const {
    return Descriptor{::open(path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
  }
  /// Removes the name if it still refers to the open file.
  void remove(int fd) const {
    struct stat named {};
    struct stat opened {};
    if (::lstat(path().c_str(), &named) != 0 || ::fstat(fd, &opened) != 0) return;
    if (named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) ::unlink(path().c_str());
  }
};

std::string differs(const char* what, std::uint64_t has, std::uint64_t wanted) {
  return fmt::format("it has {} of {}, and {} are expected", what, has, wanted);
}

/// Returns a text that names the difference between a region and the expected one, or an empty text.
std::string difference(const Header& has, const Header& wanted) {
  if (has.nonce != wanted.nonce) return "its nonce is another one: it is the region of another run";
  if (has.rows != wanted.rows) return fmt::format("it has {} rows, and {} are expected", has.rows, wanted.rows);
  if (has.row_bytes != wanted.row_bytes) return differs("rows", has.row_bytes, wanted.row_bytes);
  if (has.row_stride != wanted.row_stride) return differs("a row stride", has.row_stride, wanted.row_stride);
  if (has.digest != wanted.digest) return "its layout digest is another one: its rows hold the data of another model or geometry";
  if (has.total_bytes != wanted.total_bytes) return differs("a size", has.total_bytes, wanted.total_bytes);
  return {};
}

RegionNonce random_nonce() {
  RegionNonce nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) fail(errno, "no random nonce");
  return nonce;
}

}  // namespace

Result<void> check_rows(const HostRows& rows) {
  if (rows.address == nullptr) return failure<Errc::invalid_argument, "the address of the rows is null">;
  if (rows.count == 0 || count(rows.row_bytes) == 0)
    return failure<Errc::invalid_argument, "there are no rows, or they are empty">;
  if (rows.stride() < rows.row_bytes) {
    return failure<Errc::invalid_argument, "the stride is less than a row: 0 puts the rows side by side">;
  }
  const std::uint64_t end = std::numeric_limits<std::uint64_t>::max() - reinterpret_cast<std::uintptr_t>(rows.address);
  // The product is computed only if it fits.
  const std::uint64_t between = rows.count - 1;
  const bool fits =
      count(rows.row_bytes) <= end && (between == 0 || count(rows.stride()) <= (end - count(rows.row_bytes)) / between);
  if (!fits) return failure<Errc::invalid_argument, "the rows end beyond what an address can name">;
  return {};
}

struct PrivateRegion::State {
  Mapping mapping;
  HostRows rows;
};

PrivateRegion::PrivateRegion(std::uint32_t rows, Bytes row_bytes, MemoryCheck check) : state_{std::make_unique<State>()} {
  const Bytes stride = region_stride(rows, row_bytes, {});
  check_memory(stride * rows, check);
  state_->mapping = Mapping::reserve(stride * rows, "a private region");
  const FirstTouch touched = first_touch(state_->mapping.bytes(), {});
  if (touched.error != 0) {
    throw std::system_error{touched.error, std::generic_category(),
                            fmt::format("a private region: cannot touch {}", to_string(stride * rows))};
  }
  state_->rows = {state_->mapping.bytes().data(), rows, row_bytes, stride};
}

PrivateRegion::~PrivateRegion() = default;

const HostRows& PrivateRegion::rows() const { return state_->rows; }

// ---- shared regions ----------------------------------------------------------------------------------------------------------

struct SharedRegion::State {
  State() = default;
  /// For a creator.
  State(const SharedLayout& layout, MemoryCheck check) : header{header_of(layout)} {
    check_memory(Bytes{header.total_bytes}, check);
    header.nonce = random_nonce();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    unlink();
    if (mapped != nullptr) ::munmap(mapped, static_cast<std::size_t>(header.total_bytes));
  }

  void map(const std::string& who) {
    const auto bytes = static_cast<std::size_t>(header.total_bytes);
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shown.get(), 0);
    if (at == MAP_FAILED) fail(errno, fmt::format("{}: cannot map {}", who, to_string(Bytes{bytes})));
    mapped = at;
    rows = {static_cast<std::byte*>(at) + rows_offset, static_cast<std::uint32_t>(header.rows), Bytes{header.row_bytes},
            Bytes{header.row_stride}};
  }
  void unlink() {
    if (!place.name.empty()) place.remove(own.get());
    place.name.clear();
  }
  /// Sets the size of the file and writes its header. The file's memory is allocated here, so that no later access fails.
  void fill(const std::string& who) {
    const auto bytes = static_cast<off_t>(header.total_bytes);
    if (::fallocate(own.get(), 0, 0, bytes) != 0) {
      const int error = errno;
      fail(error, fmt::format("{}: no room for {}", who, to_string(Bytes{header.total_bytes})));
    }
    if (::pwrite(own.get(), &header, sizeof header, 0) != sizeof header) fail(errno, who + ": cannot write its header");
    if (!take_creator_lock(own.get())) fail(errno, who + ": cannot be locked");
    shown = open_again(own.get());
    if (!shown.is_open()) fail(errno, fmt::format("{}: cannot open {}", who, by_number(own.get())));
  }

  Header header;
  Place place;       ///< for a creator's region with a name; otherwise the name is empty
  Descriptor own;    ///< holds the creator's lock; not open in a joiner
  Descriptor shown;  ///< has no lock, so it can be passed on
  void* mapped = nullptr;
  HostRows rows;
};

SharedRegion SharedRegion::create(const std::string& name, const SharedLayout& layout, MemoryCheck check,
                                  const std::filesystem::path& directory) {
  check_name(name);
  auto state = std::make_unique<State>(layout, check);
  const Place place{directory, name};
  const std::string who = fmt::format("shared region {}", place.path().string());
  state->own = Descriptor{::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
  if (!state->own.is_open()) fail(errno, who + ": cannot make a file");
  state->fill(who);
  state->map(who);
  // The name appears when the region is complete, so that no process joins an incomplete region.
  for (int tries = 0; tries < tries_max; ++tries) {
    if (::linkat(AT_FDCWD, by_number(state->own.get()).c_str(), AT_FDCWD, place.path().c_str(), AT_SYMLINK_FOLLOW) == 0) {
      state->place = place;
      return SharedRegion{std::move(state)};
    }
    if (errno != EEXIST) fail(errno, who + ": cannot be given its name");
    const Result<void> removed = remove_stale(name, directory);
    if (removed || removed.error() == Errc::not_found) continue;
    if (removed.error() == Errc::in_use) fail(Errc::in_use, who + ": another process that is alive has created it");
    if (removed.error() == Errc::incompatible) {
      fail(Errc::incompatible, who + ": there is a file of this name that is no shared region; remove it or use another name");
    }
    throw std::system_error{removed.error(), who + ": a file of this name cannot be replaced"};
  }
  fail(Errc::in_use, who + ": other processes create it at the same time");
}

SharedRegion SharedRegion::create(const SharedLayout& layout, MemoryCheck check) {
  auto state = std::make_unique<State>(layout, check);
  const std::string who = "shared region";
  state->own = Descriptor{::memfd_create("terrace-region", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!state->own.is_open()) fail(errno, who + ": cannot make a file in memory");
  if (::fchmod(state->own.get(), 0600) != 0) fail(errno, who + ": cannot make its file private");
  state->fill(who);
  if (::fcntl(state->own.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail(errno, who + ": cannot fix its size");
  }
  state->map(who);
  return SharedRegion{std::move(state)};
}

SharedRegion SharedRegion::join_opened(int opened, const std::string& who, const RegionNonce& nonce, const SharedLayout& layout) {
  auto state = std::make_unique<State>();
  state->shown = Descriptor{opened};
  Header wanted = header_of(layout);
  wanted.nonce = nonce;
  if (const Result<void> is_private = check_private(opened); !is_private) {
    throw std::system_error{is_private.error(), who + ": it is not a file of this user alone"};
  }
  const Result<Header> read = read_header(opened);
  if (!read) {
    if (read.error() == Errc::incompatible) fail(Errc::incompatible, who + ": it is no shared region of this version");
    throw std::system_error{read.error(), who + ": its header cannot be read"};
  }
  if (const std::string what = difference(*read, wanted); !what.empty()) fail(Errc::incompatible, who + ": " + what);
  struct stat file {};
  if (::fstat(opened, &file) != 0) fail(errno, who);
  if (static_cast<std::uint64_t>(file.st_size) < wanted.total_bytes) {
    fail(Errc::incompatible,
         fmt::format("{}: its file is too small: {} bytes, and {} are needed", who, file.st_size, wanted.total_bytes));
  }
  if (!is_locked(opened)) {
    fail(Errc::not_found, who + ": the process that created it has ended; create it again");
  }
  state->header = wanted;
  state->map(who);
  return SharedRegion{std::move(state)};
}

SharedRegion SharedRegion::join(const std::string& name, const RegionNonce& nonce, const SharedLayout& layout,
                                const std::filesystem::path& directory) {
  check_name(name);
  const Place place{directory, name};
  const std::string who = fmt::format("shared region {}", place.path().string());
  static_cast<void>(header_of(layout));  // an impossible layout is reported before errors of the file
  const int fd = ::open(place.path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) {
      fail(Errc::not_found, who + ": there is none: its creator has not made it yet, has unlinked it, or has ended");
    }
    fail(errno, who + ": cannot be opened");
  }
  return join_opened(fd, who, nonce, layout);
}

SharedRegion SharedRegion::join(int descriptor, const RegionNonce& nonce, const SharedLayout& layout) {
  static_cast<void>(header_of(layout));
  const int fd = ::open(by_number(descriptor).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  const std::string who = fmt::format("shared region of descriptor {}", descriptor);
  if (fd < 0) fail(errno, who + ": cannot be opened");
  return join_opened(fd, who, nonce, layout);
}

Result<void> SharedRegion::remove_stale(const std::string& name, const std::filesystem::path& directory) {
  try {
    check_name(name);
    const Place place{directory, name};
    const Descriptor file = place.open();
    if (!file.is_open()) {
      if (errno == ENOENT) return Errc::not_found;
      return ErrorCode{errno, boost::system::generic_category()};
    }
    if (const Result<void> is_private = check_private(file.get()); !is_private) return is_private;
    if (const Result<Header> header = read_header(file.get()); !header) return header.error();
    // The lock excludes other processes that do the same, until the name is gone.
    if (!take_creator_lock(file.get())) return Errc::in_use;
    place.remove(file.get());
    return {};
  } catch (const std::invalid_argument&) {
    return Errc::invalid_argument;
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
}

SharedRegion::SharedRegion(std::unique_ptr<State> state) : state_{std::move(state)} {}
SharedRegion::~SharedRegion() = default;
SharedRegion::SharedRegion(SharedRegion&&) noexcept = default;
SharedRegion& SharedRegion::operator=(SharedRegion&&) noexcept = default;

const HostRows& SharedRegion::rows() const { return state_->rows; }
const RegionNonce& SharedRegion::nonce() const { return state_->header.nonce; }
int SharedRegion::descriptor() const { return state_->shown.get(); }
bool SharedRegion::creator_lives() const { return state_->own.is_open() || is_locked(state_->shown.get()); }
void SharedRegion::unlink() { state_->unlink(); }

}  // namespace terrace
