#include "runtime/system/pool_storage.hpp"

#include "base/check.hpp"
#include "runtime/shared/block_layout.hpp"
#include "storage/file/superblock_io.hpp"
#include "storage/io/make_io_engine.hpp"
#include "storage/memory/memory_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <system_error>

namespace terrace {
namespace {

IoOptions io_options(const FileStorage& file, std::size_t pools) {
  IoOptions options;
  options.choice = file.io;
  options.threads.threads = file.io_threads;
  options.threads.bandwidth = BytesPerSecond{count(file.bandwidth) / pools};
  return options;
}

bool is_missing(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found;
}

/// The name of the pool's store: FileStorage::name.
std::string store_name(const std::string& name, std::size_t pool) { return pool == 0 ? name : fmt::format("{}-{}", name, pool); }

/// Stores of earlier versions include only the fingerprint of the options, and not the layout of a block. The blocks of such a
/// store are not used, and it is left as it is: the new store has its own name, and keeps it.
std::string own_name(const FileStorage& file, std::size_t pool, const CacheSystemOptions& options) {
  std::string name = store_name(file.name, pool);
  std::string newer = name.empty() ? "layout" : name + "-layout";
  const std::filesystem::path& directory = file.directories.front();
  if (!is_missing(directory / newer / "catalog")) return newer;
  const std::optional<Superblock> found = look_at_superblock(directory / name);
  return found && found->fingerprint == options.fingerprint ? newer : name;
}

/// PoolStorage::left().
std::string left_store(const FileStorage& file, std::size_t pool, const std::string& own) {
  const std::string name = store_name(file.name, pool);
  const std::filesystem::path& directory = file.directories.front();
  if (own == name || is_missing(directory / name / "catalog")) return {};
  return fmt::format(
      "the store in {} was made by an earlier version, which did not note how blocks are laid out: none of its blocks "
      "is used, it is left as it is, and {} is used instead; remove the former to free its space",
      (directory / name).string(), (directory / own).string());
}

FileStoreConfig store_config(const FileStorage& file, std::size_t pool, const CacheSystemOptions& options, Bytes capacity) {
  const BlockLayout layout = layout_of(options);
  FileStoreConfig config;
  config.directory = file.directories.front();
  config.more_directories.assign(file.directories.begin() + 1, file.directories.end());
  config.stripe_bytes = file.stripe_bytes;
  config.name = own_name(file, pool, options);
  config.accept_lost_directories = file.accept_lost_directories;
  config.capacity = capacity;
  config.floor = file.floor;
  config.block_bytes = options.pools[pool].block_bytes;
  config.fingerprint = file_fingerprint(options.fingerprint, layout);
  config.meaning = describe(options.fingerprint, layout);
  config.label = file.label;
  return config;
}

std::unique_ptr<BlockStore> memory_store(Bytes capacity, Bytes block_bytes, Waker& waker) {
  const std::uint64_t blocks = capacity / block_bytes;
  if (blocks == 0 || blocks > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument{
        fmt::format("a storage capacity of {} holds {} blocks of {}: at least 1 is needed, and fewer than 2^32",
                    to_string(capacity), blocks, to_string(block_bytes))};
  }
  return std::make_unique<MemoryStore>(static_cast<std::uint32_t>(blocks), block_bytes, &waker);
}

}  // namespace

/// Registers the chunks of the arena with the I/O engine, as they are added and removed, until it is destroyed.
class PoolStorage::IoMemory final : public HostChunkObserver {
 public:
  IoMemory(HostArena& arena, IoEngine& engine) : arena_{arena}, engine_{engine} {
    TERRACE_CHECK(arena_.observe(*this).has_value());
  }
  ~IoMemory() override { arena_.unobserve(*this); }
  IoMemory(const IoMemory&) = delete;
  IoMemory& operator=(const IoMemory&) = delete;

  Result<void> chunk_added(const HostChunk& chunk) override {
    engine_.register_memory(chunk.bytes);
    return {};
  }
  void chunk_removing(const HostChunk& chunk) override { engine_.forget_memory(chunk.bytes); }

 private:
  HostArena& arena_;
  IoEngine& engine_;
};

PoolStorage::PoolStorage(std::size_t pool, const CacheSystemOptions& options, Bytes capacity, HostArena& arena,
                         const Clock& clock, Waker& waker) {
  if (std::holds_alternative<MemoryStorage>(options.storage)) {
    store_ = memory_store(capacity, options.pools[pool].block_bytes, waker);
  } else if (const auto* file = std::get_if<FileStorage>(&options.storage)) {
    io_ = make_io_engine(io_options(*file, options.pools.size()), waker);
    io_memory_ = std::make_unique<IoMemory>(arena, *io_);
    const FileStoreConfig config = store_config(*file, pool, options, capacity);
    left_ = left_store(*file, pool, config.name);
    std::shared_ptr<FileStore> files;
    try {
      files = std::make_shared<FileStore>(config, *io_);
    } catch (const std::system_error& error) {
      if (left_.empty() || error.code() != std::errc::no_space_on_device) throw;
      std::string sentence = error.what();
      if (const std::string code = ": " + error.code().message(); sentence.ends_with(code))
        sentence.erase(sentence.size() - code.size());
      throw std::system_error{error.code(), fmt::format("{} ({})", sentence, left_)};
    }
    file_store_ = files.get();
    directories_ = file->directories;
    floor_ = file->floor;
    store_ = files;
    if (options.storage_guard) guard_.emplace(*store_, clock, *options.storage_guard, &waker);
  } else if (const auto* stores = std::get_if<CustomStorage>(&options.storage)) {
    store_ = (*stores)[pool];
    store_->set_waker(&waker);
  }
}

PoolStorage::~PoolStorage() {
  if (store_ && file_store_ == nullptr) store_->set_waker(nullptr);
}

std::optional<StoreHealth> PoolStorage::health() const {
  if (!guard_) return std::nullopt;
  StoreHealth health = guard_->health();
  add_health_of(*file_store_, health);
  if (health.state == StoreState::well && !left_.empty()) health.reason = left_;
  return health;
}

/// Blocks are striped over all directories in equal parts, so the one with the least room decides.
std::optional<Bytes> PoolStorage::room() const {
  std::optional<std::uint64_t> least;
  for (const std::filesystem::path& directory : directories_) {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(directory, error);
    if (error) return std::nullopt;
    const std::uint64_t room = space.available - std::min<std::uint64_t>(space.available, count(floor_));
    least = std::min(least.value_or(room), room);
  }
  return least ? std::optional{Bytes{*least} * directories_.size()} : std::nullopt;
}

NewStoreDirectories::NewStoreDirectories(const CacheSystemOptions& options) {
  const auto* const file = std::get_if<FileStorage>(&options.storage);
  if (file == nullptr || options.pools.size() == 1) return;  // a FileStore that fails removes its files itself
  for (const std::filesystem::path& directory : file->directories) {
    if (is_missing(directory)) parents_.push_back(directory);
    for (std::size_t pool = 0; pool < options.pools.size(); ++pool) {
      const std::filesystem::path store = directory / own_name(*file, pool, options);
      if (is_missing(store)) stores_.push_back(store);
    }
  }
}

NewStoreDirectories::~NewStoreDirectories() {
  std::error_code ignored;
  for (const std::filesystem::path& store : stores_) std::filesystem::remove_all(store, ignored);
  for (const std::filesystem::path& parent : parents_) std::filesystem::remove(parent, ignored);  // only if it is empty
}

}  // namespace terrace
