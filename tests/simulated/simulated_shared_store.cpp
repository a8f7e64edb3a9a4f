#include "tests/simulated/simulated_shared_store.hpp"

#include "base/check.hpp"
#include "storage/shared/shared_statistics.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace terrace {

using NodeState = SimulatedSharedEngine::NodeState;

SimulatedSharedStore::SimulatedSharedStore(SimulatedSharedEngine& engine, SimulatedSharedOptions options)
    : engine_{engine},
      options_{std::move(options)},
      names_{options_.prefix},
      reader_{options_.secret},
      writer_{options_.secret},
      breakers_(engine.nodes(), CircuitBreaker{options_.breaker}) {}

std::uint32_t SimulatedSharedStore::node_of(const BlockKey& key) const {
  return simulated_node_of(key.prefix64(), engine_.nodes());
}

// ---- calls -------------------------------------------------------------------------------------------------------------

void SimulatedSharedStore::probe(const SharedProbe& probe) { begin(probe.token, probe.deadline, KeptProbe{probe}); }

void SimulatedSharedStore::read(std::span<const SharedRead> batch) {
  for (const SharedRead& read : batch) begin(read.token, read.deadline, KeptRead{read.block, read.into});
}

void SimulatedSharedStore::write(std::span<const SharedWrite> batch) {
  for (const SharedWrite& write : batch) begin(write.token, write.deadline, KeptWrite{write.block, write.from});
}

void SimulatedSharedStore::begin(std::uint64_t token, TimePoint deadline, KeptOperation what) {
  const TimePoint now = engine_.clock().now();
  Operation operation{token, fingerprint_, std::move(what)};
  operation.has_deadline = deadline != never;
  operation.until = operation.has_deadline ? deadline : now + options_.give_up;

  // Each node that has one of the keys is asked once.
  std::vector<std::uint32_t> nodes;
  const auto ask = [&](const BlockKey& key) {
    if (std::ranges::find(nodes, node_of(key)) == nodes.end()) nodes.push_back(node_of(key));
  };
  if (const auto* probe = std::get_if<KeptProbe>(&operation.what)) std::ranges::for_each(probe->keys, ask);
  if (const auto* read = std::get_if<KeptRead>(&operation.what)) ask(read->block.key);
  if (const auto* write = std::get_if<KeptWrite>(&operation.what)) ask(write->block.key);
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
  const bool is_write = std::holds_alternative<KeptWrite>(operation.what);
  if (random.chance(faults.silent)) operation.fault = Fault::silent;
  else if (random.chance(faults.failing)) operation.fault = Fault::failing;
  else if (is_write && random.chance(faults.full)) operation.fault = Fault::full;
  else if (is_write && random.chance(faults.lost)) operation.fault = Fault::lost;
  if (operation.fault == Fault::silent) operation.due = never;
  if (random.chance(faults.evicting)) engine_.evict_one();
  operations_.push_back(std::move(operation));
}

void SimulatedSharedStore::renew(std::span<const StoredBlock> blocks) {
  names_.use(fingerprint_);
  stat_.renewed += blocks.size();
  if (!options_.expiry.expires()) return;
  for (const StoredBlock& block : blocks) {
    if (engine_.state(node_of(block.key)) != NodeState::well) continue;
    for (const std::string& name : names_of(block, shared_parts_max)) {
      engine_.renew(name, engine_.clock().now() + options_.expiry.of(block.depth));
    }
  }
}

void SimulatedSharedStore::remove(std::span<const BlockKey> keys, GroupId group) {
  names_.use(fingerprint_);
  stat_.removed += keys.size();
  for (const BlockKey& key : keys) {
    if (engine_.state(node_of(key)) != NodeState::well) continue;
    for (std::uint32_t part = 0; part < shared_parts_max; ++part) engine_.remove(names_.name(key, group, part));
  }
}

