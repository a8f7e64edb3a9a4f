#pragma once

#include "base/random.hpp"
#include "terrace/clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
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

/// The engine of SimulatedSharedStore, as all its users see it: nodes that keep values by name, evict, lose, damage, stop and
/// die. One seed decides all. It knows nothing of blocks, and sees only what users send. Time is that of the clock. Threads: one.
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
  /// The most values; beyond it a random one goes for each new one. The default is no limit.
  void set_values_max(std::size_t values) { values_max_ = values; }

  // For SimulatedSharedStore, at the node that is well.
  void set(std::vector<std::pair<std::string, Value>> values, TimePoint expires);
  /// Null if there is none. Valid until the next call that changes something.
  [[nodiscard]] const Value* get(const std::string& name);
  void renew(const std::string& name, TimePoint expires);
  void remove(const std::string& name) { values_.erase(name); }
  [[nodiscard]] Random& random() { return random_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }

  /// Makes one of these values another one: a flipped bit, another length, the value of another name, an older value of the same
  /// name, none, or any bytes. (That of another fingerprint is planted by a store.) None of it verifies as the block that is
  /// wanted, except for the older value of a block that is one value.
  void damage(const std::vector<std::string>& names);
  /// Changes a value as somebody else who may write to the engine would. An empty one is removed.
  void change(const std::string& name, const std::function<void(Value& value)>& how);
  void evict_one();
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  struct Kept {
    Value value{};
    Value older{};  ///< that it has replaced
    TimePoint expires = never;
  };
  using Values = std::map<std::string, Kept>;

  [[nodiscard]] Values::iterator any_value();

  const Clock& clock_;
  Random random_;
  SimulatedSharedFaults faults_;
  std::vector<NodeState> nodes_;
  bool is_full_ = false;
  std::size_t values_max_ = ~std::size_t{0};
  Values values_;
};

/// The node that has the values of a block, given the first eight bytes of its key.
[[nodiscard]] inline std::uint32_t simulated_node_of(std::uint64_t key, std::uint32_t nodes) {
  return static_cast<std::uint32_t>(key % nodes);
}

}  // namespace terrace
