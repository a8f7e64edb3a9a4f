#pragma once

#include "base/slab.hpp"
#include "base/waker.hpp"
#include "storage/resilience/circuit_breaker.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace terrace {

/// A store with retries and circuit breakers in front of another store, for devices that fail for a while. It keeps the contract
/// of BlockStore.
///
/// - A read or write that fails with a transient error (class_of) is retried after a back-off. Its event comes when it has
///   succeeded, or, with the last error, when no retries are left. Its buffer stays in use until then. During the back-off of a
///   key, no operation on that key reaches the store: reads end with io_failed, and writes with refused. The last failure starts
///   a back-off, too.
/// - If a write waits for its retry, writes of blocks below it wait with it, in their order. They end when the store drops an
///   ancestor. A call of remove() ends all waiting writes, because a retry could bring back a block that was removed.
/// - One CircuitBreaker is for reads, and another one for writes, because a device may fail for only one of them. While the
///   breaker of the reads is open, reads end at once with not_found, although the block may be in the store. While the breaker of
///   the writes is open, writes end with refused. Operations that wait for their next try end with their last error. When the
///   time of a breaker's probe has come, the next operation of its kind is the probe.
/// - All other calls need no device and work as usual.
///
/// A write of a block that is already stored succeeds without I/O. It counts as a success in a row of failures. As a probe it
/// says nothing about the device, so the next write becomes the probe.
///
/// It records the back-offs of at most 256 keys (failing_max). If more keys fail, it drops the record whose back-off ends first.
/// Operations on that key then reach the store sooner, and its next back-off is a first one again. This does no harm: if this
/// many keys fail, the device has failed, and the breakers handle it.
///
/// The owner must also call poll() at next_deadline(). Threads: one. While nothing fails, it allocates memory only when more
/// operations are under way than ever before.
class ResilientStore final : public BlockStore {
 public:
  /// `store`, `clock` and `waker` must outlive this object, and no other code may call the operations of `store`. `waker` may be
  /// null; it is woken by calls that leave something to poll. Throws std::invalid_argument if an option has an impossible value.
  ResilientStore(BlockStore& store, const Clock& clock, const ResilienceOptions& options = {}, Waker* waker = nullptr);

