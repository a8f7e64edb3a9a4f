#include "tests/simulated/simulated_shared_engine.hpp"

#include "base/check.hpp"
#include "storage/shared/shared_value.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace terrace {

void SimulatedSharedFaults::draw(Random& random) {
  const auto some = [&] { return random.chance(0.5) ? 0.0 : 0.01 * static_cast<double>(random.between(1, 20)); };
  late = some();
  silent = some();
  failing = some();
  full = some();
  lost = some();
  evicting = some();
  damaging = random.chance(0.5) ? 0.0 : 0.1 * static_cast<double>(random.between(1, 9));
}

SimulatedSharedEngine::SimulatedSharedEngine(std::uint64_t seed, const Clock& clock, std::uint32_t nodes,
                                             SimulatedSharedFaults faults)
    : clock_{clock}, random_{seed}, faults_{faults}, nodes_(nodes, NodeState::well) {
  TERRACE_CHECK(nodes > 0);
}

void SimulatedSharedEngine::set_node(std::uint32_t node, NodeState state, Data data) {
  nodes_[node] = state;
  if (data == Data::kept) return;
  // The name of a value does not say its node: the header has the key.
  std::erase_if(values_, [&](const auto& entry) {
    constexpr std::size_t at_key = 48;
    const Value& value = entry.second.value;
    std::uint64_t key = 0;
    if (value.size() >= shared_header_bytes) std::memcpy(&key, &value[at_key], sizeof key);
    return simulated_node_of(key, nodes()) == node;
  });
}

void SimulatedSharedEngine::set_all_nodes(NodeState state, Data data) {
  std::ranges::fill(nodes_, state);
  if (data == Data::lost) values_.clear();
}

void SimulatedSharedEngine::set(std::vector<std::pair<std::string, Value>> values, TimePoint expires) {
  for (auto& [name, value] : values) {
    Kept& kept = values_[name];
    kept.older = std::exchange(kept.value, std::move(value));
    kept.expires = expires;
  }
  while (values_.size() > values_max_) evict_one();
}

const SimulatedSharedEngine::Value* SimulatedSharedEngine::get(const std::string& name) {
  const auto found = values_.find(name);
  if (found == values_.end()) return nullptr;
  if (found->second.expires <= clock_.now()) {
    values_.erase(found);
    return nullptr;
  }
  return &found->second.value;
}

void SimulatedSharedEngine::renew(const std::string& name, TimePoint expires) {
  if (get(name) != nullptr) values_.at(name).expires = expires;
}

SimulatedSharedEngine::Values::iterator SimulatedSharedEngine::any_value() {
  return std::next(values_.begin(), static_cast<std::ptrdiff_t>(random_.below(values_.size())));
}

void SimulatedSharedEngine::evict_one() {
  if (!values_.empty()) values_.erase(any_value());
}

void SimulatedSharedEngine::damage(const std::vector<std::string>& names) {
  const auto found = values_.find(names[random_.below(names.size())]);
  if (found == values_.end()) return;
  Value& value = found->second.value;
  switch (random_.below(6)) {
    case 0: value[random_.below(value.size())] ^= static_cast<std::byte>(1U << random_.below(8)); break;
    case 1: value.resize(random_.chance(0.5) ? random_.below(value.size()) : value.size() + 1 + random_.below(100)); break;
    case 2: {
      const auto other = any_value();
      if (other != found) value = other->second.value;
      break;
    }
    case 3:
      if (!found->second.older.empty()) value = found->second.older;
      break;
    case 4: values_.erase(found); break;
    default: std::ranges::generate(value, [&] { return static_cast<std::byte>(random_.below(256)); });
  }
}

void SimulatedSharedEngine::change(const std::string& name, const std::function<void(Value&)>& how) {
  const auto found = values_.find(name);
  if (found == values_.end()) return;
  how(found->second.value);
  if (found->second.value.empty()) values_.erase(found);
}

std::vector<std::string> SimulatedSharedEngine::names() const {
  std::vector<std::string> all;
  for (const auto& [name, kept] : values_) all.push_back(name);
  return all;
}

}  // namespace terrace
