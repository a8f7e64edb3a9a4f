#pragma once

#include "base/random.hpp"
#include "storage/resilience/circuit_breaker.hpp"
#include "storage/shared/kept_operation.hpp"
#include "storage/shared/memory_shared_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/shared_store.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// Faults between an engine and its users, and the latency of answers. Probabilities are of each operation.
struct SimulatedSharedFaults {
  Duration latency_min = std::chrono::microseconds{100};
  Duration latency_max = std::chrono::milliseconds{4};
  double late = 0;  ///< takes up to `late_max`
  Duration late_max = std::chrono::seconds{1};
  double silent = 0;    ///< is never answered; a write may be kept all the same
  double failing = 0;   ///< ends with io_failed; a write may be kept all the same
  double full = 0;      ///< a write ends with full
  double lost = 0;      ///< a write is confirmed, and not kept
  double evicting = 0;  ///< some value goes
  double damaging = 0;  ///< what is to be read is not what was written (SimulatedSharedEngine::damage)

  /// Sets each probability at random; half of them to 0.
  void draw(Random& random);
};

/// The engine of SimulatedSharedStore, as all its users see it: a SharedMemoryEngine whose values are on nodes that evict, lose,
/// damage, stop and die. One seed decides all. Time is that of the clock. Threads: one.
class SimulatedSharedEngine {
 public:
  using Value = std::vector<std::byte>;
  enum class NodeState : std::uint8_t {
    well,
    stalled,  ///< takes everything, and answers when it is well again
    dead,     ///< fails everything
  };
  enum class Data : std::uint8_t { kept, lost };

  SimulatedSharedEngine(std::uint64_t seed, const Clock& clock, std::uint32_t nodes = 1, SimulatedSharedFaults faults = {});

  void set_faults(const SimulatedSharedFaults& faults) { faults_ = faults; }
  [[nodiscard]] const SimulatedSharedFaults& faults() const { return faults_; }
  [[nodiscard]] std::uint32_t nodes() const { return static_cast<std::uint32_t>(nodes_.size()); }
  void set_node(std::uint32_t node, NodeState state, Data data = Data::kept);
  void set_all_nodes(NodeState state, Data data = Data::kept);
  [[nodiscard]] NodeState state(std::uint32_t node) const { return nodes_[node]; }
  /// If true, new values are refused.
  void set_full(bool full) { is_full_ = full; }
  [[nodiscard]] bool is_full() const { return is_full_; }
  /// The most values. The default is no limit.
  void set_values_max(std::size_t values) { values_max_ = values; }

  /// Makes one of the values of this block another one: a flipped bit, another length, the value of another name or of other
  /// weights, an earlier value of the same name, none, or any bytes. None of it verifies as the block that is wanted, except for
  /// the earlier value of a block that is one value.
  void damage(const BlockKey& key);
  void evict_one();
  /// Evicts random values until there are not too many.
  void make_room();

  [[nodiscard]] const std::shared_ptr<SharedMemoryEngine>& values() const { return values_; }
  [[nodiscard]] Random& random() { return random_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }

 private:
  /// Changes the value as somebody else who may write to the engine would.
  void damage(const std::string& name, Value& value);
  [[nodiscard]] std::string any_of(const std::vector<std::string>& names) { return names[random_.below(names.size())]; }

  const Clock& clock_;
  Random random_;
  SimulatedSharedFaults faults_;
  std::vector<NodeState> nodes_;
  bool is_full_ = false;
  std::size_t values_max_ = ~std::size_t{0};
  const std::shared_ptr<SharedMemoryEngine> values_ = std::make_shared<SharedMemoryEngine>(GiB);
  std::map<std::string, Value> earlier_;  ///< values before they were damaged
};

/// The node that has the values of a block, given the first eight bytes of its key.
[[nodiscard]] inline std::uint32_t simulated_node_of(std::uint64_t key, std::uint32_t nodes) {
  return static_cast<std::uint32_t>(key % nodes);
}

struct SimulatedSharedOptions {
  MemorySharedOptions memory{};
  BreakerOptions breaker{};  ///< one for each node
  /// When an operation without a deadline ends with io_failed if nobody answers.
  Duration give_up = std::chrono::seconds{5};
};

/// A shared store in virtual time, without threads: one user of a SimulatedSharedEngine. Each operation has a time at which it is
/// answered and a fault, drawn when it begins; poll() carries out what is due by the clock, with a MemorySharedStore. So
/// operations overtake each other.
///
/// The engine sees the bytes of a write when it ends. The memory of a read is overwritten at random until it ends. So a caller
/// that uses either too early is found by the content of blocks.
///
/// Ownership: the engine outlives its users. Threads: one.
class SimulatedSharedStore final : public SharedStore {
 public:
  explicit SimulatedSharedStore(SimulatedSharedEngine& engine, SimulatedSharedOptions options = {});

  void use(const Fingerprint& fingerprint) override { fingerprint_ = fingerprint; }
  void probe(const SharedProbe& probe) override;
  void read(std::span<const SharedRead> batch) override;
  void write(std::span<const SharedWrite> batch) override;
  void renew(std::span<const StoredBlock> blocks) override;
  void remove(std::span<const BlockKey> keys, GroupId group) override;
  void cancel(std::uint64_t token) override;
  std::size_t poll(std::vector<SharedEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override { return operations_.size() + ended_.size(); }
  [[nodiscard]] TimePoint next_deadline() const override;
  void set_waker(Waker* waker) override { waker_ = waker; }
  [[nodiscard]] bool usable() const override;
  [[nodiscard]] SharedHealth health() const override;
  [[nodiscard]] SharedStoreStat stat() const override;

 private:
  enum class Fault : std::uint8_t { none, silent, failing, full, lost };
  using Admission = CircuitBreaker::Admission;
  struct Operation {
    KeptOperation kept;
    TimePoint until = never;  ///< deadline, or when the store gives up
    TimePoint due = never;    ///< time of the answer
    Fault fault = Fault::none;
    std::vector<std::pair<std::uint32_t, Admission>> asked{};  ///< the nodes
  };

  void begin(KeptOperation kept);
  [[nodiscard]] std::uint32_t node_of(const BlockKey& key) const;
  [[nodiscard]] bool waits_for_node(const Operation& operation) const;
  [[nodiscard]] TimePoint ends_at(const Operation& operation) const;
  void answer(const Operation& operation);
  void give_up(const Operation& operation);
  void end(const Operation& operation, ErrorCode error, std::uint32_t leading = 0);
  [[nodiscard]] std::uint32_t known_leading(const Operation& operation);
  [[nodiscard]] std::uint32_t forget_some(const KeptProbe& probe, std::uint32_t leading);
  [[nodiscard]] ErrorCode keep(const Operation& operation);
  void keep_values(const KeptOperation& write);
  void plant_other_weights(const KeptOperation& read);
  void overwrite(std::span<std::byte> memory);

  SimulatedSharedEngine& engine_;
  MemorySharedStore memory_;
  const Duration give_up_;
  Waker* waker_ = nullptr;
  Fingerprint fingerprint_{};
  std::vector<CircuitBreaker> breakers_;  ///< by node
  std::vector<Operation> operations_;
  std::vector<SharedEvent> ended_;
  SharedStoreStat stat_;
};

}  // namespace terrace
