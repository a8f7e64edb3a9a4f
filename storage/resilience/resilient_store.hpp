#pragma once

#include "base/clock.hpp"
#include "base/waker.hpp"
#include "storage/index/block_store.hpp"
#include "storage/resilience/circuit_breaker.hpp"
#include "storage/resilience/error_class.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace terrace {

struct ResilienceOptions {
  /// How often an operation that failed with a transient error is tried again. A FileStore gives a block up at the second
  /// failed read in a row, and loses the use of a slot at each failed write: more than one seldom helps.
  std::uint32_t read_retries = 1;
  std::uint32_t write_retries = 1;
  /// From a failure to the next try of the same key; doubled by each failure of that key.
  Duration back_off_first = std::chrono::milliseconds{20};
  Duration back_off_max = std::chrono::seconds{2};
  /// Operations that may wait for their next try at a time. What fails beyond that is not tried again.
  std::uint32_t waiting_max = 64;
  BreakerOptions breaker;
};

enum class StoreState : unsigned char {
  well,      ///< in use
  degraded,  ///< not used after failures, and being probed; or a part of it is lost, or its files are not what a restart will
             ///< find (both: CacheSystem::storage_health)
  down,      ///< the same, and two probes in a row or more have failed
};
[[nodiscard]] const char* to_string(StoreState state) noexcept;

struct StoreHealth {
  StoreState state = StoreState::well;
  std::string reason;                                             ///< one sentence for people
  CircuitBreaker::State breaker = CircuitBreaker::State::closed;  ///< the one of reads or of writes that does worse
  TimePoint next_probe = never;                                   ///< of either; never where both are closed
  std::uint64_t opened = 0;     ///< times that either breaker opened since construction, as are the rest
  std::uint64_t retried = 0;    ///< operations handed to the store once more after a failure
  std::uint64_t recovered = 0;  ///< operations that succeeded after one
  std::uint64_t declined = 0;   ///< reads and writes not handed to the store because their breaker was open
  std::uint64_t held_back = 0;  ///< the same because their key was inside its back-off
  std::array<std::uint64_t, error_class_count> failed{};  ///< by ErrorClass: tries of reads and writes that the store failed
  std::uint32_t waiting = 0;                              ///< for their next try, now
  std::vector<std::filesystem::path> lost_directories{};  ///< of a striped store; ResilientStore itself knows of none
};

/// A store whose device may fail for a while. Keeps the contract of BlockStore, over any store that does:
///
/// - A read or write that fails with a transient error (class_of) is tried again after a back-off; its event comes when it has
///   succeeded or its tries are used up, with the last error. Its buffer stays the operation's until then. No key is handed
///   to the store inside its back-off, which goes on after the last try: reads of it end with io_failed, writes with refused.
/// - Writes that build on one that waits for its next try wait with it, in their order. They end when the store gives up what
///   they build on, and all of them with remove(): a later try could bring back what was to go.
/// - One CircuitBreaker watches the reads, and another one the writes, because a device may fail at only one of them. While the
///   breaker of the reads is open, reads end at once with not_found, although the block may be in the store. While the breaker
///   of the writes is open, writes end with refused. Operations that waited for their next try end with their last error. When a
///   breaker's time has come, the next operation of its kind is its probe.
/// - Everything else needs no device, and goes on as usual.
///
/// A write that finds its block stored already succeeds without I/O. As a probe it tells nothing, and the next operation is
/// the probe; in a row of failures it counts as a success all the same.
///
/// It remembers the back-offs of 256 keys (failing_max). Where more fail within theirs, the one whose back-off ends first is
/// forgotten: that key is handed to the store sooner, and its next back-off is the first again. So many keys failing at a time
/// are the device's failure, and the breaker's affair.
///
/// The owner polls at next_deadline() too. Threads: one. Allocates nothing while nothing fails, once as many operations
/// were under way before.
class ResilientStore final : public BlockStore {
 public:
  /// All references outlive it, and nobody else calls the store's operations. `waker`, where given, is woken by calls
  /// that leave something to poll. Throws std::invalid_argument where an option makes no sense.
  ResilientStore(BlockStore& store, const Clock& clock, const ResilienceOptions& options = {}, Waker* waker = nullptr);

