#pragma once

#include "base/random.hpp"
#include "storage/file/file_store.hpp"

#include "tests/crash/promises.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace terrace::test {

/// Uses a file store as its owner would, at random, and says what it does: writes paths into a store that is too small for all,
/// reads, removes, flushes, resizes, closes, starts again at the same or another size. While the store is closed it may become
/// sparse.
class Driver {
 public:
  struct Ground {
    IoEngine* engine = nullptr;
    std::function<void()> advance;  ///< lets at least one piece of I/O end, where any is under way
    FileStoreConfig config;
    std::function<void(const Saying&)> say;
    /// Whether records that are with the operating system are as good as flushed: where its end is no danger.
    bool system_lasts = false;
    /// Called by restart_and_check() when the store has started and before it is asked for anything, and when it has come to its
    /// size, before anything is written.
    std::function<void()> opened = [] {};
    std::function<void()> settled = [] {};
  };

  /// Starts the store. Throws std::system_error.
  Driver(Ground ground, std::uint64_t seed);
  void step();
  void close();

 private:
  void open();
  void poll();
  void drain();
  void write();
  void read();
  void remove();
  void flush();
  void resize();
  void restart();
  void set_capacity(std::uint32_t blocks);
  [[nodiscard]] const StoredBlock& any_block();

  Ground ground_;
  Random random_;
  std::map<std::uint64_t, AlignedBuffer> buffers_;  ///< of what is under way, by token; the store's while it lives
  std::unique_ptr<FileStore> store_;
  std::uint64_t next_token_ = 1;
  bool flushing_ = false;
  std::uint32_t resizing_to_ = 0;  ///< 0: it has the size that it was told last
  std::vector<StoreEvent> events_;
};

/// A store of the driver's, of so many blocks: its catalog of several pages, its data in several files, and so many small pieces
/// that a resize is seen half done.
/// Striped over three directories, the others beside it, where its name says "striped".
[[nodiscard]] FileStoreConfig crash_config(const std::filesystem::path& directory, std::uint32_t blocks);
/// capacity_for() and slots_within(), given the directories that it has.
[[nodiscard]] Bytes crash_capacity(const FileStoreConfig& config, std::uint32_t blocks);
[[nodiscard]] std::uint32_t crash_blocks(const FileStoreConfig& config);
/// Of the config, all of them.
[[nodiscard]] std::vector<std::filesystem::path> directories_of(const FileStoreConfig& config);

/// The names of all files in the directory of a store with this superblock.
[[nodiscard]] std::set<std::string> names_of_store(const Superblock& superblock, std::uint32_t directory = 0);

/// Starts the store after a crash as the next process would, and holds it against what was promised: its ledger before the
/// first write, that it comes to the size that is asked for, that it is closed under parent, that what it serves is right, and
/// that it works. What it found is in
/// `objections`; closes the store again.
struct Restarted {
  std::set<BlockKey> served;
  std::uint64_t corrupt = 0;   ///< records that their data contradicted
  std::uint64_t unserved = 0;  ///< blocks that were listed, and went by that
  std::vector<std::string> objections;
};
[[nodiscard]] Restarted restart_and_check(const Driver::Ground& ground, Promises promises);

}  // namespace terrace::test
