#pragma once

#include "base/random.hpp"
#include "storage/file_store.hpp"

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
/// reads, removes, flushes, closes, compacts, starts again at the same or another size.
class Driver {
 public:
  struct Ground {
    IoEngine* engine = nullptr;
    std::function<void()> advance;  ///< lets at least one piece of I/O end, where any is under way
    FileStoreConfig config;
    std::function<void(const Saying&)> say;
    /// Whether records that are with the operating system are as good as flushed: where its end is no danger.
    bool system_lasts = false;
    /// Called by restart_and_check() when the store has started and before it is asked for anything.
    std::function<void()> opened = [] {};
  };

  /// Starts the store. Throws std::system_error.
  Driver(Ground ground, std::uint64_t seed);
  void step();
  void close();
  /// As of the start at hand, or the next.
  [[nodiscard]] const FileStoreConfig& config() const { return ground_.config; }

 private:
  void open();
  void poll();
  void drain();
  void write();
  void read();
  void remove();
  void flush();
  void restart();
  [[nodiscard]] const StoredBlock& any_block();

  Ground ground_;
  Random random_;
  std::map<std::uint64_t, AlignedBuffer> buffers_;  ///< of what is under way, by token; the store's while it lives
  std::unique_ptr<FileStore> store_;
  std::uint64_t next_token_ = 1;
  bool flushing_ = false;
  std::vector<StoreEvent> events_;
};

/// A store of the driver's, of so many blocks: its catalog of several pages, its data in several files.
[[nodiscard]] FileStoreConfig crash_config(const std::filesystem::path& directory, std::uint32_t blocks);

/// Starts the store after a crash as the next process would, and holds it against what was promised: its ledger before the
/// first write, that it is closed under parent, that what it serves is right, and that it works. What it found is in
/// `objections`; closes the store again.
struct Restarted {
  std::set<BlockKey> served;
  std::uint64_t corrupt = 0;  ///< records that their data contradicted
  std::vector<std::string> objections;
};
[[nodiscard]] Restarted restart_and_check(const Driver::Ground& ground, Promises promises);

}  // namespace terrace::test
