#pragma once

#include "storage/memory/memory_store.hpp"
#include "terrace/block_store.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
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

}  // namespace terrace::test