  void read(std::span<const StoreRead> batch) override;
  void write(std::span<const StoreWrite> batch) override;
  void remove(std::span<const BlockKey> keys, std::uint64_t token) override;
  /// Also while the breaker is open, though a read ends with not_found then.
  [[nodiscard]] bool contains(const BlockKey& key) const override { return store_.contains(key); }
  void touch(std::span<const BlockKey> keys) override { store_.touch(keys); }
  /// Handed on whatever the breaker says, and not tried again: what had been written is to be made durable all the same.
  void flush(std::uint64_t token) override { store_.flush(token); }
  void adopt_all(const Adopt& adopt) override { store_.adopt_all(adopt); }
  [[nodiscard]] Result<void> resize(std::uint32_t blocks) override { return store_.resize(blocks); }
  std::size_t poll(std::vector<StoreEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override;
  [[nodiscard]] TimePoint next_deadline() const override;
  [[nodiscard]] Bytes block_bytes() const override { return store_.block_bytes(); }
  /// The store's. A write that waits for its next try has no slot, and is not in `writing`.
  [[nodiscard]] StoreStat stat() const override { return store_.stat(); }
  void for_each(const std::function<void(const StoredBlock&)>& visit) const override { store_.for_each(visit); }
  void check_invariants() const override;

  [[nodiscard]] StoreHealth health() const;
  [[nodiscard]] const CircuitBreaker& read_breaker() const { return breakers_[0]; }
  [[nodiscard]] const CircuitBreaker& write_breaker() const { return breakers_[1]; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  enum class Kind : unsigned char { unused, read, write };
  struct Operation {
    Kind kind = Kind::unused;
    CircuitBreaker::Admission admission = CircuitBreaker::Admission::passed;
    bool waiting = false;
    bool last_try = false;                   ///< it is not handed over again
    std::uint32_t tries = 0;                 ///< that have failed
    std::uint32_t next = none;               ///< in its bucket; of writes
    std::uint64_t token = 0;                 ///< the owner's
    std::uint64_t retries_seen = 0;          ///< write_retries_ when it was handed over
    TimePoint due = never;                   ///< of the next try
    ErrorCode error = Errc::parent_missing;  ///< of the last try; of one that was never handed over, what it waits for
    StoredBlock block;                       ///< of a read only the key
    std::span<std::byte> into;
    std::span<const std::byte> from;
  };
  /// A key that failed, inside its back-off or a little after.
  struct Failing {
    BlockKey key;
    TimePoint until;
    Duration wait;
  };

  enum class Which : bool { reads, writes };
  [[nodiscard]] static Which which(Kind kind) { return kind == Kind::write ? Which::writes : Which::reads; }
  [[nodiscard]] CircuitBreaker& breaker_of(Which which) { return breakers_[static_cast<std::size_t>(which)]; }
  [[nodiscard]] bool declines(Which which) const {
    return breakers_[static_cast<std::size_t>(which)].state() != CircuitBreaker::State::closed;
  }
  [[nodiscard]] std::uint32_t add(const Operation& operation);
  void drop(std::uint32_t id);
  [[nodiscard]] std::uint32_t& bucket_of(const BlockKey& key) { return buckets_[key.prefix64() & (buckets_.size() - 1)]; }
  void grow_buckets();
  [[nodiscard]] std::uint32_t find_write(const BlockKey& key, std::uint64_t token);
  [[nodiscard]] std::uint32_t waiting_write(const BlockKey& key) const;

  void on_event(const StoreEvent& event, TimePoint now, std::vector<StoreEvent>& out);
  void on_failure(std::uint32_t id, ErrorCode error, TimePoint now, std::vector<StoreEvent>& out);
  /// Of a write whose parent was not there. True where it is not over.
  [[nodiscard]] bool goes_on_with_parent(std::uint32_t id);
  void end(std::uint32_t id, ErrorCode error, std::vector<StoreEvent>& out);
  void tell_breaker(const Operation& operation, const StoreEvent& event, TimePoint now);
  void begin_wait(std::uint32_t id, TimePoint due);
  /// Ends the waiting writes that build on this block.
  void end_below(const BlockKey& key, std::vector<StoreEvent>& out);
  void retry_due(TimePoint now);
  void hand_over(std::uint32_t id);
  void submit();
  void end_waiting(Which which, std::vector<StoreEvent>& out);
  [[nodiscard]] TimePoint note_failure(const BlockKey& key, TimePoint now);
  [[nodiscard]] bool inside_back_off(const BlockKey& key, TimePoint now) const;
  void forget_failures(TimePoint now);
  void answer(StoreEvent::Kind kind, std::uint64_t token, const BlockKey& key, ErrorCode error);
  void wake();

  static constexpr std::size_t failing_max = 256;

  BlockStore& store_;
  const Clock& clock_;
  ResilienceOptions options_;
  Waker* waker_;
  std::array<CircuitBreaker, 2> breakers_;  ///< of reads, of writes
  std::vector<Operation> operations_;       ///< reads are handed on under their place here
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> buckets_;  ///< writes by key: their events carry the owner's token, as later ones of the block do
  std::vector<std::uint32_t> waiting_;  ///< for their next try, parents before those that build on them
  std::vector<Failing> failing_;
  std::uint64_t write_retries_ = 0;
  std::uint64_t probe_writes_ = 0;        ///< the store's count of writes when the probe was handed over
  StoreHealth counted_;                   ///< only its totals
  std::vector<StoreEvent> events_;        ///< of what was not handed on
  std::vector<StoreEvent> store_events_;  ///< scratch, as are the rest
  std::vector<StoreRead> reads_;
  std::vector<StoreWrite> writes_;
  std::vector<std::uint32_t> due_;
};

}  // namespace terrace
