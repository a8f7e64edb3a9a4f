#pragma once

#include "base/waker.hpp"
#include "storage/file/file_store.hpp"
#include "storage/io/io_engine.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/options.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

/// The storage of one pool: its store, the retries in front of it, and its I/O. A FileStore has its own I/O engine.
///
/// Ownership: arena, clock and waker must outlive it. Threads: the thread of the cache.
class PoolStorage {
 public:
  /// Makes the store that the options ask for; none if they ask for none. `capacity` is the part of this pool. Throws as
  /// CacheSystem does.
  PoolStorage(std::size_t pool, const CacheSystemOptions& options, Bytes capacity, HostArena& arena, const Clock& clock,
              Waker& waker);
  /// Waits for the I/O under way.
  ~PoolStorage();
  PoolStorage(const PoolStorage&) = delete;
  PoolStorage& operator=(const PoolStorage&) = delete;

  /// The store that the cache uses. Null: none.
  [[nodiscard]] BlockStore* store() { return guard_ ? &*guard_ : store_.get(); }
  /// nullptr: there is no guard.
  [[nodiscard]] const ResilientStore* guard() const { return guard_ ? &*guard_ : nullptr; }
  [[nodiscard]] const FileStore* files() const { return file_store_; }
  /// If the directories have a store of an earlier version, which is left as it is, the sentence about it for the log. Otherwise
  /// empty.
  [[nodiscard]] const std::string& left() const { return left_; }
  /// The same as CacheSystem::storage_health().
  [[nodiscard]] std::optional<StoreHealth> health() const;
  /// The counts of the store, without `orphans`. Only if there is a store.
  [[nodiscard]] StoreStat quick_stat() const { return store_->quick_stat(); }
  /// Bytes that the file systems can still take above their floor of free space. Nothing: there are no files, or it is not known.
  /// Asks the file systems, which may take long. Threads: any.
  [[nodiscard]] std::optional<Bytes> room() const;
  /// The same as CacheSystem::io().
  [[nodiscard]] std::string io() const { return io_ ? io_->describe() : std::string{}; }

 private:
  class IoMemory;

  std::unique_ptr<IoEngine> io_;
  std::unique_ptr<IoMemory> io_memory_;  ///< registers the arena with io_
  std::shared_ptr<BlockStore> store_;
  std::vector<std::filesystem::path> directories_;  ///< directories of the files; does not change
  Bytes floor_{};
  std::string left_;
  const FileStore* file_store_ = nullptr;  ///< the same object as store_, if that is a FileStore
  std::optional<ResilientStore> guard_;    ///< in front of store_
};

/// Removes the directories of new stores, unless keep() is called: for a start that fails after the first stores were made.
class NewStoreDirectories {
 public:
  /// Notes which directories do not exist yet.
  explicit NewStoreDirectories(const CacheSystemOptions& options);
  ~NewStoreDirectories();
  NewStoreDirectories(const NewStoreDirectories&) = delete;
  NewStoreDirectories& operator=(const NewStoreDirectories&) = delete;
  void keep() { stores_.clear(), parents_.clear(); }

 private:
  std::vector<std::filesystem::path> stores_;
  std::vector<std::filesystem::path> parents_;
};

}  // namespace terrace
