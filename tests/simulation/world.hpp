#pragma once

#include "base/clock.hpp"
#include "base/random.hpp"
#include "runtime/cache/cache.hpp"
#include "storage/file/file_store.hpp"
#include "storage/memory/memory_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "tests/simulated/simulated_arena_worker.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tests/simulation/world_oracles.hpp"
#include "tests/transfer/engine/simulated_ranks.hpp"
#include "tools/policies/policies.hpp"
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

/// What a world may do to itself.
struct Faults {
  bool transfers_fail = false;
  bool streams_freeze = false;
  bool disk_fails = false;       ///< errors, short transfers, flipped bits, stalls
  bool blocks_rot = false;       ///< bits of blocks flip where they lie, in stores behind a guard
  bool directory_fails = false;  ///< of a striped store: all that is in it, for good
  bool clients_abort = true;
  bool leases_drop = false;  ///< without a word of their last use; of some, compute gives no point for what it has launched
};

struct WorldOptions {
  ManagerConfig manager;
  tools::PolicyKind policy = tools::PolicyKind::adaptive;  ///< names what manager.policy makes
  enum class Store : unsigned char { none, memory, file } store = Store::none;
  std::uint32_t stored_blocks = 16;
  std::uint32_t directories = 1;  ///< that a file store is striped over
  std::uint32_t layers = 1;       ///< of a block, in every pool
  bool resilient = false;         ///< the stores are behind a ResilientStore each
  Faults faults;
  bool poison = true;
  bool equal_prefixes = false;  ///< all keys agree in their first eight bytes
  bool slow_compute = false;    ///< copies overtake it wherever nothing holds them back
  Ranks::Options ranks;
};

/// Chosen by the seed: groups, sizes, relation, write policy, store, faults.
[[nodiscard]] WorldOptions random_options(std::uint64_t seed);
/// As there, but with a host tier that keeps most, blocks of several layers, and transfers that fail.
[[nodiscard]] WorldOptions layered_options(std::uint64_t seed);

/// The cache with everything around it on one thread: clients that acquire, compute, commit, extend and release, the devices
/// of one rank or several and a disk that move when the seed says so, time that passes when the seed says so. Every hit is
/// compared with the content its key stands for when compute reads it; every copy's invariants are checked after every step.
class World {
 public:
  World(std::uint64_t seed, const WorldOptions& options);
  ~World();

  /// One thing happens.
  void step();
  void check();
  /// No new requests; everything under way ends; faults are mended.
  void wind_down();
  /// Everything that is left, in one number.
  [[nodiscard]] std::uint64_t digest() const;

  struct Seen {
    std::uint64_t device = 0;
    std::uint64_t host = 0;
    std::uint64_t storage = 0;
    std::uint64_t miss = 0;
    std::uint64_t verified = 0;
    std::uint64_t failed = 0;  ///< pending requests that failed
    std::uint64_t no_room = 0;
    std::uint64_t never_fits = 0;
    std::uint64_t mismatches = 0;
    std::uint64_t clears = 0;
    std::uint64_t pins = 0;
    std::uint64_t drops = 0;
    std::uint64_t resizes = 0;
    std::uint64_t storage_grown = 0;
    std::uint64_t storage_shrunk = 0;
    std::uint64_t growth_stopped = 0;    ///< of a store
    std::uint64_t directories_lost = 0;  ///< the same
    std::uint64_t chunks_added = 0;      ///< while serving
    std::uint64_t chunks_removed = 0;
    std::uint64_t growths_failed = 0;
    std::uint64_t retained = 0;
    std::uint64_t jobs = 0;
    std::uint64_t kv_events = 0;
    std::array<std::uint64_t, write_back_outcome_count> job_blocks{};
    std::uint64_t quotas = 0;
    std::uint64_t grouped_hits = 0;  ///< blocks hit by requests of several groups
    std::uint64_t unserved = 0;      ///< optional groups that could not serve a hit
    std::uint64_t served = 0;        ///< optional groups that could, and did
    std::uint64_t given_up = 0;      ///< blocks that fell out of a window
    std::uint64_t layers_told = 0;   ///< times that a request was told of more layers
    std::uint64_t layers_seen = 0;   ///< layers of blocks that were looked at when told of
    std::uint64_t failed_late = 0;   ///< requests that failed after that
    std::uint64_t dropped = 0;       ///< leases that ended without a word of their last use
    std::uint64_t quarantined = 0;   ///< steps after which a request was quarantined
    std::uint64_t retried = 0;       ///< by the guards of the stores, as are the next two
    std::uint64_t breakers_opened = 0;
    std::uint64_t declined = 0;
    std::uint64_t durable = 0;  ///< blocks that a power failure at the end would leave, by the books
    std::uint64_t lost = 0;     ///< and those that it would not
    std::uint64_t corrupt = 0;  ///< reads that did not verify, of stores behind a guard
  };
  [[nodiscard]] const Seen& seen() const { return *seen_; }
  [[nodiscard]] const ManagerStats& stats() const { return cache_->manager().stats(); }
  [[nodiscard]] std::string describe() const;

 private:
  struct Client;
  class ChunkWatch;

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
  static constexpr std::uint32_t stored_blocks_max = 60;  ///< what a store may grow to
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
  void resize_storage(PoolId pool);
  void order_write_back();
  void check_jobs();
  void end_jobs();
  void resume_transfers();
  [[nodiscard]] std::vector<BlockKey> random_keys(std::vector<std::uint32_t>& names);
  [[nodiscard]] std::vector<BlockKey> keys_of(std::span<const std::uint32_t> names) const;
  void note(std::uint64_t value) { digest_ = (digest_ ^ value) * 0x9E37'79B9'7F4A'7C15ULL; }

  WorldOptions options_;
  Random random_;
  ManualClock clock_;
  NullWaker waker_;
  std::vector<GroupRule> rules_;                      ///< of the groups
  std::vector<std::unique_ptr<ChunkWatch>> watches_;  ///< by PoolId, as are the arenas and the stores
  std::vector<std::unique_ptr<HostArena>> arenas_;
  std::vector<SimulatedArenaWorker*> arena_workers_;  ///< the arenas'
  std::optional<Ranks> ranks_;
  std::vector<std::unique_ptr<SimulatedIo>> disks_;
  std::vector<std::unique_ptr<BlockStore>> bare_stores_;  ///< behind a guard
  std::vector<std::unique_ptr<BlockStore>> stores_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
  std::uint64_t next_id_ = 1;
  std::uint64_t digest_ = 0;
  bool winding_down_ = false;
  bool throws_before_marking_ = false;       ///< compute is launched, and nobody gets to know a point for it
  std::vector<GroupId> dropped_duplicates_;  ///< of clients that have dropped their leases, while any request is quarantined
  ManagerStats stats_before_;
  /// What the model's weights are: content depends on them. A clear that keeps storage changes the keys with them, as it must.
  std::uint64_t weights_ = 0;
  std::uint32_t generation_ = 0;
  std::vector<PinId> pins_;
  std::vector<RetentionId> retentions_;
  std::vector<WriteBackId> jobs_;
  /// What a job has told of its blocks so far.
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

/// What a block with this key holds, from byte `begin` on; keys differ between groups.
void fill_content(const BlockKey& key, std::uint64_t weights, std::size_t begin, std::span<std::byte> part);
[[nodiscard]] bool has_content(const BlockKey& key, std::uint64_t weights, std::size_t begin, std::span<const std::byte> part);

}  // namespace terrace::test
