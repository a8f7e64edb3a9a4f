#include "tests/simulated/simulated_shared_engine.hpp"

#include "base/check.hpp"
#include "storage/io/little_endian.hpp"

#include <algorithm>
#include <span>

namespace terrace {
namespace {

// Places in the header of a value.
constexpr std::size_t at_fingerprint = 32;
constexpr std::size_t at_key = 48;
constexpr std::size_t at_header_checksum = 120;

}  // namespace

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
  const std::vector<std::string> names = values_->names();
  const std::vector<SharedMemoryEngine::Value> values = values_->get(names, clock_.now());
  // The name of a value does not say its node: the header has the key.
  for (std::size_t n = 0; n < names.size(); ++n) {
    const std::size_t size = values[n] == nullptr ? 0 : values[n]->size();
    const std::uint64_t key = size < shared_header_bytes ? 0 : load_le64(&(*values[n])[at_key]);
    if (simulated_node_of(key, nodes()) == node) values_->remove(names[n]);
  }
}

void SimulatedSharedEngine::set_all_nodes(NodeState state, Data data) {
  for (std::uint32_t node = 0; node < nodes(); ++node) set_node(node, state, data);
}

void SimulatedSharedEngine::evict_one() {
  if (const std::vector<std::string> names = values_->names(); !names.empty()) values_->remove(any_of(names));
}

void SimulatedSharedEngine::make_room() {
  if (values_max_ == ~std::size_t{0}) return;
  for (std::size_t values = values_->names().size(); values > values_max_; --values) evict_one();
}

void SimulatedSharedEngine::damage(const BlockKey& key) {
  std::vector<std::string> names = values_->names();
  std::erase_if(names, [&](const std::string& name) { return name.find(to_hex(key) + "}") == std::string::npos; });
  if (names.empty()) return;
  const std::string name = any_of(names);
  const SharedMemoryEngine::Value other = values_->get(std::vector{any_of(values_->names())}, clock_.now())[0];
  switch (random_.below(3)) {
    case 0: values_->remove(name); break;
    case 1:
      if (other != nullptr) values_->change(name, [&](Value& value) { value = *other; });
      break;
    default: values_->change(name, [&](Value& value) { damage(name, value); });
  }
}

void SimulatedSharedEngine::damage(const std::string& name, Value& value) {
  if (value.empty()) return;
  Value before = value;
  switch (random_.below(5)) {
    case 0: value[random_.below(value.size())] ^= static_cast<std::byte>(1U << random_.below(8)); break;
    case 1: value.resize(random_.chance(0.5) ? random_.below(value.size()) : value.size() + 1 + random_.below(100)); break;
    case 2:
      if (const auto earlier = earlier_.find(name); earlier != earlier_.end()) value = earlier->second;
      break;
    case 3:
      if (value.size() < shared_header_bytes) break;
      value[at_fingerprint] ^= std::byte{1};
      // In a value that is sealed, these bytes belong to the tag.
      store_le64(&value[at_header_checksum], plain_checksum(std::span{value}.first(at_header_checksum)));
      break;
    default: std::ranges::generate(value, [&] { return static_cast<std::byte>(random_.below(256)); });
  }
  earlier_[name] = std::move(before);
}

}  // namespace terrace
