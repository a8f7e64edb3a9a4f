#pragma once

#include "base/random.hpp"
#include "lab/policies/policies.hpp"
#include "radix/groups/groups.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "storage/file/file_store.hpp"
#include "storage/memory/memory_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/cache.hpp"
#include "terrace/clock.hpp"
#include "tests/simulated/simulated_arena_worker.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tests/simulated/simulated_shared_store.hpp"
#include "tests/simulation/world_oracles.hpp"
#include "tests/transfer/engine/simulated_ranks.hpp"
#include "transfer/host/host_arena.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace terrace::test {

/// The faults of a world.
struct Faults {
  bool transfers_fail = false;
  bool link_dies = false;  ///< all copies of a rank in one direction fail, for a while
  bool streams_freeze = false;
  bool disk_fails = false;       ///< I/O errors, short transfers, flipped bits, stalls
  bool blocks_rot = false;       ///< bits of stored blocks flip, in stores behind a ResilientStore
  bool directory_fails = false;  ///< one directory of a striped store fails for good
  bool clients_abort = true;
  /// Leases end without used_until(). For some of them, no fence marks the compute that was launched.
  bool leases_drop = false;
};

struct WorldOptions {
  ManagerConfig manager;
  tools::PolicyKind policy = tools::PolicyKind::adaptive;  ///< the name of the policy that manager.policy makes
  enum class Store : unsigned char { none, memory, file } store = Store::none;
  std::uint32_t stored_blocks = 16;
  std::uint32_t directories = 1;  ///< over which a file store is striped
  std::uint32_t layers = 1;       ///< of a block, in every pool
  bool resilient = false;         ///< each store is behind a ResilientStore
  Faults faults;
  bool poison = true;
  bool equal_prefixes = false;  ///< all keys have the same first eight bytes
  bool slow_compute = false;    ///< copies overtake compute unless something holds them back
  std::uint32_t haste = 1;      ///< how much a device or a disk does when it is its turn
  double clears = 0.2;          ///< how often an operator who may clear does so
  double restarts = 0;          ///< in each step. Only what a file store has on its disk is kept
  Ranks::Options ranks;
};

/// Options chosen by the seed: groups, sizes, inclusion policy, write policy, store, faults.
[[nodiscard]] WorldOptions random_options(std::uint64_t seed);
/// The same, but with a host tier that keeps most blocks, blocks of several layers, and failing transfers.
[[nodiscard]] WorldOptions layered_options(std::uint64_t seed);
/// The same, but with several pools over small devices, and file stores for most of what was ever computed, which restarts find.
[[nodiscard]] WorldOptions stored_options(std::uint64_t seed);

/// The same, for one of several worlds with one shared store: the same model, which `model` chooses, and the same keys in all
/// worlds.
[[nodiscard]] WorldOptions shared_options(std::uint64_t seed, std::uint64_t model);

/// The clock and the shared engine of several worlds.
struct Neighbourhood {
  ManualClock& clock;
  SimulatedSharedEngine& engine;
};

/// A cache and everything around it, on one thread: clients that acquire, compute, commit, extend and release; the devices of one
/// or several ranks and a disk, which move when the seed says so; and time, which also passes when the seed says so. Whenever
/// compute reads a hit, it is compared with the content that belongs to its key. All invariants are checked after every step.
class World {
 public:
  /// `neighbourhood`: none for a world that stands alone, which has no shared store. It outlives the world.
  World(std::uint64_t seed, const WorldOptions& options, std::optional<Neighbourhood> neighbourhood = std::nullopt);
  ~World();

  /// Does one thing.
  void step();
  /// Lets everything under way end while no client does anything. No request waits after that, because no wait depends on what
  /// another request holds. Not for worlds with a shared store, whose engine moves outside of them.
  void drain();
  void check();
  /// Ends the world: no new requests, everything under way ends, faults are repaired.
  void wind_down();
  /// A number that summarises the final state.
  [[nodiscard]] std::uint64_t digest() const;

  struct Seen {
    SourceCounts found{};
    std::uint64_t miss = 0;
    std::uint64_t verified = 0;
    std::uint64_t failed = 0;  ///< pending requests that failed
    std::uint64_t no_room = 0;
    std::uint64_t never_fits = 0;
    std::uint64_t mismatches = 0;
    std::uint64_t clears = 0;
    std::uint64_t restarts = 0;
    std::uint64_t pins = 0;
    std::uint64_t drops = 0;
    std::uint64_t resizes = 0;
    std::uint64_t storage_grown = 0;
    std::uint64_t storage_shrunk = 0;
    std::uint64_t growth_stopped = 0;    ///< of a store
    std::uint64_t directories_lost = 0;  ///< of a store
    std::uint64_t chunks_added = 0;      ///< while the cache was serving
    std::uint64_t chunks_removed = 0;
    std::uint64_t growths_failed = 0;
    std::uint64_t retained = 0;
    std::uint64_t jobs = 0;
    std::uint64_t kv_events = 0;
    std::array<std::uint64_t, write_back_outcome_count> job_blocks{};
    std::uint64_t quotas = 0;
    std::uint64_t settings = 0;
    std::uint64_t grouped_hits = 0;  ///< blocks hit by requests of several groups
    std::uint64_t unserved = 0;      ///< optional groups that could not serve a hit
    std::uint64_t served = 0;        ///< optional groups that could, and did
    std::uint64_t given_up = 0;      ///< blocks that left the window of a group
    std::uint64_t layers_told = 0;   ///< how often a request was told of more layers
    std::uint64_t layers_seen = 0;   ///< layers of blocks that were checked after the request was told of them
    std::uint64_t failed_late = 0;   ///< requests that failed after that
    std::uint64_t drained = 0;       ///< requests that waited when a drain began
    std::uint64_t dropped = 0;       ///< leases that ended without used_until()
    std::uint64_t quarantined = 0;   ///< steps after which a request was quarantined
    std::uint64_t retried = 0;       ///< this and the next two: counts of the resilient stores
    std::uint64_t breakers_opened = 0;
    std::uint64_t links_stopped = 0;
    std::uint64_t declined = 0;
    std::uint64_t durable = 0;  ///< blocks that would survive a power failure at the end, by the cache's own count
    std::uint64_t lost = 0;     ///< blocks that would not
    std::uint64_t corrupt = 0;  ///< reads that did not verify, in stores behind a ResilientStore
  };
  [[nodiscard]] const Seen& seen() const { return *seen_; }
  [[nodiscard]] std::size_t group_count() const { return rules_.size(); }
  [[nodiscard]] const ManagerStats& stats() const { return cache_->manager().stats(); }
  [[nodiscard]] const SharedTotals& shared_totals() const { return cache_->manager().shared_totals(); }
  [[nodiscard]] const PrefetchTotals& prefetch_totals() const { return cache_->manager().prefetch_totals(); }
  [[nodiscard]] std::string describe() const;

