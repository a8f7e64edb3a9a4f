#include "lab/benches.hpp"

#include "lab/storage/storage_ground.hpp"
#include "storage/file/file_store.hpp"
#include "storage/io/make_io_engine.hpp"
#include "tools/numbered_key.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

std::unique_ptr<IoEngine> make_engine(const StorageGround& ground) {
  auto engine = make_io_engine({.choice = ground.io, .threads = {}, .uring = {}}, ground.waker);
  engine->register_memory(ground.buffers.span());
  return engine;
}

/// A whole FileStore. The constructor makes it and fills it.
class StoreSubject final : public StorageSubject {
 public:
  explicit StoreSubject(StorageGround& ground) : ground_{ground}, io_{make_engine(ground)} {
    FileStoreConfig config;
    config.directory = ground.directories.front();
    config.more_directories.assign(ground.directories.begin() + 1, ground.directories.end());
    config.block_bytes = ground.block_bytes;
    config.capacity = capacity_for(ground.blocks, ground.block_bytes, static_cast<std::uint32_t>(ground.directories.size()));
    store_ = std::make_unique<FileStore>(config, *io_);
    fill(ground, *this);
  }
  ~StoreSubject() override {
    store_.reset();
    io_->forget_memory(ground_.buffers.span());
  }
  StoreSubject(const StoreSubject&) = delete;
  StoreSubject& operator=(const StoreSubject&) = delete;

  /// Lists the blocks that can be read.
  void prepare(StorageWay way) override {
    if (way == StorageWay::write) return;
    keys_.clear();
    for (const auto& [place, key] : stored()) keys_.push_back(key);
  }

  /// For writes the store chooses the places: it evicts the blocks in the order of their last use.
  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override {
    const auto expected = way == StorageWay::read ? StoreEvent::Kind::read : StoreEvent::Kind::written;
    const auto start = [&](std::uint64_t buffer, std::uint32_t block) {
      if (way == StorageWay::read) {
        reads_.push_back({buffer, keys_[block], ground_.buffer(buffer)});
      } else {
        writes_.push_back({.token = buffer, .block = {.key = numbered_key(++next_key_)}, .from = ground_.buffer(buffer)});
      }
    };
    ErrorCode failed;
    keep_under_way(ground_, depth, order, start, [&](const auto& ended) {
      if (!reads_.empty()) store_->read(reads_);
      if (!writes_.empty()) store_->write(writes_);
      reads_.clear();
      writes_.clear();
      ground_.waker.acknowledge();
      events_.clear();
      store_->poll(events_);
      bool none = true;
      for (const StoreEvent& event : events_) {
        if (event.kind != expected) continue;  // it is an `evicted` event
        none = false;
        if (event.error) failed = event.error;
        ended(event.token, !event.error);
      }
      if (none) ground_.waker.wait(-1);
    });
    if (failed) throw std::system_error{failed, "the store"};
  }

  [[nodiscard]] std::string engine() const { return io_->describe(); }
  [[nodiscard]] bool is_direct() const { return store_->is_direct(); }
  /// The store's files to read, and the names of files to write in the same directories.
  [[nodiscard]] StorageFiles files() {
    StorageFiles files;
    for (const auto& [place, key] : stored()) files.places.push_back(place);
    files.to_read = files_;
    for (const std::filesystem::path& directory : ground_.directories) files.to_write.push_back(directory / "plain");
    return files;
  }

 private:
  /// All stored blocks, sorted by place. Records the files in which they lie.
  std::vector<std::pair<StorageFiles::Place, BlockKey>> stored() {
    std::vector<std::pair<StorageFiles::Place, BlockKey>> blocks;
    store_->for_each([&](const StoredBlock& block) {
      const FileStore::Location at = *store_->location(block.key);
      auto file = std::ranges::find(files_, at.file);
      if (file == files_.end()) file = files_.insert(files_.end(), at.file);
      blocks.push_back({{static_cast<std::uint32_t>(file - files_.begin()), at.offset}, block.key});
    });
    if (blocks.size() != ground_.blocks) throw std::runtime_error{"the store has lost blocks"};
    std::ranges::sort(blocks);
    return blocks;
  }

  StorageGround& ground_;
  std::unique_ptr<IoEngine> io_;
  std::unique_ptr<FileStore> store_;
  std::vector<std::filesystem::path> files_;
  /// keys of the stored blocks by place, set by prepare(); so a block's number means the same place for all subjects
  std::vector<BlockKey> keys_;
  std::uint64_t next_key_ = 0;
  std::vector<StoreEvent> events_;
  std::vector<StoreRead> reads_;
  std::vector<StoreWrite> writes_;
};

