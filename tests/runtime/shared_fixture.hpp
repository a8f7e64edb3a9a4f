#pragma once

#include "terrace/shared_store.hpp"
#include "tests/runtime/content_fixture.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {

/// A shared store that a test drives by hand. Unless `answers` is false, the next poll() ends everything, by what `blocks` has.
class HandSharedStore final : public SharedStore {
 public:
  struct Probe {
    std::uint64_t token = 0;
    std::vector<BlockKey> keys;
    TimePoint deadline = never;
    std::vector<GroupId> groups;
    std::span<std::uint8_t> there;
  };

  void use(const Fingerprint& fingerprint) override { fingerprints.push_back(fingerprint); }
  void probe(const SharedProbe& probe) override {
    ++calls;
    ++probed;
    probes.push_back({probe.token, {probe.keys.begin(), probe.keys.end()}, probe.deadline, {}, probe.there});
    for (std::size_t key = 0; key < probe.keys.size(); ++key) probes.back().groups.push_back(probe.group_of(key));
  }
  void read(std::span<const SharedRead> batch) override {
    ++calls;
    reads.insert(reads.end(), batch.begin(), batch.end());
  }
  void write(std::span<const SharedWrite> batch) override {
    ++calls;
    writes.insert(writes.end(), batch.begin(), batch.end());
    writes_max = std::max(writes_max, writes.size());
  }
  void renew(std::span<const StoredBlock> renewed_now) override {
    ++calls;
    renewed.insert(renewed.end(), renewed_now.begin(), renewed_now.end());
  }
  void remove(std::span<const BlockKey> /*keys*/, GroupId /*group*/) override { ++calls; }
  void cancel(std::uint64_t token) override {
    ++calls;
    cancelled.push_back(token);
    if (keeps_cancelled) return;
    if (std::erase_if(probes, [&](const Probe& each) { return each.token == token; }) > 0) {
      events.push_back({SharedEvent::Kind::probed, token, Errc::cancelled, 0});
    }
    if (std::erase_if(reads, [&](const SharedRead& each) { return each.token == token; }) > 0) {
      events.push_back({SharedEvent::Kind::read, token, Errc::cancelled, 0});
    }
  }
  std::size_t poll(std::vector<SharedEvent>& out) override {
    if (answers) answer_all();
    const std::size_t count = events.size();
    out.insert(out.end(), events.begin(), events.end());
    events.clear();
    return count;
  }
  [[nodiscard]] std::size_t in_flight() const override { return probes.size() + reads.size() + writes.size() + events.size(); }
  void set_waker(Waker* /*waker*/) override {}
  [[nodiscard]] bool usable() const override { return usable_now; }
  [[nodiscard]] SharedHealth health() const override { return {}; }
  [[nodiscard]] SharedStoreStat stat() const override { return {}; }

  void answer_probes() {
    for (const Probe& probe : std::exchange(probes, {})) {
      const auto gap = std::ranges::find_if(probe.keys, [&](const BlockKey& key) { return !blocks.contains(key); });
      auto there = static_cast<std::uint32_t>(gap - probe.keys.begin());
      for (std::size_t key = 0; key < probe.there.size(); ++key) probe.there[key] = blocks.contains(probe.keys[key]) ? 1 : 0;
      if (!probe.there.empty()) there = static_cast<std::uint32_t>(std::ranges::count(probe.there, 1));
      events.push_back({SharedEvent::Kind::probed, probe.token, probe_error, there});
    }
  }
  /// Ends the first read that is under way. No error: its block arrives.
  void answer_read(ErrorCode error = {}) {
    const SharedRead read = reads.front();
    reads.erase(reads.begin());
    const auto block = blocks.find(read.block.key);
    if (!error && block == blocks.end()) error = Errc::not_found;
    if (!error && read_errors.contains(read.block.key)) error = read_errors.at(read.block.key);
    if (error) std::ranges::fill(read.into, std::byte{0x5A});
    else std::ranges::copy(block->second, read.into.begin());
    events.push_back({SharedEvent::Kind::read, read.token, error, 0});
  }
  void answer_write(ErrorCode error = {}) {
    const SharedWrite write = writes.front();
    writes.erase(writes.begin());
    if (!error) blocks[write.block.key] = {write.from.begin(), write.from.end()};
    written.push_back(write.block);
    events.push_back({SharedEvent::Kind::written, write.token, error, 0});
  }
  void answer_all() {
    answer_probes();
    while (!reads.empty()) answer_read();
    while (!writes.empty()) answer_write(write_error);
  }
  /// The engine has these blocks, with the content that belongs to their keys.
  void put(const std::vector<BlockKey>& keys, std::size_t block_bytes) {
    for (const BlockKey& key : keys) {
      blocks[key].resize(block_bytes);
      test::fill(blocks[key], key.prefix64());
    }
  }

