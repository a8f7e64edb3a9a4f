#include "runtime/engine/shared_executor.hpp"

#include "base/check.hpp"

namespace terrace {

SharedExecutor::SharedExecutor(SharedStore* store, std::span<const PoolParts> pools, const Clock& clock)
    : store_{store}, clock_{clock}, begun_(pools.size()) {
  for (const PoolParts& pool : pools) arenas_.push_back(pool.arena);
}

std::uint64_t SharedExecutor::token_of(PoolId pool, Kind kind, std::uint32_t number) {
  TERRACE_CHECK(number >> number_bits == 0);
  const auto its = std::uint64_t{pool.value()} << kind_bits | static_cast<std::uint32_t>(kind);
  return its << number_bits | number;
}

std::uint64_t SharedExecutor::begin(PoolId pool, Kind kind, std::uint32_t number, TimePoint now) {
  std::vector<TimePoint>& begun = begun_[pool.value()][static_cast<std::size_t>(kind)];
  if (number >= begun.size()) begun.resize(std::size_t{number} + 1);
  begun[number] = now;
  return token_of(pool, kind, number);
}

void SharedExecutor::carry_out(SharedActions& actions, PoolId pool) {
  if (actions.empty()) return;
  const TimePoint now = clock_.now();
  const HostArena& arena = *arenas_[pool.value()];
  for (const SharedActions::Probe& probe : actions.probes) {
    const bool asks = probe.asker == SharedActions::Probe::Asker::requests;
    const std::uint64_t token = begin(pool, asks ? Kind::request_probe : Kind::writer_probe, probe.token, now);
    store_->probe({token, probe.keys, probe.group, probe.deadline, probe.groups, probe.there});
  }
  batch_writes_.clear();
  for (const SharedActions::Write& write : actions.writes) {
    batch_writes_.push_back({begin(pool, Kind::write, write.token, now), write.block, arena.block(write.from), write.deadline});
  }
  writes_.speed.began(batch_writes_.size(), now);
  if (!batch_writes_.empty()) store_->write(batch_writes_);
  batch_reads_.clear();
  for (const SharedActions::Read& read : actions.reads) {
    batch_reads_.push_back({begin(pool, Kind::read, read.token, now), read.block, arena.block(read.into), read.deadline});
  }
  reads_.speed.began(batch_reads_.size(), now);
  if (!batch_reads_.empty()) store_->read(batch_reads_);
  if (!actions.renewals.empty()) store_->renew(actions.renewals);
  for (const std::uint32_t probe : actions.cancelled_probes) store_->cancel(token_of(pool, Kind::request_probe, probe));
  for (const std::uint32_t read : actions.cancelled_reads) store_->cancel(token_of(pool, Kind::read, read));
  actions.clear();
}

SharedExecutor::Ended SharedExecutor::note(const SharedEvent& event) {
  const auto kind = static_cast<Kind>(event.token >> number_bits & ((1U << kind_bits) - 1));
  const PoolId pool{static_cast<std::uint16_t>(event.token >> (number_bits + kind_bits))};
  const auto number = static_cast<std::uint32_t>(event.token & ((1U << number_bits) - 1));
  const TimePoint now = clock_.now();
  const TimePoint begun = begun_[pool.value()][static_cast<std::size_t>(kind)].at(number);
  const bool done = !event.error;
  const bool probes = kind == Kind::request_probe || kind == Kind::writer_probe;
  TraceSpan::Kind span = TraceSpan::Kind::shared_probe;
  if (probes) {
    probe_times_.add(now - begun);
  } else {
    span = kind == Kind::read ? TraceSpan::Kind::shared_read : TraceSpan::Kind::shared_write;
    Copies& copies = kind == Kind::read ? reads_ : writes_;
    const Bytes bytes = done ? arenas_[pool.value()]->block_bytes() : Bytes{};
    copies.speed.ended(1, bytes, now);
    copies.moved.blocks += done ? 1 : 0;
    copies.moved.bytes += bytes;
    copies.moved.seconds = copies.speed.busy_seconds();
    copies.times.add(now - begun);
  }
  if (spans_ != nullptr) {
    spans_->on_span({span, 0, begun, now, probes ? event.leading : 1, !done});
  }
  using Asker = SharedActions::Probe::Asker;
  return {event.kind, pool, kind == Kind::writer_probe ? Asker::writer : Asker::requests, number, event.error, event.leading};
}

}  // namespace terrace
