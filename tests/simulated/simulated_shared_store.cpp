#include "tests/simulated/simulated_shared_store.hpp"

#include "base/check.hpp"
#include "storage/io/little_endian.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>

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

// ---- a user --------------------------------------------------------------------------------------------------------------

using Kind = SharedEvent::Kind;
using NodeState = SimulatedSharedEngine::NodeState;

SimulatedSharedStore::SimulatedSharedStore(SimulatedSharedEngine& engine, SimulatedSharedOptions options)
    : engine_{engine},
      memory_{engine.values(), engine.clock(), std::move(options.memory)},
      give_up_{options.give_up},
      breakers_(engine.nodes(), CircuitBreaker{options.breaker}) {}

std::uint32_t SimulatedSharedStore::node_of(const BlockKey& key) const {
  return simulated_node_of(key.prefix64(), engine_.nodes());
}

// ---- calls -------------------------------------------------------------------------------------------------------------

void SimulatedSharedStore::probe(const SharedProbe& probe) { begin(KeptOperation::of(probe, fingerprint_)); }

void SimulatedSharedStore::read(std::span<const SharedRead> batch) {
  for (const SharedRead& read : batch) begin(KeptOperation::of(read, fingerprint_));
}

void SimulatedSharedStore::write(std::span<const SharedWrite> batch) {
  for (const SharedWrite& write : batch) begin(KeptOperation::of(write, fingerprint_));
}

void SimulatedSharedStore::begin(KeptOperation kept) {
  const TimePoint now = engine_.clock().now();
  Operation operation{std::move(kept)};
  operation.until = operation.kept.deadline != never ? operation.kept.deadline : now + give_up_;

  // Each node that has one of the keys is asked once.
  std::vector<std::uint32_t> nodes;
  const auto ask = [&](const BlockKey& key) {
    if (std::ranges::find(nodes, node_of(key)) == nodes.end()) nodes.push_back(node_of(key));
  };
  if (operation.kept.kind == Kind::probed) std::ranges::for_each(operation.kept.probe.keys, ask);
  else ask(operation.kept.block.key);
  for (const std::uint32_t node : nodes) {
    const Admission admission = breakers_[node].admit(now);
    if (admission != Admission::declined) operation.asked.emplace_back(node, admission);
  }
  if (operation.asked.empty() && !nodes.empty()) {
    end(operation, Errc::refused);
    if (waker_ != nullptr) waker_->wake();
    return;
  }

  Random& random = engine_.random();
  const SimulatedSharedFaults& faults = engine_.faults();
  const auto some_time = [&](Duration low, Duration high) {
    return Duration{static_cast<Duration::rep>(
        random.between(static_cast<std::uint64_t>(low.count()), static_cast<std::uint64_t>(std::max(low, high).count())))};
  };
  const Duration high = random.chance(faults.late) ? faults.late_max : faults.latency_max;
  operation.due = now + some_time(faults.latency_min, high);
  const bool is_write = operation.kept.kind == Kind::written;
  if (random.chance(faults.silent)) operation.fault = Fault::silent;
  else if (random.chance(faults.failing)) operation.fault = Fault::failing;
  else if (is_write && random.chance(faults.full)) operation.fault = Fault::full;
  else if (is_write && random.chance(faults.lost)) operation.fault = Fault::lost;
  if (operation.fault == Fault::silent) operation.due = never;
  if (random.chance(faults.evicting)) engine_.evict_one();
  operations_.push_back(std::move(operation));
}

void SimulatedSharedStore::renew(std::span<const StoredBlock> blocks) {
  memory_.use(fingerprint_);
  stat_.renewed += blocks.size();
  for (const StoredBlock& block : blocks) {
    if (engine_.state(node_of(block.key)) == NodeState::well) memory_.renew({&block, 1});
  }
}

void SimulatedSharedStore::remove(std::span<const BlockKey> keys, GroupId group) {
  memory_.use(fingerprint_);
  stat_.removed += keys.size();
  for (const BlockKey& key : keys) {
    if (engine_.state(node_of(key)) == NodeState::well) memory_.remove({&key, 1}, group);
  }
}

void SimulatedSharedStore::cancel(std::uint64_t token) {
  const auto found = std::ranges::find(operations_, token, [](const Operation& each) { return each.kept.token; });
  if (found == operations_.end()) return;
  const Operation operation = std::move(*found);
  operations_.erase(found);
  end(operation, Errc::cancelled);
  if (waker_ != nullptr) waker_->wake();
}

// ---- time --------------------------------------------------------------------------------------------------------------