  bool answers = true;
  bool usable_now = true;
  bool keeps_cancelled = false;  ///< cancelled operations go on
  ErrorCode probe_error;
  ErrorCode write_error;
  std::map<BlockKey, ErrorCode> read_errors;
  std::map<BlockKey, std::vector<std::byte>> blocks;
  std::vector<Probe> probes;  ///< under way, like the next two
  std::vector<SharedRead> reads;
  std::vector<SharedWrite> writes;
  std::size_t writes_max = 0;
  std::vector<SharedEvent> events;
  std::vector<StoredBlock> written;  ///< in the order in which the writes ended
  std::vector<StoredBlock> renewed;
  std::vector<std::uint64_t> cancelled;
  std::vector<Fingerprint> fingerprints;
  std::size_t calls = 0;
  std::size_t probed = 0;
};

[[nodiscard]] inline ManagerConfig with_shared(ManagerConfig config, WritePolicy writes = WritePolicy::none) {
  config.shared.on = true;
  config.shared.writes = writes;
  return config;
}

/// A cache with a shared store that the test drives.
class SharedFixture : public ContentFixture {
 protected:
  void make_shared(ManagerConfig config) {
    shared = &store_of_others;
    make(std::move(config));
    poll();  // notices that the store can be used
  }
  void let_others_answer() {
    store_of_others.answers = true;
    settle();
  }
  /// The engine has these blocks.
  void put(const std::vector<BlockKey>& keys) { store_of_others.put(keys, block_bytes); }
  [[nodiscard]] RequestState state(std::uint64_t id) const { return cache->state(leases.at(id)); }
  [[nodiscard]] std::uint64_t held_on_device() const { return cache->manager().device_ledger().held; }
  [[nodiscard]] SharedTotals totals() const { return cache->shared_totals(); }
  /// The error with which the request has failed, by its event.
  [[nodiscard]] std::optional<ErrorCode> failure(std::uint64_t id) const {
    const auto event = std::ranges::find(events, RequestId{id}, &RequestEvent::id);
    return event == events.end() ? std::nullopt : std::optional{event->error};
  }

  HandSharedStore store_of_others;
};

/// A cache that writes to a shared store.
class SharedWrites : public SharedFixture {
 protected:
  void make_writer(WritePolicy policy, ManagerConfig config = sizes(64, 64)) {
    config = with_shared(std::move(config), policy);
    if (config.pools[0].staging_blocks == 0) config.pools[0].staging_blocks = 8;
    make_shared(std::move(config));
  }
  [[nodiscard]] bool is_written(const std::vector<BlockKey>& keys) const {
    return std::ranges::all_of(keys, [&](const BlockKey& key) {
      const auto block = store_of_others.blocks.find(key);
      return block != store_of_others.blocks.end() && holds(block->second, content_of(key));
    });
  }
  /// The same as serve(), for a request that does not ask the shared store.
  void serve_here(std::uint64_t id, const std::vector<BlockKey>& keys) {
    AcquireRequest wanted = request(id, {});
    wanted.keys = keys;
    wanted.farthest_source = Source::storage;
    leases[id] = cache->acquire(wanted).value();
    ASSERT_TRUE(ready_when_settled(id));
    use(id, keys);
    settle();
  }
  void wait(Duration time) {
    clock.advance(time);
    settle();
  }
};

}  // namespace terrace::test
