#pragma once

#include "base/random.hpp"
#include "runtime/cache/types/config.hpp"
#include "storage/file/file_store.hpp"
#include "storage/memory/memory_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/offload_cache.hpp"
#include "tests/simulated/simulated_arena_worker.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tests/simulated/simulated_shared_store.hpp"
#include "tests/simulation/world_oracles.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {

struct OffloadWorldOptions {
  KeyOrder order = KeyOrder::prefix;
  enum class Store : unsigned char { none, memory, file } store = Store::none;
  std::uint32_t host_blocks = 8;
  std::uint32_t staging_blocks = 2;
  std::uint32_t stored_blocks = 16;
  std::uint32_t layers = 1;
  WritePolicy write_policy = WritePolicy::none;
  bool resilient = false;
  bool transfers_fail = false;
  bool streams_freeze = false;
  bool disk_fails = false;
  bool crashes = false;
  bool shared = false;        ///< a shared store
  bool shared_fails = false;  ///< it does more than evict
  bool operators = true;      ///< clear, resize, write-back jobs
  /// The host tier holds everything, and nothing fails: what the cache has must be exactly what the model has.
  bool exact = false;
};

[[nodiscard]] OffloadWorldOptions random_offload_options(std::uint64_t seed);
/// The same, with a shared store.
[[nodiscard]] OffloadWorldOptions shared_offload_options(std::uint64_t seed);

/// An engine that owns the slots of a simulated device, an OffloadCache below it, a disk, time, and a model: a map from keys to
/// bytes. Everything happens on one thread, in the order that the seed says. After each step, all slots that no load writes must
/// have the bytes that the engine expects there.
class OffloadWorld {
 public:
  OffloadWorld(std::uint64_t seed, const OffloadWorldOptions& options);
  ~OffloadWorld();

  void step();
  void check();
  /// Repairs all faults and waits until every job has ended.
  void wind_down();
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

  struct Seen {
    std::uint64_t loaded = 0;        ///< blocks, each compared
    std::uint64_t loaded_alone = 0;  ///< of these, blocks that stand alone in a cache in prefix order
    std::uint64_t companions = 0;    ///< orders with OffloadOrder::beside
    std::uint64_t from_storage = 0;
    std::uint64_t from_shared = 0;
    std::uint64_t found_shared = 0;  ///< blocks that only the shared store had, by find()
    std::uint64_t looking = 0;       ///< answers of find() that the store has not answered yet
    std::uint64_t stored = 0;
    std::uint64_t failed = 0;
    std::uint64_t late = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t missed = 0;
    std::uint64_t full = 0;
    std::uint64_t orphans = 0;
    std::uint64_t in_memory = 0;  ///< blocks moved from and to memory
    std::uint64_t layers = 0;
    std::uint64_t unconfirmed = 0;  ///< steps with unconfirmed blocks
    std::uint64_t crashes = 0;
    std::uint64_t durable = 0;  ///< blocks that had to survive a crash, and did
    std::uint64_t hits_compared = 0;
    std::uint64_t joined = 0;
    std::uint64_t refused = 0;
    std::uint64_t storage_errors = 0;
    std::uint64_t awaited_loads = 0;
    std::uint64_t awaited_stores = 0;
    std::uint64_t not_ready = 0;   ///< answers of await()
    std::uint64_t brought = 0;     ///< blocks that a load has brought to the host tier, and no further
    std::uint64_t reserved = 0;    ///< host slots that the engine had to fill
    std::uint64_t given_back = 0;  ///< of these, slots that it has not filled
    std::uint64_t pinned_slots = 0;
  };
  [[nodiscard]] const Seen& seen() const { return seen_; }
  [[nodiscard]] SharedTotals shared_totals() const;

 private:
  static constexpr std::uint32_t block_bytes = 4096;
  static constexpr std::uint32_t device_slots = 16;
  using Name = std::vector<std::uint32_t>;
  /// Names of blocks that stand alone end with this number or a larger one.
  static constexpr std::uint32_t alone_from = 1000;