/// True while the answer needs a node that is stopped.
bool SimulatedSharedStore::waits_for_node(const Operation& operation) const {
  return std::ranges::any_of(operation.asked,
                             [&](const auto& asked) { return engine_.state(asked.first) == NodeState::stalled; });
}

TimePoint SimulatedSharedStore::ends_at(const Operation& operation) const {
  return waits_for_node(operation) ? operation.until : std::min(operation.due, operation.until);
}

TimePoint SimulatedSharedStore::next_deadline() const {
  TimePoint next = ended_.empty() ? never : engine_.clock().now();
  for (const Operation& operation : operations_) next = std::min(next, ends_at(operation));
  return next;
}

std::size_t SimulatedSharedStore::poll(std::vector<SharedEvent>& out) {
  const TimePoint now = engine_.clock().now();
  const auto still_going =
      std::stable_partition(operations_.begin(), operations_.end(), [&](const auto& each) { return ends_at(each) > now; });
  std::vector<Operation> ending{std::move_iterator{still_going}, std::move_iterator{operations_.end()}};
  operations_.erase(still_going, operations_.end());
  std::ranges::stable_sort(ending, {}, [&](const Operation& each) { return ends_at(each); });
  for (const Operation& operation : ending) {
    if (!waits_for_node(operation) && operation.due <= operation.until) answer(operation);
    else give_up(operation);
  }
  for (const Operation& operation : operations_) {
    if (operation.kept.kind == Kind::read && engine_.random().chance(0.1)) overwrite(operation.kept.into);
  }
  const std::size_t arrived = ended_.size();
  out.insert(out.end(), ended_.begin(), ended_.end());
  ended_.clear();
  return arrived;
}

// ---- ends --------------------------------------------------------------------------------------------------------------

void SimulatedSharedStore::answer(const Operation& operation) {
  const bool some_dead =
      std::ranges::any_of(operation.asked, [&](const auto& asked) { return engine_.state(asked.first) == NodeState::dead; });
  const bool fails = some_dead || operation.fault == Fault::failing;
  if (operation.kept.kind == Kind::probed) {
    std::uint32_t leading = known_leading(operation);
    if (operation.fault == Fault::failing) leading = forget_some(operation.kept.probe, leading);
    return end(operation, fails ? make_error_code(Errc::io_failed) : ErrorCode{}, leading);
  }
  if (some_dead) return end(operation, Errc::io_failed);
  if (operation.kept.kind == Kind::written) return end(operation, keep(operation));
  if (fails) return end(operation, Errc::io_failed);
  if (engine_.random().chance(engine_.faults().damaging)) {
    if (engine_.random().chance(0.2)) plant_other_weights(operation.kept);
    else engine_.damage(operation.kept.block.key);
  }
  end(operation, memory_.carry_out(operation.kept).error);
}

/// The deadline has come, or nobody answers.
void SimulatedSharedStore::give_up(const Operation& operation) {
  const KeptOperation& kept = operation.kept;
  std::uint32_t leading = 0;
  if (kept.kind == Kind::probed) leading = forget_some(kept.probe, known_leading(operation));
  const bool node_is_well = kept.kind == Kind::written && engine_.state(operation.asked[0].first) == NodeState::well;
  if (node_is_well && !engine_.is_full() && engine_.random().chance(0.5)) keep_values(kept);
  end(operation, kept.deadline != never ? Errc::deadline_exceeded : Errc::io_failed, leading);
}

void SimulatedSharedStore::end(const Operation& operation, ErrorCode error, std::uint32_t leading) {
  const bool failed = error == Errc::deadline_exceeded || error == Errc::io_failed;
  for (const auto& [node, admission] : operation.asked) {
    using Outcome = CircuitBreaker::Outcome;
    Outcome outcome = failed ? Outcome::failed : Outcome::succeeded;
    // Only those of several nodes that do not answer have failed.
    if (failed && operation.asked.size() > 1 && engine_.state(node) == NodeState::well) outcome = Outcome::unclear;
    if (error == Errc::cancelled) outcome = Outcome::unclear;
    breakers_[node].ended(admission, outcome, engine_.clock().now());
  }
  const SharedEvent event{operation.kept.kind, operation.kept.token, error, leading};
  if (error) overwrite(operation.kept.into);
  ended_.push_back(event);
  count_ended(stat_, event, operation.kept.size());
}

