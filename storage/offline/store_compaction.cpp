#include "storage/offline/store_compaction.hpp"

#include "storage/io/aligned_buffer.hpp"
#include "storage/format/catalog_survey.hpp"
#include "storage/format/format.hpp"
#include "storage/file/store_directory.hpp"
#include "storage/file/store_owner.hpp"
#include "storage/format/store_part.hpp"
#include "storage/file/superblock_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace terrace {
namespace {

[[noreturn]] void fail(ErrorCode error, const std::string& sentence) {
  throw std::system_error{static_cast<std::error_code>(error), sentence};
}

/// One compaction; its files are closed, and the lock let go of, when it ends.
class Compactor {
 public:
  Compactor(const std::filesystem::path& directory, IoEngine& engine)
      : directory_{directory}, engine_{engine}, files_{engine.files()} {}
  ~Compactor() {
    for (const FileId file : open_) files_.close(file);
  }
  Compactor(const Compactor&) = delete;
  Compactor& operator=(const Compactor&) = delete;

  Compaction run() {
    check_private(files_, directory_);
    const FileId lock = open("lock", Direct::no);
    take_lock(engine_, lock, directory_);
    catalog_ = open("catalog", Direct::no);
    read_superblock(lock);
    check_directories();
    survey();
    Compaction done;
    done.blocks = survey_->blocks().size();
    done.cleared = clear_records();
    done.free_slots = layout_.slots - done.blocks;
    done.given_back = give_back();
    return done;
  }

 private:
  FileId open(const std::string& name, Direct direct) {
    const Result<OpenedFile> opened = files_.open(directory_ / name, Create::no, direct);
    if (!opened) cannot_open(directory_ / name, opened.error());
    open_.push_back(opened->id);
    return opened->id;
  }

  void carry_out(const IoOperation& operation, const char* what) {
    const IoCompletion ended = run_alone(engine_, operation);
    const std::uint64_t due = operation.into.size() + operation.from.size();
    if (ended.error == 0 && ended.bytes == due) return;
    fail(ended.error != 0 ? errno_code(ended.error) : ErrorCode{Errc::io_failed},
         fmt::format("cannot {} {}", what, directory_.string()));
  }

  void read_superblock(FileId lock) {
    const std::string name = (directory_ / "catalog").string();
    const Result<Bytes> size = files_.size(catalog_);
    if (!size) fail(size.error(), fmt::format("cannot read the size of {}", name));
    const FoundSuperblock found = terrace::read_superblock(engine_, catalog_, lock);
    if (found.error) fail(found.error, fmt::format("cannot read {}", name));
    if (!found.superblock || !known_version(found.superblock->version) || !plausible(*found.superblock) ||
        *size < layout_of(*found.superblock).catalog_bytes()) {
      fail(Errc::incompatible, fmt::format("{} is no catalog that this program can work on", name));
    }
    superblock_ = *found.superblock;
    layout_ = layout_of(superblock_);
  }

  /// What is not there just now would look as if it had lost its data, and its records would be cleared.
  void check_directories() {
    for (std::uint32_t n = 1; n < layout_.directories; ++n) {
      const Result<OpenedFile> part = files_.open(part_directory(directory_, n) / "stripe", Create::no, Direct::no);
      if (!part) {
        fail(part.error(), fmt::format("cannot open {}, of a file store that is striped over {} directories",
                                       (part_directory(directory_, n) / "stripe").string(), layout_.directories));
      }
      open_.push_back(part->id);
    }
  }

  std::uint64_t data_bytes(std::uint32_t number) {
    const auto known = data_.find(number);
    if (known != data_.end()) return known->second.bytes;
    Data data;
    const std::filesystem::path where = part_directory(directory_, number % layout_.directories);
    const std::string name = fmt::format("blocks-{:04}", number / layout_.directories);
    const Result<OpenedFile> opened = files_.open(where / name, Create::no, Direct::no);
    if (opened) {
      open_.push_back(opened->id);
      const Result<Bytes> size = files_.size(opened->id);
      if (!size) fail(size.error(), fmt::format("cannot read the size of {}", (where / name).string()));
      data = {opened->id, count(*size)};
    } else if (opened.error() != errno_code(ENOENT)) {
      cannot_open(where / name, opened.error());
    }
    return data_.emplace(number, data).first->second.bytes;
  }