void SimulatedSharedStore::cancel(std::uint64_t token) {
  const auto found = std::ranges::find(operations_, token, &Operation::token);
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
    const auto* read = std::get_if<KeptRead>(&operation.what);
    if (read != nullptr && engine_.random().chance(0.1)) overwrite(read->into);
  }
  const std::size_t arrived = ended_.size();
  out.insert(out.end(), ended_.begin(), ended_.end());
  ended_.clear();
  return arrived;
}

// ---- ends --------------------------------------------------------------------------------------------------------------

void SimulatedSharedStore::answer(const Operation& operation) {
  names_.use(operation.fingerprint);
  if (const auto* probe = std::get_if<KeptProbe>(&operation.what)) {
    const bool some_dead =
        std::ranges::any_of(operation.asked, [&](const auto& asked) { return engine_.state(asked.first) == NodeState::dead; });
    const bool fails = some_dead || operation.fault == Fault::failing;
    std::uint32_t leading = known_leading(operation, *probe);
    if (operation.fault == Fault::failing) leading = forget_some(*probe, leading);
    end(operation, fails ? make_error_code(Errc::io_failed) : ErrorCode{}, leading);
    return;
  }
  if (engine_.state(operation.asked[0].first) == NodeState::dead) {
    end(operation, Errc::io_failed);
    return;
  }
  if (const auto* read = std::get_if<KeptRead>(&operation.what)) {
    end(operation, operation.fault == Fault::failing ? make_error_code(Errc::io_failed) : fetch(operation, *read));
  } else {
    end(operation, keep(operation, std::get<KeptWrite>(operation.what)));
  }
}

/// The deadline has come, or nobody answers.
void SimulatedSharedStore::give_up(const Operation& operation) {
  names_.use(operation.fingerprint);
  std::uint32_t leading = 0;
  if (const auto* probe = std::get_if<KeptProbe>(&operation.what)) {
    leading = forget_some(*probe, known_leading(operation, *probe));
  }
  const auto* write = std::get_if<KeptWrite>(&operation.what);
  const bool node_is_well = write != nullptr && engine_.state(operation.asked[0].first) == NodeState::well;
  if (node_is_well && !engine_.is_full() && engine_.random().chance(0.5)) {
    store_values(write->block, operation.fingerprint, write->from,
                 names_of(write->block, shared_parts(write->from.size()).count));
  }
  end(operation, operation.has_deadline ? Errc::deadline_exceeded : Errc::io_failed, leading);
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
  SharedEvent event{SharedEvent::Kind::probed, operation.token, error, leading};
  std::uint64_t size = 0;
  if (const auto* probe = std::get_if<KeptProbe>(&operation.what)) size = probe->keys.size();
  if (const auto* read = std::get_if<KeptRead>(&operation.what)) {
    event.kind = SharedEvent::Kind::read;
    size = read->into.size();
    if (error) overwrite(read->into);
  }
  if (const auto* write = std::get_if<KeptWrite>(&operation.what)) {
    event.kind = SharedEvent::Kind::written;
    size = write->from.size();
  }
  ended_.push_back(event);
  count_ended(stat_, event, size);
}

/// Leading keys whose nodes were asked and are well, and that are there.
std::uint32_t SimulatedSharedStore::known_leading(const Operation& operation, const KeptProbe& probe) {
  return probe.ask([&](std::uint32_t key) {
    const std::uint32_t node = node_of(probe.keys[key]);
    const bool asked = std::ranges::any_of(operation.asked, [&](const auto& each) { return each.first == node; });
    if (!asked || engine_.state(node) != NodeState::well) return false;
    return engine_.get(names_.name(probe.keys[key], probe.groups[key], 0)) != nullptr;
  });
}