/// The I/O engine alone, on the same files, which must exist and have their sizes.
class EngineSubject final : public StorageSubject {
 public:
  EngineSubject(StorageGround& ground, StorageFiles files) : ground_{ground}, io_{make_engine(ground)}, files_{std::move(files)} {
    const auto open = [this](const std::filesystem::path& file) {
      const Result<OpenedFile> opened = io_->files().open(file, Create::no, Direct::yes);
      if (!opened) throw std::system_error{opened.error(), file.string()};
      return opened->id;
    };
    std::ranges::transform(files_.to_read, std::back_inserter(to_read_), open);
    std::ranges::transform(files_.to_write, std::back_inserter(to_write_), open);
  }
  ~EngineSubject() override { io_->forget_memory(ground_.buffers.span()); }
  EngineSubject(const EngineSubject&) = delete;
  EngineSubject& operator=(const EngineSubject&) = delete;

  void move(StorageWay way, unsigned depth, std::span<const std::uint32_t> order) override {
    const bool reads = way == StorageWay::read;
    const auto start = [&](std::uint64_t buffer, std::uint32_t block) {
      const StorageFiles::Place place = files_.place(way, block, ground_.block_bytes);
      IoOperation& operation = batch_.emplace_back();
      operation.token = buffer;
      operation.kind = reads ? IoOperation::Kind::read : IoOperation::Kind::write;
      operation.file = (reads ? to_read_ : to_write_)[place.file];
      operation.offset = place.offset;
      if (reads) operation.into = ground_.buffer(buffer);
      else operation.from = ground_.buffer(buffer);
    };
    int error = 0;
    keep_under_way(ground_, depth, order, start, [&](const auto& ended) {
      io_->submit(batch_);
      batch_.clear();
      ground_.waker.acknowledge();
      completed_.clear();
      if (io_->poll(completed_) == 0) ground_.waker.wait(-1);
      for (const IoCompletion& completion : completed_) {
        if (completion.error != 0) error = completion.error;
        ended(completion.token, completion.error == 0);
      }
    });
    if (error != 0) throw std::system_error{error, std::generic_category(), "the engine"};
  }

 private:
  StorageGround& ground_;
  std::unique_ptr<IoEngine> io_;
  StorageFiles files_;
  std::vector<FileId> to_read_;
  std::vector<FileId> to_write_;
  std::vector<IoOperation> batch_;
  std::vector<IoCompletion> completed_;
};

constexpr Column storage_columns[] = {{"block_bytes", "block", 7},
                                      {"depth", "", 7},
                                      {"way", "", -5},
                                      {"store_gb_per_s", "store", 9, 2},
                                      {"store_ratio", "ratio", 7, 2},
                                      {"engine_gb_per_s", "engine", 9, 2},
                                      {"engine_ratio", "ratio", 7, 2},
                                      {"plain_gb_per_s", "plain", 9, 2},
                                      {"store_cpu_us", "store us", 10, 1},
                                      {"engine_cpu_us", "engine", 9, 1},
                                      {"plain_cpu_us", "plain", 9, 1}};

std::string fio_line(const StorageBenchOptions& options) {
  return fmt::format("fio --name=plain --directory={} --size={} --direct=1 --ioengine=io_uring --rw=randread --bs={} "
                     "--iodepth={} --time_based --runtime=5",
                     options.directory.string(), count(options.size), count(options.block_bytes.front()), options.depths.back());
}

}  // namespace

Row bench_storage(const StorageBenchOptions& options) {
  std::string engine;
  bool direct = true;
  boost::json::array rows;
  at_each_size(options, [&](StorageGround& ground) {
    StoreSubject store{ground};
    const StorageFiles files = store.files();
    const std::unique_ptr<StorageSubject> plain = make_plain_subject(ground, files);
    EngineSubject bare{ground, files};
    if (engine.empty()) {
      engine = store.engine();
      direct = store.is_direct();
      print("medians of {} rounds; {}{}; GB/s, and microseconds of the calling thread a block\n", options.rounds, engine,
            direct ? "" : "; through the page cache: no direct I/O here");
      print_head(storage_columns);
    }
    const NamedSubject subjects[] = {{"store", store}, {"engine", bare}, {"plain", *plain}};
    for (const unsigned depth : options.depths) {
      for (const StorageWay way : {StorageWay::read, StorageWay::write}) {
        add_row(rows, storage_columns, measure_in_turns(options, ground, depth, way, subjects));
      }
    }
  });
  print("\nto compare: {}\n", fio_line(options));
  return {{"io", engine},
          {"direct", direct},
          {"rounds", options.rounds},
          {"size", count(options.size)},
          {"directories", options.stripes.size() + 1},
          {"storage", std::move(rows)}};
}

}  // namespace terrace::tools