  void survey() {
    survey_.emplace(superblock_, [this](std::uint32_t number) { return data_bytes(number); });
    AlignedBuffer page{catalog_page_bytes};
    for (std::uint32_t n = 0; n < layout_.catalog_pages(); ++n) {
      carry_out({.kind = IoOperation::Kind::read, .file = catalog_, .offset = layout_.page_offset(n), .into = page.span()},
                "read the catalog of the file store in");
      survey_->add(n * records_per_page, page.span());
    }
    survey_->finish();
  }

  std::uint64_t clear_records() {
    std::vector<std::uint32_t> useless;
    for (const auto* records : {&survey_->orphans(), &survey_->superseded()}) {
      for (const CatalogRecord& record : *records) useless.push_back(record.slot);
    }
    for (const CatalogSurvey::Damaged& damaged : survey_->damaged()) useless.push_back(damaged.slot);
    std::sort(useless.begin(), useless.end());
    AlignedBuffer page{catalog_page_bytes};
    for (std::size_t i = 0; i < useless.size();) {
      const std::uint32_t n = useless[i] / records_per_page;
      const std::uint64_t at = layout_.page_offset(n);
      carry_out({.kind = IoOperation::Kind::read, .file = catalog_, .offset = at, .into = page.span()},
                "read the catalog of the file store in");
      for (; i < useless.size() && useless[i] / records_per_page == n; ++i) {
        const std::span<std::byte> record = page.span(std::size_t{useless[i] % records_per_page} * record_bytes, record_bytes);
        std::fill(record.begin(), record.end(), std::byte{0});
      }
      carry_out({.kind = IoOperation::Kind::write, .file = catalog_, .offset = at, .from = page.span()},
                "write the catalog of the file store in");
    }
    if (!useless.empty()) {
      carry_out({.kind = IoOperation::Kind::sync, .file = catalog_}, "sync the catalog of the file store in");
    }
    return useless.size();
  }

  Bytes give_back() {
    std::vector<std::uint32_t> used;
    for (const CatalogRecord& record : survey_->blocks()) used.push_back(record.slot);
    std::sort(used.begin(), used.end());
    Bytes given{};
    std::uint32_t next = 0;
    used.push_back(layout_.slots);
    for (const std::uint32_t slot : used) {
      // The free slots before this one, cut where they do not lie behind each other any more.
      while (next < slot) {
        const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(slot, layout_.end_of_run(SlotId{next})));
        given += punch(layout_.file_of(SlotId{next}), layout_.offset_of(SlotId{next}), Bytes{(end - next) * layout_.block_bytes});
        next = end;
      }
      next = slot + 1;
    }
    return given;
  }

  Bytes punch(std::uint32_t number, std::uint64_t offset, Bytes length) {
    if (offset >= data_bytes(number)) return {};
    const Result<Bytes> given = files_.deallocate(data_.at(number).id, offset, length);
    if (!given) {
      fail(given.error(), fmt::format("cannot give back the free slots of the file store in {}{}", directory_.string(),
                                      given.error() == errno_code(EOPNOTSUPP) ? ": its file system has no holes" : ""));
    }
    return *given;
  }

  struct Data {
    FileId id;
    std::uint64_t bytes = 0;  ///< 0: there is no such file
  };

  const std::filesystem::path directory_;
  IoEngine& engine_;
  FileSystem& files_;
  std::vector<FileId> open_;
  FileId catalog_;
  Superblock superblock_;
  StoreLayout layout_;
  std::optional<CatalogSurvey> survey_;
  std::map<std::uint32_t, Data> data_;
};

}  // namespace

Compaction compact_store(const std::filesystem::path& directory, IoEngine& engine) { return Compactor{directory, engine}.run(); }

}  // namespace terrace
