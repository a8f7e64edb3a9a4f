#pragma once

#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

namespace terrace::test {

inline constexpr std::uint32_t stripe_blocks = 2;

/// A store over three directories of a disk in memory.
class Stripes : public testing::Test {
 protected:
  void open(std::uint64_t seed = 1) { h_ = std::make_unique<SimulatedHarness>(io_, config_, seed); }
  void reopen() {
    h_.reset();
    open();
  }
  [[nodiscard]] FileStore& store() { return h_->store(); }
  [[nodiscard]] SimulatedFiles& disk() { return io_.files(); }
  [[nodiscard]] std::filesystem::path directory_of(const BlockKey& key) { return store().location(key)->file.parent_path(); }
  [[nodiscard]] std::set<BlockKey> keys_in(const std::filesystem::path& directory) {
    std::set<BlockKey> keys;
    for (const StoredBlock& block : blocks_in(store())) {
      if (directory_of(block.key) == directory) keys.insert(block.key);
    }
    return keys;
  }
  /// Reads root blocks, each in its own stripe or not, until the directory counts as lost. Returns all events.
  std::vector<StoreEvent> read_until_lost(const std::vector<StoredBlock>& blocks) {
    std::vector<StoreEvent> all;
    for (int round = 0; round < 3; ++round) {
      for (const StoredBlock& block : blocks) {
        h_->start_read(block.key);
        const auto events = h_->drain();
        all.insert(all.end(), events.begin(), events.end());
        if (store().stat().directories_lost > 0) return all;
      }
    }
    ADD_FAILURE() << "the directory is still in use";
    return all;
  }
  /// Waits until nothing is under way, including the store's own work.
  std::vector<StoreEvent> settle() {
    std::vector<StoreEvent> all;
    do {
      if (io_.in_flight() > 0) h_->advance();
      const auto events = h_->drain();
      all.insert(all.end(), events.begin(), events.end());
    } while (io_.in_flight() > 0);
    return all;
  }
  static std::vector<StoredBlock> roots(std::uint64_t first, std::size_t count) {
    std::vector<StoredBlock> blocks;
    for (std::uint64_t n = first; n < first + count; ++n) blocks.push_back(root_block(n));
    return blocks;
  }

  FileStoreConfig config_ = striped_config_for("/store", 60, 3, stripe_blocks);
  SimulatedIo io_;
  std::unique_ptr<SimulatedHarness> h_;
  std::vector<StoreEvent> ignored_;
};

}  // namespace terrace::test
