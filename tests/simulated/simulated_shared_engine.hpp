#pragma once

#include "base/random.hpp"
#include "storage/shared/memory_shared_store.hpp"
#include "terrace/clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
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

}  // namespace terrace
