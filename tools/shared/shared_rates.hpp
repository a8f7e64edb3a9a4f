#pragma once

#include "base/waker.hpp"
#include "terrace/clock.hpp"
#include "terrace/options.hpp"
#include "terrace/shared_store.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace terrace::tools {

/// The work of one measurement: blocks that a shared store writes or reads, one after the other, some at a time.
struct SharedWork {
  std::uint32_t blocks = 32;
  std::size_t block_bytes = std::size_t{1} << 20;
  std::uint32_t at_once = 4;
  Duration patience{};  ///< for all of a measurement: what is not done by then has failed. 0: it takes as long as it takes
};

/// The time that one measurement took.
struct SharedCost {
  std::uint64_t blocks = 0;  ///< as in the work
  std::uint64_t failed = 0;  ///< operations that ended with an error
  double seconds = 0;
  double client_cpu_seconds = 0;  ///< of all threads of this process
  std::uint32_t found = 0;        ///< blocks that probes have found
};

/// Measures a shared store. The memory has the blocks one after the other. Threads: one, which sleeps while it waits.
class SharedRates {
 public:
  /// The store outlives this object, which sets its waker.
  SharedRates(SharedStore& store, const SharedWork& work);
  ~SharedRates() { store_.set_waker(nullptr); }
  SharedRates(const SharedRates&) = delete;
  SharedRates& operator=(const SharedRates&) = delete;

  /// Once `go_on` returns false, no more blocks are begun, and those that were not begun have failed. None: it goes on.
  using GoOn = std::function<bool()>;
  [[nodiscard]] SharedCost write(std::span<const std::byte> memory, const GoOn& go_on = {});
  [[nodiscard]] SharedCost read(std::span<std::byte> memory, const GoOn& go_on = {});
  /// The time from a probe of all blocks to its answer. Returns a negative number if they are not all there.
  [[nodiscard]] double probe();
  /// Renews the expiry of all blocks.
  void renew() { store_.renew(blocks_); }
  /// Removes all blocks, and asks for them until they are gone, for as long as `patience`. Returns how many are still there.
  [[nodiscard]] std::uint32_t remove(Duration patience);

 private:
  [[nodiscard]] TimePoint deadline() const;
  /// Number of blocks that are there, whether or not those before them are.
  [[nodiscard]] std::uint32_t count();
  /// Calls `submit(n)` for each block.
  template <class Submit>
  SharedCost run(const GoOn& go_on, Submit submit);
  void wait();

  SharedStore& store_;
  const SharedWork work_;
  std::vector<BlockKey> keys_;
  std::vector<StoredBlock> blocks_;  ///< with these keys
  std::vector<SharedEvent> events_;
  EventFdWaker waker_;
};

/// Opens a shared store for a measurement: its blocks have a fingerprint of their own, so nobody finds them, and they expire
/// within a minute. Waits some seconds until its servers are connected, which it does not require (SharedStore::usable()). Throws
/// as open_shared_store() does.
[[nodiscard]] std::shared_ptr<SharedStore> open_to_measure(SharedStorage options);
/// Fills the memory with bytes that cannot be compressed.
void fill_to_measure(std::span<std::byte> memory);

/// The processor time of all threads of this process.
[[nodiscard]] double process_cpu_seconds();

}  // namespace terrace::tools