/// Not all answers have come. Returns how many keys are known to be there then; `leading`: if all had come.
std::uint32_t SimulatedSharedStore::forget_some(const KeptProbe& probe, std::uint32_t leading) {
  if (probe.there.empty()) return static_cast<std::uint32_t>(engine_.random().between(0, leading));
  std::ranges::fill(probe.there.subspan(engine_.random().between(0, probe.there.size())), std::uint8_t{0});
  return static_cast<std::uint32_t>(std::ranges::count(probe.there, 1));
}

ErrorCode SimulatedSharedStore::fetch(const Operation& operation, const KeptRead& read) {
  reader_.begin(read.block, operation.fingerprint, read.into.size());
  const std::vector<std::string> names = names_of(read.block, reader_.parts().count);
  if (engine_.random().chance(engine_.faults().damaging)) {
    if (engine_.random().chance(0.2)) plant_other_weights(read);
    else engine_.damage(names);
  }
  if (engine_.get(names[0]) == nullptr) return Errc::not_found;
  for (std::uint32_t part = 0; part < names.size(); ++part) {
    const SimulatedSharedEngine::Value* const value = engine_.get(names[part]);
    if (value == nullptr) break;
    if (reader_.begin_part(part, value->size(), std::span{*value}.first(std::min(value->size(), shared_header_bytes)))) break;
    const auto place = read.into.subspan(reader_.parts().offset(part), reader_.parts().bytes[part]);
    std::memcpy(place.data(), value->data() + shared_header_bytes, place.size());
    reader_.add(place);
    if (reader_.end_part()) break;
  }
  const SharedValueReader::Mismatch why = reader_.finish();
  if (!why) return {};
  ++stat_.mismatches[static_cast<std::size_t>(*why)];
  for (const std::string& name : names) engine_.remove(name);
  return Errc::corrupt;
}

ErrorCode SimulatedSharedStore::keep(const Operation& operation, const KeptWrite& write) {
  if (operation.fault == Fault::full || engine_.is_full()) return Errc::full;
  if (operation.fault == Fault::lost) return {};
  if (operation.fault != Fault::failing || engine_.random().chance(0.5)) {
    store_values(write.block, operation.fingerprint, write.from, names_of(write.block, shared_parts(write.from.size()).count));
  }
  return operation.fault == Fault::failing ? make_error_code(Errc::io_failed) : ErrorCode{};
}

/// Under the names of the block, a whole value of other weights.
void SimulatedSharedStore::plant_other_weights(const KeptRead& read) {
  Fingerprint other{};
  overwrite(other);
  std::vector<std::byte> content(read.into.size());
  overwrite(content);
  store_values(read.block, other, content, names_of(read.block, shared_parts(content.size()).count));
}

void SimulatedSharedStore::store_values(const StoredBlock& block, const Fingerprint& fingerprint, std::span<const std::byte> from,
                                        const std::vector<std::string>& names) {
  SharedWriteId id;
  std::ranges::generate(id, [&] { return static_cast<std::byte>(engine_.random().below(256)); });
  std::vector<std::byte> scratch(writer_.seals() ? from.size() : 0);
  std::vector<std::pair<std::string, SimulatedSharedEngine::Value>> values;
  writer_.begin(block, fingerprint, from, id);
  for (std::uint32_t part = 0; part < names.size(); ++part) {
    const SharedValueWriter::Part made = writer_.make(part, scratch);
    SimulatedSharedEngine::Value value{made.header.begin(), made.header.end()};
    value.insert(value.end(), made.payload.begin(), made.payload.end());
    values.emplace_back(names[part], std::move(value));
  }
  const SharedExpiry& expiry = options_.expiry;
  engine_.set(std::move(values), expiry.expires() ? engine_.clock().now() + expiry.of(block.depth) : never);
}

std::vector<std::string> SimulatedSharedStore::names_of(const StoredBlock& block, std::uint32_t parts) const {
  std::vector<std::string> names;
  for (std::uint32_t part = 0; part < parts; ++part) names.push_back(names_.name(block.key, block.group, part));
  return names;
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

}  // namespace terrace
