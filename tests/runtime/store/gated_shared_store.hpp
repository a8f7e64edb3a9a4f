#pragma once

#include "terrace/shared_store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

namespace terrace::test {

/// A shared store in memory, in front of which operations can be held or fail. Operations end in the next poll.
class GatedSharedStore final : public SharedStore {
 public:
  bool held = false;
  bool is_usable = true;
  ErrorCode fails_with{};  ///< every operation that ends while this is set
  std::map<BlockKey, std::vector<std::byte>> blocks;
  std::uint64_t probes = 0;  ///< that were asked for, like the next ones
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t renewed = 0;  ///< keys

  void use(const Fingerprint& /*fingerprint*/) override {}
  void probe(const SharedProbe& probe) override {
    ++probes;
    const auto gap = std::ranges::find_if_not(probe.keys, [this](const BlockKey& key) { return blocks.contains(key); });
    operations_.push_back(
        {.event = {SharedEvent::Kind::probed, probe.token, {}, static_cast<std::uint32_t>(gap - probe.keys.begin())}});
  }
  void read(std::span<const SharedRead> batch) override {
    reads += batch.size();
    for (const SharedRead& read : batch) {
      operations_.push_back({{SharedEvent::Kind::read, read.token, {}, 0}, read.block.key, read.into, {}});
    }
  }
  void write(std::span<const SharedWrite> batch) override {
    writes += batch.size();
    for (const SharedWrite& write : batch) {
      operations_.push_back({{SharedEvent::Kind::written, write.token, {}, 0}, write.block.key, {}, write.from});
    }
  }
  void renew(std::span<const StoredBlock> used) override { renewed += used.size(); }
  void remove(std::span<const BlockKey> keys, GroupId /*group*/) override {
    for (const BlockKey& key : keys) blocks.erase(key);
  }
  void cancel(std::uint64_t /*token*/) override {}
  std::size_t poll(std::vector<SharedEvent>& out) override {
    std::size_t ended = 0;
    for (; !held && !operations_.empty(); ++ended) {
      Operation operation = operations_.front();
      operations_.pop_front();
      operation.event.error = fails_with;
      if (fails_with) operation.event.leading = 0;
      else end(operation);
      out.push_back(operation.event);
    }
    return ended;
  }
  [[nodiscard]] std::size_t in_flight() const override { return operations_.size(); }
  void set_waker(Waker* /*waker*/) override {}
  [[nodiscard]] bool usable() const override { return is_usable; }
  [[nodiscard]] SharedHealth health() const override { return {}; }
  [[nodiscard]] SharedStoreStat stat() const override { return {}; }

 private:
  struct Operation {
    SharedEvent event;
    BlockKey key{};
    std::span<std::byte> into{};
    std::span<const std::byte> from{};
  };

  void end(Operation& operation) {
    if (operation.event.kind == SharedEvent::Kind::written) {
      blocks[operation.key].assign(operation.from.begin(), operation.from.end());
    } else if (operation.event.kind == SharedEvent::Kind::read) {
      const auto found = blocks.find(operation.key);
      if (found == blocks.end()) operation.event.error = Errc::not_found;
      else std::ranges::copy(found->second, operation.into.begin());
    }
  }

  std::deque<Operation> operations_;
};

}  // namespace terrace::test
