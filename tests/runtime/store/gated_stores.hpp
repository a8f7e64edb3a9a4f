#pragma once

#include "storage/memory/memory_store.hpp"
#include "terrace/block_store.hpp"
#include "terrace/shared_store.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace terrace::test {

/// A store in memory, in front of which operations can be held or fail. Only `held` may be changed by another thread.
class GatedStore final : public BlockStore {
 public:
  GatedStore(std::uint32_t blocks, Bytes block_bytes, Waker* waker = nullptr) : store_{blocks, block_bytes, waker} {}

  std::atomic<bool> held{false};  ///< reads and writes wait, as on a disk that hangs
  bool reads_fail = false;
  bool writes_fail = false;
  std::uint64_t reads = 0;  ///< that were asked for

  void read(std::span<const StoreRead> batch) override {
    reads += batch.size();
    reads_.insert(reads_.end(), batch.begin(), batch.end());
    pass();
  }
  void write(std::span<const StoreWrite> batch) override {
    writes_.insert(writes_.end(), batch.begin(), batch.end());
    pass();
  }
  std::size_t poll(std::vector<StoreEvent>& out) override {
    pass();
    out.insert(out.end(), failed_.begin(), failed_.end());
    const std::size_t failed = failed_.size();
    failed_.clear();
    return failed + store_.poll(out);
  }
  [[nodiscard]] std::size_t in_flight() const override {
    return reads_.size() + writes_.size() + failed_.size() + store_.in_flight();
  }

  void remove(std::span<const BlockKey> keys, std::uint64_t token) override {
    store_.remove(keys, token);
    for (const StoreWrite& write : writes_) {
      if (std::ranges::find(keys, write.block.key) != keys.end()) removed_.push_back(write.block.key);
    }
  }
  [[nodiscard]] bool contains(const BlockKey& key) const override { return store_.contains(key); }
  void touch(std::span<const BlockKey> keys) override { store_.touch(keys); }
  void flush(std::uint64_t token) override { store_.flush(token); }
  void adopt_all(const Adopt& adopt) override { store_.adopt_all(adopt); }
  void set_waker(Waker* waker) override { store_.set_waker(waker); }
  [[nodiscard]] Bytes block_bytes() const override { return store_.block_bytes(); }
  [[nodiscard]] StoreStat stat() const override { return store_.stat(); }
  void for_each(const std::function<void(const StoredBlock&)>& visit) const override { store_.for_each(visit); }
  void check_invariants() const override { store_.check_invariants(); }
  [[nodiscard]] MemoryStore& memory() { return store_; }

 private:
  void pass() {
    if (held) return;
    for (const StoreRead& read : reads_) {
      if (reads_fail) failed_.push_back({StoreEvent::Kind::read, read.token, read.key, Errc::io_failed});
      else store_.read({&read, 1});
    }
    for (const StoreWrite& write : writes_) {
      if (writes_fail) failed_.push_back({StoreEvent::Kind::written, write.token, write.block.key, Errc::io_failed});
      else store_.write({&write, 1});
    }
    reads_.clear();
    writes_.clear();
    store_.remove(std::exchange(removed_, {}), 0);
  }

  MemoryStore store_;
  std::vector<StoreRead> reads_;
  std::vector<StoreWrite> writes_;
  std::vector<BlockKey> removed_;  ///< while their writes were held
  std::vector<StoreEvent> failed_;
};

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