  void read(std::span<const StoreRead> batch) override;
  void write(std::span<const StoreWrite> batch) override;
  void remove(std::span<const BlockKey> keys, std::uint64_t token) override;
  /// Returns the answer of the index. It may be true while the breaker is open, although a read then ends with not_found.
  [[nodiscard]] bool contains(const BlockKey& key) const override { return store_.contains(key); }
  void touch(std::span<const BlockKey> keys) override { store_.touch(keys); }
  /// Passes the call on in every state of the breakers, because blocks written before must still become durable. It is not
  /// retried.
  void flush(std::uint64_t token) override { store_.flush(token); }
  void adopt_all(const Adopt& adopt) override { store_.adopt_all(adopt); }
  [[nodiscard]] Result<void> resize(Blocks blocks) override { return store_.resize(blocks); }
  std::size_t poll(std::vector<StoreEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override { return store_.in_flight() + waiting_.size() + events_.size(); }
  [[nodiscard]] TimePoint next_deadline() const override;
  [[nodiscard]] Bytes block_bytes() const override { return store_.block_bytes(); }
  /// The stat() of the store. A write that waits for its retry has no slot, and is not counted in `writing`.
  [[nodiscard]] StoreStat stat() const override { return store_.stat(); }
  [[nodiscard]] StoreStat quick_stat() const override { return store_.quick_stat(); }
  void for_each(const std::function<void(const StoredBlock&)>& visit) const override { store_.for_each(visit); }
  void check_invariants() const override;

  /// The store is degraded while a breaker is not closed, and for an hour after a block failed its checksum.
  [[nodiscard]] StoreHealth health() const;
  [[nodiscard]] const CircuitBreaker& read_breaker() const { return breakers_[0]; }
  [[nodiscard]] const CircuitBreaker& write_breaker() const { return breakers_[1]; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  enum class Kind : unsigned char { read, write };
  struct Operation {
    Kind kind = Kind::read;
    CircuitBreaker::Admission admission = CircuitBreaker::Admission::passed;
    bool last_try = false;           ///< the operation is not retried again
    std::uint32_t tries = 0;         ///< number of failed tries
    std::uint32_t next = none;       ///< next write in the same bucket
    std::uint64_t token = 0;         ///< the owner's token
    std::uint64_t retries_seen = 0;  ///< the value of write_retries_ when the operation was submitted
    TimePoint due = never;           ///< time of the next try; never: the store has the operation
    TimePoint begun{};               ///< time of the last try
    /// error of the last try. The initial value is for an operation that was never submitted, because it waits for its parent
    ErrorCode error = Errc::parent_missing;
    StoredBlock block{};  ///< for a read, only its key is set
    std::span<std::byte> into{};
    std::span<const std::byte> from{};
  };
  /// Blocks that failed their checksum, with less than damage_recent between them.
  struct Damage {
    std::uint64_t blocks = 0;
    TimePoint last{};
  };
  static constexpr Duration damage_recent = std::chrono::hours{1};
  [[nodiscard]] static bool is_recent(const Damage& damage, TimePoint now) {
    return damage.blocks > 0 && now - damage.last < damage_recent;
  }

  /// A key that has failed. It is kept during its back-off, and for the same time after it.
  struct Failing {
    BlockKey key;
    TimePoint until;
    Duration wait;
  };

  [[nodiscard]] CircuitBreaker& breaker_of(Kind kind) { return breakers_[kind == Kind::write ? 1 : 0]; }
  [[nodiscard]] bool declines(Kind kind) const {
    return (kind == Kind::write ? write_breaker() : read_breaker()).state() != CircuitBreaker::State::closed;
  }
  [[nodiscard]] std::uint32_t add(const Operation& operation);
  [[nodiscard]] std::uint32_t& bucket_of(const BlockKey& key) { return buckets_[key.prefix64() & (buckets_.size() - 1)]; }
  void grow_buckets();
  [[nodiscard]] std::uint32_t find_write(const BlockKey& key, std::uint64_t token);
  [[nodiscard]] std::uint32_t waiting_write(const BlockKey& key) const;

  void on_event(const StoreEvent& event, TimePoint now, std::vector<StoreEvent>& out);
  void on_failure(std::uint32_t id, ErrorCode error, TimePoint now, std::vector<StoreEvent>& out);
  [[nodiscard]] bool goes_on_with_parent(std::uint32_t id);
  void end(std::uint32_t id, ErrorCode error, std::vector<StoreEvent>& out);
  void report_to_breaker(const Operation& operation, const StoreEvent& event, TimePoint now);
  void begin_wait(std::uint32_t id, TimePoint due);
  /// Ends the waiting writes of descendants of this block.
  void end_below(const BlockKey& key, std::vector<StoreEvent>& out);
  void retry_due(TimePoint now);
  void hand_over(std::uint32_t id);
  void submit();
  void end_waiting(Kind kind, std::vector<StoreEvent>& out);
  [[nodiscard]] TimePoint note_failure(const BlockKey& key, TimePoint now);
  [[nodiscard]] bool inside_back_off(const BlockKey& key, TimePoint now) const;
  void wake();

  static constexpr std::size_t failing_max = 256;

  BlockStore& store_;
  const Clock& clock_;
  ResilienceOptions options_;
  Waker* waker_;
  std::array<CircuitBreaker, 2> breakers_;  ///< [0] for reads, [1] for writes
  Slab<Operation> operations_;              ///< the token that the store gets for a read is its number here
  /// writes by key. The store gets the owner's token for a write, because later events of the block carry it
  std::vector<std::uint32_t> buckets_;
  std::vector<std::uint32_t> waiting_;  ///< operations that wait for a retry, parents before their children
  std::vector<Failing> failing_;
  std::uint64_t write_retries_ = 0;
  std::uint64_t probe_writes_ = 0;  ///< the store's count of writes when the probe was submitted
  Damage damage_;
  StoreHealth counted_;                   ///< only its totals are used
  std::vector<StoreEvent> events_;        ///< events of operations that did not reach the store
  std::vector<StoreEvent> store_events_;  ///< scratch, like the members below
  std::vector<StoreRead> reads_;
  std::vector<StoreWrite> writes_;
  std::vector<std::uint32_t> due_;
};

/// Decides when to log that stored blocks failed their checksum: at once, and then once a minute while there are more. Threads:
/// one.
class DamageNotice {
 public:
  /// `corrupt` is the number of such blocks since the start. Returns true if new ones must be logged now.
  [[nodiscard]] bool is_due(std::uint64_t corrupt, TimePoint now) const { return corrupt > logged_ && now >= next_; }
  /// Returns the sentence to log, and counts the blocks as logged. `now` is `never` for the last call.
  [[nodiscard]] std::string tell(std::uint64_t corrupt, TimePoint now);

 private:
  std::uint64_t logged_ = 0;
  TimePoint next_{};
};

}  // namespace terrace
