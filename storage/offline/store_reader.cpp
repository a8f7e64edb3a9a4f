#include "storage/offline/store_reader.hpp"

#include "base/check.hpp"
#include "storage/format/refuse_store.hpp"
#include "storage/format/store_name.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "terrace/block_store.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace terrace {
namespace {

constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;
constexpr std::chrono::milliseconds retry_pause{20};  ///< wait before a page that may be partially written is read again
constexpr int attempts_max = 5;

/// Returns the store's own directory: `directory` itself, or the store with the default name in it.
std::filesystem::path own_directory(std::filesystem::path directory) {
  std::error_code error;
  const auto has = [&](const std::filesystem::path& name) {
    return std::filesystem::exists(std::filesystem::symlink_status(directory / name, error));
  };
  const std::filesystem::path own = default_store_name;
  return !has("catalog") && !has("stripe") && has(own / "lock") ? directory / own : directory;
}

bool is_store(const std::filesystem::path& directory) {
  std::error_code error;
  return std::filesystem::is_regular_file(directory / "catalog", error) &&
         std::filesystem::is_regular_file(directory / "lock", error);
}

void gather_stores(const std::filesystem::path& directory, int levels, std::vector<std::filesystem::path>& stores) {
  if (is_store(directory)) {
    stores.push_back(directory);
  } else if (levels > 0) {
    std::error_code error;
    for (std::filesystem::directory_iterator each{directory, error}; each != std::filesystem::directory_iterator{};
         each.increment(error)) {
      if (std::filesystem::is_directory(each->symlink_status(error))) gather_stores(each->path(), levels - 1, stores);
    }
  }
}

}  // namespace

std::vector<std::filesystem::path> stores_below(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> stores;
  gather_stores(directory, 3, stores);
  std::ranges::sort(stores);
  return stores;
}

