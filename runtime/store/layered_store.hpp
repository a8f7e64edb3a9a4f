#pragma once

#include "base/check.hpp"
#include "base/vector_pool.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/shared_store.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// How long a LayeredStore waits for the shared store.
struct LayeredLimits {
  Duration read = std::chrono::seconds{1};   ///< for one block
  Duration write = std::chrono::seconds{5};  ///< for the blocks of one call of write(), from that call on
  Duration renew = std::chrono::minutes{1};  ///< the shortest time between two renewals of one block
  bool writes = true;                        ///< if false, blocks are only read from the shared store
};

/// Counts of blocks since construction.
struct LayeredStat {
  /// Blocks that the local store did not have or could not read. If none is under way: reads + misses + gets_declined.
  std::uint64_t gets = 0;
  std::uint64_t reads = 0;          ///< that were read from the shared store
  std::uint64_t misses = 0;         ///< that could not be read from it, for any reason
  std::uint64_t gets_declined = 0;  ///< that it was not asked for, because it cannot be used
  std::uint64_t puts = 0;           ///< when none is under way, the sum of the next five
  std::uint64_t writes = 0;         ///< that were written to it
  std::uint64_t present = 0;        ///< that it had already
  std::uint64_t unwritten = 0;      ///< that could not be written to it; this is not reported
  std::uint64_t cancelled = 0;      ///< that were removed or cleared before they were written
  std::uint64_t puts_declined = 0;  ///< that were not given to it, because it cannot be used
};

/// A local store in front of a shared one, as one BlockStore. Blocks that the local store does not have, or cannot read, are read
/// from the shared store into the same memory. Blocks are written to both.
///
/// - contains() answers for the local store, at once. probe() asks both.
/// - If neither store can read the block, a read fails with the error of the local store.
/// - A write has the result of the local store. It ends when both stores have ended it, because the memory is in use until then.
///   Blocks that the shared store has already are not sent again.
/// - remove() asks the shared store to remove the blocks, too, but does not report whether it has.
/// - The local store alone handles parents, capacity, events and flushes.
/// - After leave_shared(), only the local store is used until resume_shared().
///
/// Ownership: the stores and the clock outlive it. No other object calls the operations of these stores. Threads: as BlockStore.
class LayeredStore final : public BlockStore {
 public:
  LayeredStore(BlockStore& local, SharedStore& shared, const Clock& clock, const LayeredLimits& limits)
      : local_{local}, shared_{shared}, clock_{clock}, limits_{limits} {}

  /// Asks for the number of leading keys that either store has. The result is one entry of take_probed(), not an event.
  void probe(std::uint64_t token, std::span<const BlockKey> keys, TimePoint deadline);
  struct Probed {
    std::uint64_t token = 0;
    std::uint32_t leading = 0;
  };
  /// The probes that have ended since the last call. Probes end in poll().
  void take_probed(std::vector<Probed>& probed) { take_all(probed_, probed); }
  [[nodiscard]] bool has_probed() const { return !probed_.empty(); }
  /// All blocks are being cleared, so it is not known any more which weights the blocks of the shared store are for. The shared
  /// store is not used from now on, and operations under way there count as misses. A write that it has begun may still succeed,
  /// under the former fingerprint.
  void leave_shared();
  /// The shared store is used again.
  void resume_shared() { left_ = false; }
  [[nodiscard]] bool shared_is_left() const { return left_; }
  [[nodiscard]] const LayeredStat& layered_stat() const { return layered_; }