/// Leading keys whose nodes were asked and are well, and that are there.
std::uint32_t SimulatedSharedStore::known_leading(const Operation& operation) {
  const KeptProbe& probe = operation.kept.probe;
  return probe.ask([&](std::uint32_t key) {
    const std::uint32_t node = node_of(probe.keys[key]);
    const bool asked = std::ranges::any_of(operation.asked, [&](const auto& each) { return each.first == node; });
    if (!asked || engine_.state(node) != NodeState::well) return false;
    KeptOperation one{.kind = Kind::probed, .fingerprint = operation.kept.fingerprint};
    one.probe.keys = {probe.keys[key]};
    one.probe.groups = {probe.groups[key]};
    return memory_.carry_out(one).leading == 1;
  });
}

/// Not all answers have come. Returns how many keys are known to be there then; `leading`: if all had come.
std::uint32_t SimulatedSharedStore::forget_some(const KeptProbe& probe, std::uint32_t leading) {
  if (probe.there.empty()) return static_cast<std::uint32_t>(engine_.random().between(0, leading));
  std::ranges::fill(probe.there.subspan(engine_.random().between(0, probe.there.size())), std::uint8_t{0});
  return static_cast<std::uint32_t>(std::ranges::count(probe.there, 1));
}

ErrorCode SimulatedSharedStore::keep(const Operation& operation) {
  if (operation.fault == Fault::full || engine_.is_full()) return Errc::full;
  if (operation.fault == Fault::lost) return {};
  if (operation.fault != Fault::failing || engine_.random().chance(0.5)) keep_values(operation.kept);
  return operation.fault == Fault::failing ? make_error_code(Errc::io_failed) : ErrorCode{};
}

void SimulatedSharedStore::keep_values(const KeptOperation& write) {
  (void)memory_.carry_out(write);
  engine_.make_room();
}

/// Puts a block of other weights where the block is looked for, whether or not that one is there.
void SimulatedSharedStore::plant_other_weights(const KeptOperation& read) {
  const auto in_names = [](const Fingerprint& fingerprint) { return to_hex(BlockKey{fingerprint}).substr(0, 32); };
  KeptOperation write{.kind = Kind::written, .fingerprint = read.fingerprint, .block = read.block};
  write.fingerprint[0] ^= std::byte{1};
  std::vector<std::byte> content(read.into.size());
  overwrite(content);
  write.from = content;
  (void)memory_.carry_out(write);
  for (std::string name : engine_.values()->names()) {
    const std::size_t at = name.find(in_names(write.fingerprint));
    if (at == std::string::npos) continue;
    const SharedMemoryEngine::Value value = engine_.values()->get(std::vector{name}, engine_.clock().now())[0];
    engine_.values()->remove(name);
    name.replace(at, in_names(read.fingerprint).size(), in_names(read.fingerprint));
    std::vector<SharedMemoryEngine::Named> planted;
    planted.push_back({name, *value});
    (void)engine_.values()->set(std::move(planted), never, engine_.clock().now());
  }
}

/// Writes one random byte into many places.
void SimulatedSharedStore::overwrite(std::span<std::byte> memory) {
  if (memory.empty()) return;
  const std::size_t from = engine_.random().below(memory.size());
  for (std::byte& byte : memory.subspan(from)) byte ^= static_cast<std::byte>(1 + engine_.random().below(255));
}

// ---- health ------------------------------------------------------------------------------------------------------------

bool SimulatedSharedStore::usable() const {
  const TimePoint now = engine_.clock().now();
  return std::ranges::any_of(breakers_, [&](const CircuitBreaker& breaker) {
    return breaker.state() == BreakerState::closed || breaker.next_probe() <= now;
  });
}

SharedHealth SimulatedSharedStore::health() const {
  SharedHealth health;
  std::size_t closed = 0;
  for (std::uint32_t node = 0; node < breakers_.size(); ++node) {
    const CircuitBreaker& breaker = breakers_[node];
    if (breaker.state() == BreakerState::closed) ++closed;
    health.nodes.push_back({.address = "node-" + std::to_string(node) + ":6379",
                            .breaker = breaker.state(),
                            .connections = engine_.state(node) == NodeState::dead ? 0U : 1U,
                            .next_probe = breaker.next_probe()});
  }
  if (closed == breakers_.size()) return health;
  health.state = closed == 0 ? StoreState::down : StoreState::degraded;
  health.reason = std::to_string(breakers_.size() - closed) + " of " + std::to_string(breakers_.size()) + " nodes do not answer";
  return health;
}

SharedStoreStat SimulatedSharedStore::stat() const {
  SharedStoreStat stat = stat_;
  stat.mismatches = memory_.stat().mismatches;
  return stat;
}

}  // namespace terrace
