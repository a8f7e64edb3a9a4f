#include "storage/file/superblock_io.hpp"

#include "base/check.hpp"
#include "base/descriptor.hpp"
#include "storage/file/file_set.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>

namespace terrace {

FoundSuperblock read_superblock(IoEngine& engine, FileId catalog, FileId lock) {
  AlignedBuffer buffer{catalog_page_bytes};
  FoundSuperblock found{.blank = true};
  const auto look = [&](FileId file, std::uint64_t offset, std::size_t bytes) {
    const IoOperation read{.kind = IoOperation::Kind::read, .file = file, .offset = offset, .into = buffer.span(0, bytes)};
    const IoCompletion completion = run_alone(engine, read);
    const std::span<const std::byte> there = buffer.span(0, completion.error == 0 ? completion.bytes : 0);
    if (completion.error != 0) found.error = errno_code(completion.error);
    found.blank = found.blank && completion.error == 0 && all_zero(there);
    if (const Result<Superblock> superblock = decode_superblock(there)) found = {.superblock = *superblock};
  };
  look(catalog, 0, catalog_page_bytes);
  if (found.superblock) return found;
  look(lock, superblock_copy_at, sector_bytes);
  found.from_copy = found.superblock.has_value();
  return found;
}

std::optional<Superblock> look_at_superblock(const std::filesystem::path& own_directory) {
  const auto look = [&own_directory](const char* name, std::uint64_t offset) -> std::optional<Superblock> {
    // O_NONBLOCK: opening must not hang if the path is a pipe.
    const Descriptor file{::open((own_directory / name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    std::array<std::byte, sector_bytes> sector{};
    const ssize_t got = ::pread(file.get(), sector.data(), sector.size(), static_cast<off_t>(offset));
    const Result<Superblock> found = decode_superblock(std::span{sector}.first(got > 0 ? static_cast<std::size_t>(got) : 0));
    return found ? std::optional{*found} : std::nullopt;
  };
  if (std::optional<Superblock> found = look("catalog", 0)) return found;
  return look("lock", superblock_copy_at);
}

void SuperblockWrite::begin(const Superblock& superblock, FileId catalog, FileId lock) {
  TERRACE_CHECK(is_done());
  encode(superblock, page_.span());
  catalog_ = catalog;
  lock_ = lock;
  step_ = 0;
}

IoOperation SuperblockWrite::operation() const {
  TERRACE_CHECK(!is_done());
  const bool is_copy = step_ >= 2;
  const FileId file = is_copy ? lock_ : catalog_;
  if (step_ % 2 == 1) return {.kind = IoOperation::Kind::sync, .file = file, .ahead = true};
  return {.kind = IoOperation::Kind::write,
          .file = file,
          .offset = is_copy ? superblock_copy_at : 0,
          .from = page_.span(0, is_copy ? sector_bytes : catalog_page_bytes),
          .ahead = true};
}

ErrorCode SuperblockWrite::ended(const IoCompletion& completion) {
  const ErrorCode error = error_of(completion, operation().from.size());
  step_ = error ? steps : step_ + 1;
  return error;
}

ErrorCode write_superblock(IoEngine& engine, const Superblock& superblock, FileId catalog, FileId lock) {
  SuperblockWrite write;
  write.begin(superblock, catalog, lock);
  while (!write.is_done()) {
    if (const ErrorCode error = write.ended(run_alone(engine, write.operation()))) return error;
  }
  return {};
}

}  // namespace terrace