  void read(std::span<const StoreRead> batch) override;
  void write(std::span<const StoreWrite> batch) override;
  void remove(std::span<const BlockKey> keys, std::uint64_t token) override;
  [[nodiscard]] bool contains(const BlockKey& key) const override { return local_.contains(key); }
  void touch(std::span<const BlockKey> keys) override;
  void flush(std::uint64_t token) override { local_.flush(token); }
  void adopt_all(const Adopt& adopt) override { local_.adopt_all(adopt); }
  [[nodiscard]] Result<void> resize(Blocks blocks) override { return local_.resize(blocks); }
  std::size_t poll(std::vector<StoreEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override;
  [[nodiscard]] TimePoint next_deadline() const override { return std::min(local_.next_deadline(), shared_.next_deadline()); }
  void set_waker(Waker* waker) override;
  [[nodiscard]] Bytes block_bytes() const override { return local_.block_bytes(); }
  [[nodiscard]] StoreStat stat() const override { return local_.stat(); }
  [[nodiscard]] StoreStat quick_stat() const override { return local_.quick_stat(); }
  void for_each(const std::function<void(const StoredBlock&)>& visit) const override { local_.for_each(visit); }
  void check_invariants() const override;

 private:
  template <class Value>
  using Table = boost::unordered_flat_map<std::uint64_t, Value>;

  /// A read that has not ended.
  struct Read {
    StoreRead wanted;
    ErrorCode local;          ///< the error of the local store
    std::uint64_t begun = 0;  ///< last_token_ at that time
  };
  /// A write whose end has not been reported yet.
  struct Write {
    StoreWrite wanted;
    bool in_shared = true;    ///< the shared store, or a probe before it, has not ended
    bool is_removed = false;  ///< remove() has named the block since
  };
  /// The writes of one call. The shared store is asked first which of the leading ones it has.
  struct Writes {
    std::vector<std::uint64_t> tokens;
    TimePoint deadline = never;
  };
  /// A probe of a caller.
  struct Asked {
    std::uint64_t token = 0;
    std::vector<BlockKey> keys;
    std::uint32_t local = 0;  ///< number of leading keys that the local store had
  };
  /// Removes the entry, which must exist, and returns its value.
  template <class Value>
  [[nodiscard]] static Value take(Table<Value>& table, std::uint64_t token) {
    const auto at = table.find(token);
    TERRACE_CHECK(at != table.end());
    Value value = std::move(at->second);
    table.erase(at);
    return value;
  }

  /// leave_shared() was called since this token was the last one.
  [[nodiscard]] bool is_overtaken(std::uint64_t token) const { return token < left_at_; }
  [[nodiscard]] bool shared_usable() const { return !left_ && shared_.usable(); }
  void read_shared(std::uint64_t token);
  void on_local(StoreEvent& event, std::vector<StoreEvent>& out);
  void on_shared(const SharedEvent& event, std::vector<StoreEvent>& out);
  void on_read(const SharedEvent& event, std::uint64_t token, std::vector<StoreEvent>& out);
  void on_present(const SharedEvent& event, std::vector<StoreEvent>& out);
  void on_probed(const SharedEvent& event);
  void end_shared_write(std::uint64_t token, std::vector<StoreEvent>& out);
  void end_probe(std::uint64_t token, std::span<const BlockKey> keys, std::uint32_t leading);
  void renew(std::span<const BlockKey> keys);

  BlockStore& local_;
  SharedStore& shared_;
  const Clock& clock_;
  LayeredLimits limits_;
  LayeredStat layered_;
  bool left_ = false;
  std::uint64_t last_token_ = 0;
  std::uint64_t left_at_ = 0;  ///< the token that marks the last call of leave_shared()
  Table<Read> reads_;          ///< by the caller's token
  Table<Write> writes_;        ///< by the caller's token
  Table<Writes> calls_;        ///< by the token of their probe in the shared store
  Table<Asked> asked_;         ///< the same
  /// The caller's tokens of the reads and writes that are under way in the shared store, by their token there.
  Table<std::uint64_t> read_tokens_;
  Table<std::uint64_t> write_tokens_;
  std::vector<Probed> probed_;
  template <class Value>
  using KeyTable = boost::unordered_flat_map<BlockKey, Value, std::hash<BlockKey>>;
  /// Events of the local store that wait for the end of a write in the shared store, and later events of the same block.
  KeyTable<std::vector<StoreEvent>> held_;
  KeyTable<TimePoint> renewed_;         ///< when a block was renewed the last time
  std::vector<StoreRead> local_reads_;  ///< scratch, like the next ones
  std::vector<SharedRead> shared_reads_;
  std::vector<SharedWrite> shared_writes_;
  std::vector<StoreEvent> local_events_;
  std::vector<SharedEvent> shared_events_;
  std::vector<BlockKey> keys_;
  std::vector<StoredBlock> blocks_;
};

}  // namespace terrace
