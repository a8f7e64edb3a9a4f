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

/// Uses a file store at random, as its owner would, and reports what it does. It writes prefixes into a store that is too small
/// for all of them, reads, removes, flushes, resizes, closes the store, and starts it again with the same or another size. While
/// the store is closed, its files may become sparse.
class Driver {
 public:
  struct Ground {
    IoEngine* engine = nullptr;
    std::function<void()> advance;  ///< lets at least one I/O operation end, if any is under way
    FileStoreConfig config;
    std::function<void(const Saying&)> say;
    /// True if records that were handed to the operating system survive, because only the process ends and not the system.
    bool system_lasts = false;
    /// Called by restart_and_check() twice: when the store has started, before any request, and when it has reached its size,
    /// before anything is written.
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
  std::map<std::uint64_t, AlignedBuffer> buffers_;  ///< by token; the store uses them while operations are under way
  std::unique_ptr<FileStore> store_;
  std::uint64_t next_token_ = 1;
  bool flushing_ = false;
  std::uint32_t resizing_to_ = 0;  ///< 0: it has the size that it was given last
  std::vector<StoreEvent> events_;
};

/// The configuration of the driver's store with this many blocks: its catalog has several pages, its data several files, and so
/// many small parts that a resize can be observed half done. If the directory name says "striped", the store is striped over
/// three directories next to each other.
[[nodiscard]] FileStoreConfig crash_config(const std::filesystem::path& directory, std::uint32_t blocks);
/// capacity_for() and slots_within() for the directories of the configuration.
[[nodiscard]] Bytes crash_capacity(const FileStoreConfig& config, std::uint32_t blocks);
[[nodiscard]] std::uint32_t crash_blocks(const FileStoreConfig& config);
/// All directories of the configuration.
[[nodiscard]] std::vector<std::filesystem::path> directories_of(const FileStoreConfig& config);

/// The names of all files in the directory of a store with this superblock.
[[nodiscard]] std::set<std::string> names_of_store(const Superblock& superblock, std::uint32_t directory = 0);

/// Starts the store after a crash, as the next process would, and compares it with what was promised: its ledger before the first
/// write, that it reaches the configured size, that it is closed under parent, that it serves the right bytes, and that it works.
/// Findings are in `objections`. Closes the store again.
struct Restarted {
  std::set<BlockKey> served;
  std::uint64_t corrupt = 0;   ///< records whose data did not match
  std::uint64_t unserved = 0;  ///< blocks that were listed and then dropped because of that
  std::vector<std::string> objections;
};
[[nodiscard]] Restarted restart_and_check(const Driver::Ground& ground, Promises promises);

}  // namespace terrace::test