StoreReader::StoreReader(std::filesystem::path directory, PosixCalls& calls, const std::function<bool()>& go_on)
    : directory_{own_directory(std::move(directory))}, calls_{calls} {
  open_catalog();
  read_superblock();
  find_missing();
  read_records(go_on);
  for (const auto* records : {&scan_->blocks(), &scan_->orphans()}) {
    for (const CatalogRecord& record : *records) by_key_.emplace_back(record.block.key, &record);
  }
  std::sort(by_key_.begin(), by_key_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
}

StoreReader::File StoreReader::open(const std::filesystem::path& path, bool direct) const {
  // O_NONBLOCK: opening must not hang if the path is a pipe.
  constexpr int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  File file{.direct = direct};
  file.fd = Descriptor{calls_.open(path.c_str(), flags | (direct ? O_DIRECT : 0), 0)};
  if (!file.fd.is_open() && errno == EINVAL && direct) {
    file.direct = false;
    file.fd = Descriptor{calls_.open(path.c_str(), flags, 0)};
  }
  struct stat found {};
  if (!file.fd.is_open() || ::fstat(file.fd.get(), &found) != 0) {
    file.error = errno;
  } else if (!S_ISREG(found.st_mode)) {
    file.error = S_ISDIR(found.st_mode) ? EISDIR : ENOTSUP;
  } else {
    file.bytes = static_cast<std::uint64_t>(found.st_size);
  }
  if (file.error != 0) file.fd = {};
  return file;
}

void StoreReader::open_catalog() {
  catalog_ = open(directory_ / "catalog", false);
  if (catalog_.fd.is_open()) {
    lock_ = open(directory_ / "lock", false);
    if (!lock_.fd.is_open() && lock_.error != ENOENT) {
      refuse_store(errno_code(lock_.error), "cannot read {}", (directory_ / "lock").string());
    }
    return;
  }
  struct stat found {};
  if (::stat(directory_.c_str(), &found) != 0) {
    refuse_store(errno_code(errno), "cannot look into the store {}", directory_.string());
  }
  if (!S_ISDIR(found.st_mode)) {
    refuse_store(Errc::incompatible, "{} is no file store: it is no directory", directory_.string());
  }
  if (catalog_.error != ENOENT) {
    refuse_store(errno_code(catalog_.error), "cannot read {}", (directory_ / "catalog").string());
  }
  if (std::filesystem::exists(directory_ / "stripe")) {
    refuse_store(Errc::incompatible, "{} is part of a file store that is striped over several directories: give its first one",
                 directory_.string());
  }
  const std::vector<std::filesystem::path> inner = stores_below(directory_);
  refuse_store(Errc::incompatible, "{} is no file store: it has no catalog{}", directory_.string(),
               inner.empty() ? "" : fmt::format("; but {} in it is one", inner.front().lexically_relative(directory_).string()));
}

void StoreReader::read_superblock() {
  const std::string name = (directory_ / "catalog").string();
  AlignedBuffer page{catalog_page_bytes};
  for (int attempt = 1;; ++attempt) {
    const Result<std::uint64_t> got = read(catalog_, page.span(), 0);
    Result<Superblock> found = got ? decode_superblock(page.span(0, *got)) : Result<Superblock>{got.error()};
    if (!found) {
      std::array<std::byte, sector_bytes> copy;
      const Result<std::uint64_t> copied = read(lock_, copy, superblock_copy_at);
      if (copied) found = decode_superblock(std::span{copy}.first(*copied));
    }
    if (!found && !got) refuse_store(got.error(), "cannot read {}", name);
    if (!found && all_zero(page.span(0, *got))) {
      refuse_store(Errc::incompatible,
                   "the file store in {} has no superblock: its making was interrupted, or goes on just now, or the superblock "
                   "has been overwritten with zeros",
                   directory_.string());
    }
    const bool whole = found.has_value();
    if (whole && !known_version(found->version)) {
      refuse_store(Errc::incompatible, "the file store in {} has format version {}, and this program reads versions up to {}",
                   directory_.string(), found->version, striped_format_version);
    }
    if (whole && !plausible(*found)) {
      refuse_store(Errc::incompatible, "the file store in {} has a superblock with impossible values", directory_.string());
    }
    std::uint64_t due = 0;
    if (whole) {
      superblock_ = *found;
      layout_ = layout_of(superblock_);
      due = count(layout_.catalog_bytes());
      struct stat now {};
      if (::fstat(catalog_.fd.get(), &now) != 0) refuse_store(errno_code(errno), "cannot read the size of {}", name);
      catalog_.bytes = static_cast<std::uint64_t>(now.st_size);
      if (catalog_.bytes >= due) return;
    }
    // A starting owner may be writing the superblock, or resizing the catalog.
    if (attempt < attempts_max && in_use()) {
      std::this_thread::sleep_for(retry_pause);
    } else if (whole) {
      refuse_store(Errc::incompatible, "{} is cut short: it has {} bytes of {}", name, catalog_.bytes, due);
    } else {
      refuse_store(Errc::incompatible, "{} is no catalog of a file store, or its superblock is damaged", name);
    }
  }
}

std::uint64_t StoreReader::next_data(std::uint64_t at, std::uint64_t end) const {
  const off_t data = ::lseek(catalog_.fd.get(), static_cast<off_t>(at), SEEK_DATA);
  if (data >= 0) return std::clamp(static_cast<std::uint64_t>(data) / catalog_page_bytes * catalog_page_bytes, at, end);
  struct stat now {};
  // ENXIO can mean that no data follow, or that the file is shorter now. If the file system does not support SEEK_DATA, the whole
  // file is read.
  return errno == ENXIO && ::fstat(catalog_.fd.get(), &now) == 0 && static_cast<std::uint64_t>(now.st_size) >= end ? end : at;
}

void StoreReader::find_missing() {
  missing_.assign(layout_.directories, false);
  for (std::uint32_t n = 1; n < layout_.directories; ++n) {
    const File file = open(part_directory(directory_, n) / "stripe", false);
    std::array<std::byte, part_text_bytes> text;
    const Result<std::uint64_t> got = read(file, text, 0);
    const auto part = parse_part({reinterpret_cast<const char*>(text.data()), got ? *got : 0});
    missing_[n] = part != StorePart{superblock_.id, n + 1, layout_.directories};
  }
}

std::vector<std::filesystem::path> StoreReader::missing_directories() const {
  std::vector<std::filesystem::path> missing;
  const std::vector<std::filesystem::path> more = more_directories();
  for (std::uint32_t n = 1; n < layout_.directories; ++n) {
    if (missing_[n]) missing.push_back(more[n - 1]);
  }
  return missing;
}

std::uint64_t StoreReader::missing_blocks() const {
  const auto is = [this](const CatalogRecord& block) { return missing(block); };
  return static_cast<std::uint64_t>(std::count_if(scan_->blocks().begin(), scan_->blocks().end(), is));
}

void StoreReader::read_records(const std::function<bool()>& go_on) {
  const std::string name = (directory_ / "catalog").string();
  scan_.emplace(superblock_, [this](std::uint32_t number) {
    return missing_[number % layout_.directories] ? ~std::uint64_t{0} : data_file(number).bytes;
  });
  AlignedBuffer piece{piece_bytes};
  const std::uint64_t end = count(layout_.catalog_bytes());
  for (std::uint64_t at = next_data(catalog_page_bytes, end); at < end; at = next_data(at + piece_bytes, end)) {
    if (!go_on()) refuse_store(errno_code(ECANCELED), "reading {} was interrupted", name);
    const std::span<std::byte> into = piece.span(0, std::min(piece_bytes, end - at));
    const Result<std::uint64_t> got = read(catalog_, into, at);
    require(got, "cannot read {}", name);
    if (*got != into.size()) refuse_store(Errc::incompatible, "{} became shorter while it was read", name);
    scan_->add(static_cast<std::uint32_t>((at - catalog_page_bytes) / record_bytes), into);
  }
  for (int attempt = 1; attempt < attempts_max && in_use(); ++attempt) {
    const std::vector<std::uint32_t> unreadable = scan_->take_unreadable();
    if (unreadable.empty()) break;
    std::this_thread::sleep_for(retry_pause);
    std::array<std::byte, record_bytes> bytes;
    for (const std::uint32_t slot : unreadable) {
      const Result<std::uint64_t> got = read(catalog_, bytes, catalog_page_bytes + std::uint64_t{slot} * record_bytes);
      require(got, "cannot read {}", name);
      if (*got != bytes.size()) refuse_store(Errc::incompatible, "{} became shorter while it was read", name);
      scan_->add(slot, bytes);
    }
  }
  scan_->finish();
}

Result<std::uint64_t> StoreReader::read(const File& file, std::span<std::byte> into, std::uint64_t offset) const {
  std::uint64_t done = 0;
  while (file.fd.is_open() && done < into.size()) {
    const ssize_t n = calls_.pread(file.fd.get(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_code(errno);
    done += static_cast<std::uint64_t>(n);
  }
  return done;
}

const CatalogRecord* StoreReader::find(const BlockKey& key) const {
  const auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                      [](const auto& entry, const BlockKey& wanted) { return entry.first < wanted; });
  return found == by_key_.end() || found->first != key ? nullptr : found->second;
}

bool StoreReader::in_use() const {
  if (!lock_.fd.is_open()) return false;
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  // Queries the lock without taking it. Taking it, even for a moment, could make the start of an owner fail.
  return ::fcntl(lock_.fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::optional<StoreOwner> StoreReader::owner() const {
  std::array<std::byte, owner_text_bytes> text;
  const Result<std::uint64_t> got = read(lock_, text, 0);
  if (!got) return std::nullopt;
  return parse_owner({reinterpret_cast<const char*>(text.data()), *got});
}

std::vector<StoreLabel> StoreReader::labels() const {
  std::array<std::byte, labels_max * label_bytes> sectors;
  const Result<std::uint64_t> got = read(lock_, sectors, labels_at);
  return parse_labels(std::span{sectors}.first(got ? *got : 0));
}

template <class Visit>
void StoreReader::for_each_entry(Visit visit) const {
  std::error_code error;
  for (std::uint32_t n = 0; n < layout_.directories; ++n) {
    for (const auto& entry : std::filesystem::directory_iterator{part_directory(directory_, n), error}) {
      struct stat found {};
      if (::lstat(entry.path().c_str(), &found) == 0) visit(found);
    }
  }
}

std::chrono::system_clock::time_point StoreReader::last_written() const {
  std::time_t last = 0;
  for_each_entry([&](const struct stat& found) {
    if (S_ISREG(found.st_mode)) last = std::max(last, found.st_mtim.tv_sec);
  });
  return std::chrono::system_clock::from_time_t(last);
}

std::vector<std::filesystem::path> StoreReader::more_directories() const {
  std::vector<std::filesystem::path> more;
  for (std::uint32_t n = 1; n < layout_.directories; ++n) {
    std::error_code error;
    more.push_back(std::filesystem::read_symlink(part_directory(directory_, n), error));
    if (error) more.back() = part_directory(directory_, n);
  }
  return more;
}

std::filesystem::path StoreReader::data_path(std::uint32_t number) const {
  return part_directory(directory_, number % layout_.directories) / fmt::format("blocks-{:04}", number / layout_.directories);
}

StoreReader::Location StoreReader::location(std::uint32_t slot) const {
  return {data_path(layout_.file_of(SlotId{slot})), layout_.offset_of(SlotId{slot})};
}

Bytes StoreReader::allocated() const {
  constexpr std::uint64_t unit = 512;  // the unit of st_blocks on every file system
  Bytes total{};
  for_each_entry([&](const struct stat& found) { total += Bytes{static_cast<std::uint64_t>(found.st_blocks) * unit}; });
  return total;
}

const StoreReader::File& StoreReader::data_file(std::uint32_t number) const {
  const std::lock_guard opening{opening_};
  const auto found = data_.find(number);
  if (found != data_.end()) return found->second;
  return data_.emplace(number, open(data_path(number), true)).first->second;
}

Result<std::optional<CatalogRecord>> StoreReader::record(std::uint32_t slot) const {
  TERRACE_CHECK(slot < layout_.slots);
  std::array<std::byte, record_bytes> bytes;
  const Result<std::uint64_t> got = read(catalog_, bytes, catalog_page_bytes + std::uint64_t{slot} * record_bytes);
  if (!got) return got.error();
  return *got == bytes.size() ? decode_record(bytes) : std::nullopt;
}

AlignedBuffer StoreReader::make_scratch() const {
  constexpr std::uint64_t scratch_bytes_max = std::uint64_t{4} << 20;
  return AlignedBuffer{std::min(layout_.block_bytes, scratch_bytes_max)};
}

Result<std::optional<std::uint64_t>> StoreReader::checksum(const File& file, const CatalogRecord& block,
                                                           std::span<std::byte> scratch) const {
  PayloadChecksum sum;
  sum.begin(block.block.key, superblock_.fingerprint, layout_.block_bytes);
  for (std::uint64_t done = 0; done < layout_.block_bytes; done += scratch.size()) {
    const std::span<std::byte> piece = scratch.first(std::min<std::uint64_t>(scratch.size(), layout_.block_bytes - done));
    const Result<std::uint64_t> got = read(file, piece, layout_.offset_of(SlotId{block.slot}) + done);
    if (!got) return got.error();
    if (*got != piece.size()) return std::nullopt;
    sum.add(piece);
  }
  return sum.value();
}

StoreReader::Verified StoreReader::verify(const CatalogRecord& block, std::span<std::byte> scratch) const {
  TERRACE_CHECK(!scratch.empty() && scratch.size() % io_alignment == 0);
  if (missing(block)) return {Verdict::missing};
  const File& file = data_file(layout_.file_of(SlotId{block.slot}));
  if (!file.fd.is_open()) return {Verdict::unreadable, file.error};
  Result<std::optional<std::uint64_t>> got = checksum(file, block, scratch);
  if (!got && got.error() == errno_code(EINVAL) && file.direct) {
    // Some file systems accept O_DIRECT in open() and refuse it at the first read.
    const int flags = ::fcntl(file.fd.get(), F_GETFL);
    if (flags >= 0) (void)::fcntl(file.fd.get(), F_SETFL, flags & ~O_DIRECT);
    got = checksum(file, block, scratch);
  }
  const bool whole = got && got->has_value();
  if (whole && **got == block.checksum) return {};

  const bool had_owner = in_use();
  const Result<std::optional<CatalogRecord>> now = record(block.slot);
  if (!now) return {Verdict::unreadable, now.error().value()};
  if (*now != block) return {Verdict::changed};
  if (!got) return {Verdict::unreadable, got.error().value()};
  if (had_owner) return {Verdict::doubtful};
  return {whole ? Verdict::corrupt : Verdict::unreadable};
}

StoreReader::Verified StoreReader::verify(const CatalogRecord& block, std::chrono::milliseconds patience) const {
  const AlignedBuffer scratch = make_scratch();
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const Verified verified = verify(block, scratch.span());
    if (verified.verdict != Verdict::doubtful) return verified;
    if (std::chrono::steady_clock::now() >= end) return {Verdict::corrupt};
    std::this_thread::sleep_for(retry_pause);
  }
}

}  // namespace terrace
