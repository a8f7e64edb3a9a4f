#pragma once

#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/shared_store.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
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
  std::uint64_t gets = 0;    ///< that the local store did not bring: reads + misses + gets_declined, when none is under way
  std::uint64_t reads = 0;   ///< that the shared store has brought
  std::uint64_t misses = 0;  ///< that it did not bring, for any reason
  std::uint64_t gets_declined = 0;  ///< that were not asked for there, because it cannot be used
  std::uint64_t puts = 0;           ///< when none is under way, the sum of the next five
  std::uint64_t writes = 0;         ///< that were written to it
  std::uint64_t present = 0;        ///< that it had already
  std::uint64_t unwritten = 0;      ///< that could not be written to it; nobody is told of that
  std::uint64_t cancelled = 0;      ///< that were removed or cleared before they were written
  std::uint64_t puts_declined = 0;  ///< that were not given to it, because it cannot be used
};

/// A local store in front of a shared one, as one BlockStore: what the local store does not have, or cannot read, is read from
/// the shared store into the same memory; what is written goes to both.
///
/// - contains() answers for the local store, at once. probe() asks both.
/// - A read fails as in the local store if the shared one does not bring the block either.
/// - A write ends as in the local store, after the shared store has ended with it, too: until then the memory is in use. Blocks
///   that the shared store has already are not sent again.
/// - remove() asks the shared store to remove the blocks, too; nothing tells whether it has.
/// - All else is done by the local store alone: parents, capacity, events, flushes.
/// - After leave_shared() the local store is alone until resume_shared().
///
/// Ownership: the stores and the clock outlive it. Nobody else calls the operations of these stores. Threads: as BlockStore.
class LayeredStore final : public BlockStore {
 public:
  LayeredStore(BlockStore& local, SharedStore& shared, const Clock& clock, const LayeredLimits& limits);

  /// Asks how many leading keys one of the stores has. It ends in one entry of take_probed(), not in an event.
  void probe(std::uint64_t token, std::span<const BlockKey> keys, TimePoint deadline);
  struct Probed {
    std::uint64_t token = 0;
    std::uint32_t leading = 0;
  };
  /// The probes that have ended since the last call; poll() is what ends them. Swaps the vectors, so that their memory is reused.
  void take_probed(std::vector<Probed>& probed) {
    probed.clear();
    probed.swap(probed_);
  }
  [[nodiscard]] bool has_probed() const { return !probed_.empty(); }
  /// All blocks are being cleared, so nobody knows any more what those of the shared store are for. It is left alone from now on,
  /// and what is under way there brings and finds nothing. (A write that it has begun may still end well, under the fingerprint
  /// of before.)
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
  [[nodiscard]] TimePoint next_deadline() const override;
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
    ErrorCode local;            ///< why the local store did not bring the block
    bool is_overtaken = false;  ///< the shared store was left meanwhile; so in the next ones
  };
  /// A write whose end was not told yet.
  struct Write {
    StoreWrite wanted;
    bool in_shared = true;    ///< the shared store, or a probe before it, has not ended
    bool is_removed = false;  ///< remove() has named its block meanwhile
  };
  /// The writes of one call. The shared store is asked first which of the leading ones it has.
  struct Writes {
    std::vector<std::uint64_t> tokens;
    TimePoint deadline = never;
    bool is_overtaken = false;
  };
  /// A probe of a caller.
  struct Asked {
    std::uint64_t token = 0;
    std::vector<BlockKey> keys;
    std::uint32_t local = 0;  ///< the leading keys that the local store had
    bool is_overtaken = false;
  };
  /// An operation of the shared store. Its token there is that of the entry; `of` names the entry in one of the tables.
  struct Shared {
    enum class Kind : std::uint8_t { read, write, writes, probe };
    Kind kind = Kind::read;
    std::uint64_t of = 0;
  };

  [[nodiscard]] bool shared_usable() const { return !left_ && shared_.usable(); }
  [[nodiscard]] std::uint64_t new_token(Shared::Kind kind, std::uint64_t of);
  void read_shared(std::uint64_t token);
  void on_local(StoreEvent& event, std::vector<StoreEvent>& out);
  void on_shared(const SharedEvent& event, std::vector<StoreEvent>& out);
  void on_read(const SharedEvent& event, std::uint64_t token, std::vector<StoreEvent>& out);
  void on_present(const SharedEvent& event, std::uint64_t number, std::vector<StoreEvent>& out);
  void on_probed(const SharedEvent& event, std::uint64_t number);
  void on_written(std::uint64_t token, std::vector<StoreEvent>& out);
  void end_shared_write(std::uint64_t token, std::vector<StoreEvent>& out);
  void release_held(const BlockKey& key, std::vector<StoreEvent>& out);
  void end_probe(std::uint64_t token, std::span<const BlockKey> keys, std::uint32_t leading);
  void renew(std::span<const BlockKey> keys);

  BlockStore& local_;
  SharedStore& shared_;
  const Clock& clock_;
  LayeredLimits limits_;
  LayeredStat layered_;
  bool left_ = false;
  std::uint64_t last_token_ = 0;
  Table<Shared> shared_operations_;
  Table<Read> reads_;    ///< by the caller's token
  Table<Write> writes_;  ///< by the caller's token
  Table<Writes> calls_;  ///< by their token in the shared store
  Table<Asked> asked_;   ///< the same
  std::vector<Probed> probed_;
  template <class Value>
  using KeyTable = boost::unordered_flat_map<BlockKey, Value, std::hash<BlockKey>>;
  /// Events of the local store that wait for the end of a write in the shared store, and those of the same block behind them.
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