  struct Live {
    bool load = false;
    std::uint64_t clears = 0;  ///< before it
    std::vector<Name> names;   ///< by index of the key
    std::uint32_t first = 0;
    std::vector<SlotId> slots;
    std::vector<std::vector<std::byte>> memory;
    std::vector<bool> ended;
    std::uint32_t layers = 0;
    bool failed = false;
    ErrorCode error;         ///< of the first block that failed
    bool must_fail = false;  ///< await() has said that a block or a copy has failed
    /// By block: what work on the stream has seen behind await(), and whether the result was without an error.
    struct Seen {
      bool wrong = false;
      bool right_result = false;
    };
    std::shared_ptr<std::vector<Seen>> seen;
  };

  void make();
  void forget();
  void settle();
  [[nodiscard]] std::unique_ptr<BlockStore> make_store();
  [[nodiscard]] FileStoreConfig file_config() const;
  [[nodiscard]] BlockKey key_of(const Name& name) const;
  [[nodiscard]] std::vector<BlockKey> keys_of(const std::vector<Name>& names) const;
  [[nodiscard]] const std::vector<std::byte>& content(const Name& name);
  [[nodiscard]] std::vector<Name> random_names();
  [[nodiscard]] std::vector<Name> random_prefix(std::uint64_t count);
  [[nodiscard]] std::vector<BlockKey> random_owners(const std::vector<Name>& names);
  [[nodiscard]] static KeyOrder order_of(const std::vector<Name>& names) {
    return !names.empty() && names.front().back() >= alone_from ? KeyOrder::flat : KeyOrder::prefix;
  }
  void order(bool load);
  void poll();
  void on_block(const OffloadEvent& event, Live& job);
  void operate();
  void change_policy();
  void plant_fault();
  void disturb_shared();
  void configure_shared(SharedConfig& shared);
  void ask();
  OffloadFound find(const std::vector<Name>& names, std::uint32_t leading);
  void disk_step();
  void crash();
  void compare_hits();
  void await();
  void pin();
  void reserve();
  void publish(OffloadJobId id, bool filled);
  void check_host_slots();
  void look_behind(Live& job, std::uint32_t layers);
  void overwrite_behind(const Live& job);
  void note(std::uint64_t value) { digest_ = (digest_ ^ value) * 0x9E37'79B9'7F4A'7C15ULL; }

  OffloadWorldOptions options_;
  Random random_;
  ManualClock clock_;
  NullWaker waker_;
  std::unique_ptr<SimulatedIo> disk_;
  std::unique_ptr<BlockStore> bare_store_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<SimulatedSharedEngine> shared_engine_;
  std::unique_ptr<SimulatedSharedStore> shared_;
  SimulatedArenaWorker* arena_worker_ = nullptr;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<SimulatedDevice> device_;
  std::unique_ptr<TransferEngine> transfers_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<OffloadCache> offload_;

  std::map<Name, std::vector<std::byte>> contents_;  ///< the model
  std::set<Name> offered_;                           ///< blocks that a store has named since the last clear
  std::uint64_t clears_ = 0;
  std::set<Name> before_clear_;  ///< those of before, which are gone
  std::set<Name> there_;         ///< in an exact world: blocks that must be hits
  std::map<OffloadJobId, Live> live_;
  using HostCopies = std::vector<std::pair<SlotId, Name>>;
  std::map<OffloadJobId, HostCopies> pins_;          ///< slots that must keep the bytes of their blocks
  std::map<OffloadJobId, HostCopies> reservations_;  ///< slots that only the engine may write
  std::vector<std::vector<std::byte>> expected_;     ///< by slot
  std::vector<std::uint32_t> computing_;             ///< by slot: work of the engine that has not run
  std::vector<std::uint32_t> readers_;               ///< by slot: stores
  std::vector<bool> written_;                        ///< by slot: a load writes it
  std::shared_ptr<bool> life_ = std::make_shared<bool>(true);
  std::uint64_t next_id_ = 1;
  std::uint32_t generation_ = 0;  ///< a clear that keeps storage must change the keys, as new weights do
  EventMirror mirror_;
  std::vector<KvEvent> kv_events_;
  std::vector<Name> asked_;  ///< by find(), which has not answered
  std::vector<Name> found_;  ///< by find(), for the next load
  Seen seen_;
  SharedTotals shared_before_;  ///< of the processes before this one
  std::uint64_t digest_ = 0;
  bool winding_down_ = false;
};

}  // namespace terrace::test