 private:
  struct Client;
  class ChunkWatch;

  /// Makes everything from the disk up.
  void begin();
  /// The process ends in order, and another begins over the files.
  void restart();
  /// A resize of storage, or a clear, removes blocks, and nothing waits for the events of that.
  [[nodiscard]] bool storage_moves() const;
  void start_request();
  void poll();
  void act(std::size_t which);
  void told_of_layers(Client& client, std::uint32_t layers);
  void check_serves(const Client& client);
  void forget(std::size_t which);
  void drop_lease(std::size_t which);
  void launch(Client& client, RankWork work);
  void check_counters();
  [[nodiscard]] FileStoreConfig file_config(std::size_t pool) const;
  static constexpr std::uint32_t stored_blocks_max = 60;  ///< the largest size of a store
  [[nodiscard]] std::unique_ptr<BlockStore> make_store(std::size_t pool);
  void check_durable();
  [[nodiscard]] std::unique_ptr<BlockStore> make_resilient(std::unique_ptr<BlockStore> store);
  void rot();
  void see_resilient_stores();
  void compute(Client& client);
  void disk_step();
  void arena_step();
  void make_arena(std::size_t pool);
  void plant_fault();
  void operate();
  void change_settings();
  void resize_storage(PoolId pool);
  void order_write_back();
  void prefetch();
  void check_jobs();
  void end_jobs();
  void resume_transfers();
  void resume_shared();
  [[nodiscard]] SharedStore::Fingerprint fingerprint_of_weights() const;
  [[nodiscard]] std::vector<BlockKey> random_keys(std::vector<std::uint32_t>& names);
  [[nodiscard]] std::vector<BlockKey> keys_of(std::span<const std::uint32_t> names) const;
  void note(std::uint64_t value) { digest_ = (digest_ ^ value) * 0x9E37'79B9'7F4A'7C15ULL; }

  WorldOptions options_;
  Random random_;
  ManualClock own_clock_;
  ManualClock& clock_;
  SimulatedSharedEngine* shared_engine_;  ///< may be null
  NullWaker waker_;
  std::vector<GroupRule> rules_;                      ///< by GroupId
  std::vector<std::unique_ptr<ChunkWatch>> watches_;  ///< by PoolId, like the arenas and the stores
  std::vector<std::unique_ptr<HostArena>> arenas_;
  std::vector<SimulatedArenaWorker*> arena_workers_;  ///< of the arenas
  std::optional<Ranks> ranks_;
  std::vector<std::unique_ptr<SimulatedIo>> disks_;
  std::vector<std::unique_ptr<BlockStore>> bare_stores_;  ///< behind a ResilientStore
  std::vector<std::unique_ptr<BlockStore>> stores_;
  std::optional<SimulatedSharedStore> shared_store_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
  std::uint64_t next_id_ = 1;
  std::uint64_t digest_ = 0;
  bool winding_down_ = false;
  bool throws_before_marking_ = false;  ///< compute is launched, but an exception comes before its fence
  ManagerStats stats_before_;
  /// The weights of the model, on which content depends. A clear that keeps storage must also change the keys.
  std::uint64_t weights_ = 0;
  std::uint32_t generation_ = 0;
  std::vector<PinId> pins_;
  std::vector<RetentionId> retentions_;
  std::vector<WriteBackId> jobs_;
  std::vector<PrefetchId> prefetches_;
  /// Blocks that a job has reported so far.
  struct Told {
    std::array<std::uint64_t, write_back_outcome_count> blocks{};
    std::set<BlockKey> keys;
  };
  std::map<WriteBackId, Told> told_;
  EventMirror mirror_;
  std::vector<KvEvent> kv_events_;  ///< scratch
  std::uint64_t checks_ = 0;
  bool paused_ = false;
};

/// The content of a block with this key, from byte `begin` on. Keys differ between groups.
void fill_content(const BlockKey& key, std::uint64_t weights, std::size_t begin, std::span<std::byte> part);
[[nodiscard]] bool has_content(const BlockKey& key, std::uint64_t weights, std::size_t begin, std::span<const std::byte> part);

}  // namespace terrace::test
