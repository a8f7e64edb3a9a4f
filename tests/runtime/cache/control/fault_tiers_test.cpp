// Faults of docs/reliability.md: a tier fails while everything else continues, or it comes back with the blocks of another model.
// The tests check what is served and what is reported.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "storage/file/file_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "tests/runtime/content_fixture.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "transfer/host/host_arena.hpp"

#include <array>
#include <chrono>
#include <string>
#include <system_error>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A cache with a resilient file store on a disk that the test breaks.
class FailingTier : public ContentFixture {
 protected:
  static constexpr Bytes stored_bytes = KiB * 4;

  [[nodiscard]] static FileStoreConfig stored() {
    FileStoreConfig config;
    config.directory = "/store";
    config.name.clear();
    config.block_bytes = stored_bytes;
    config.capacity = capacity_for(64, stored_bytes);
    return config;
  }
  void make_over_disk() {
    cache.reset();
    transfers.reset();
    device.reset();
    guard.reset();
    file.reset();
    file = std::make_unique<FileStore>(stored(), io);
    guard = std::make_unique<ResilientStore>(*file, clock, ResilienceOptions{});
    big_arena = std::make_unique<HostArena>(8, stored_bytes);
    device = std::make_unique<SimulatedDevice>(4, *big_arena);
    transfers = std::make_unique<TransferEngine>(TransferSchedulerConfig{}, *device, clock, waker);
    ManagerConfig config = with_storage(sizes(4), WritePolicy::write_through);
    config.pools[0].staging_blocks = 8;
    config.policy = lru_policy;
    cache = std::make_unique<Cache>(config, CacheParts{*transfers, {{big_arena.get(), guard.get()}}, clock});
  }
  void TearDown() override {
    leases.clear();
    work();
    EXPECT_EQ(mismatches, 0U) << "of " << compared;
    if (cache) cache->manager().check_invariants();
    cache.reset();
  }
  void work() {
    for (int i = 0; i < 50; ++i) {
      device->run();
      while (io.queued() > 0) io.step(0);
      poll();
    }
  }
  /// A whole request. Returns how many of its blocks were hits.
  std::uint32_t serve_over_disk(std::uint64_t id, const std::vector<BlockKey>& keys) {
    if (!acquire(id, keys).has_value()) return 0;
    for (int i = 0; i < 20 && !ready(id); ++i) {
      work();
      if (!ready(id)) clock.advance(milliseconds{25});  // retries wait for this time
    }
    EXPECT_TRUE(ready(id));
    const RequestStats found = stats(id);
    const auto compare_and_write = [this, keys, slots = table(id), hits = hits(id)](BlockAccess& access) {
      std::vector<std::byte> scratch(count(stored_bytes));
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (i < hits) {
          ++compared;
          mismatches += !test::holds(access.read(slots[i], scratch), content_of(keys[i]));
          continue;
        }
        test::fill(access.write_target(slots[i], scratch), content_of(keys[i]));
        access.written(slots[i], scratch);
      }
    };
    const Fence done = device->launch(compare_and_write);
    EXPECT_TRUE(cache->commit(leases.at(id), keys, done).has_value());
    end(id, done);
    work();
    return found.found[Source::device] + found.found[Source::storage];
  }

  SimulatedIo io;
  std::unique_ptr<FileStore> file;
  std::unique_ptr<ResilientStore> guard;
  std::unique_ptr<HostArena> big_arena;
};

// ---- F57: a tier fails while metrics and health look good

TEST_F(FailingTier, of_storage_is_a_miss_and_counted_and_said_until_it_is_well_again) {
  make_over_disk();
  const auto one = keys_of({1, 2, 3, 4});
  const auto other = keys_of({5, 6, 7, 8});
  std::uint64_t id = 1;
  EXPECT_EQ(serve_over_disk(id++, one), 0U);
  EXPECT_EQ(serve_over_disk(id++, other), 0U);
  EXPECT_EQ(serve_over_disk(id++, one), 4U) << "from storage";
  EXPECT_EQ(guard->health().state, StoreState::well);

  io.files().break_directory("/store");
  for (int round = 0; round < 6; ++round) {
    const std::uint64_t failures = cache->manager().stats().load_failures;
    EXPECT_EQ(serve_over_disk(id++, round % 2 == 0 ? other : one), 0U) << "served, by computing it";
    EXPECT_GT(cache->manager().stats().load_failures + cache->manager().stats().store_failed, failures);
  }
  const StoreHealth broken = guard->health();
  EXPECT_NE(broken.state, StoreState::well);
  EXPECT_NE(broken.reason.find("the tier is not used"), std::string::npos) << broken.reason;
  EXPECT_GT(broken.failed[static_cast<std::size_t>(ErrorClass::transient)], 4U);
  EXPECT_GT(broken.declined, 0U) << "nobody waits for a disk that is gone";

  io.files().mend_directory("/store");
  for (int round = 0; round < 8; ++round) {
    clock.advance(seconds{30});
    (void)serve_over_disk(id++, round % 2 == 0 ? other : one);
  }
  EXPECT_EQ(guard->health().state, StoreState::well);
  EXPECT_EQ(serve_over_disk(id++, other), 4U);
}

TEST_F(FailingTier, of_which_only_reads_fail_is_said_though_every_write_succeeds) {
  make_over_disk();
  io.files().fail_reads(true);
  StoreHealth worst;
  // Six prompts of one block each, and four slots: each block is read without success, computed, and written again. So one of
  // three operations in a row succeeds.
  for (std::uint32_t n = 0; n < 40; ++n) {
    EXPECT_EQ(serve_over_disk(n + 1, keys_of({n % 6})), 0U);
    if (guard->health().state != StoreState::well) worst = guard->health();
    clock.advance(milliseconds{50});
  }
  EXPECT_NE(worst.state, StoreState::well) << "a tier that only takes is no tier";
  EXPECT_NE(worst.reason.find("reads"), std::string::npos) << worst.reason;
  io.files().fail_reads(false);
  std::uint32_t found = 0;
  for (std::uint32_t n = 0; n < 40; ++n) {
    found += serve_over_disk(100 + n, keys_of({n % 6}));
    clock.advance(seconds{1});
  }
  EXPECT_EQ(guard->health().state, StoreState::well);
  EXPECT_GT(found, 0U);
}

// ---- F49: another model, or other weights, with the same path

TEST_F(FailingTier, with_the_blocks_of_other_weights_serves_none_of_them) {
  RootFields old_weights;
  RootFields new_weights;
  new_weights.weight_epoch = 1;
  const std::array<std::byte, 1> digest{};
  RootFields new_model;
  new_model.model_digest = digest;
  const std::vector<std::uint32_t> names{1, 2, 3, 4};
  const auto old_keys = keys_of(std::span{names}, root_key(old_weights));
  make_over_disk();
  (void)serve_over_disk(1, old_keys);
  ASSERT_EQ(file->stat().blocks, 4U);
  for (const RootFields& fields : {new_weights, new_model}) {
    // Another process, with the same tokens and the same store.
    make_over_disk();
    ASSERT_GE(file->stat().blocks, 4U) << "they are still there";
    const auto keys = keys_of(std::span{names}, root_key(fields));
    EXPECT_EQ(cache->match(keys).total(), 0U);
    EXPECT_EQ(serve_over_disk(1, keys), 0U);
    EXPECT_EQ(serve_over_disk(2, keys), 4U) << "its own";
  }
  EXPECT_EQ(cache->match(old_keys).found[Source::storage], 4U) << "to those who name the old weights";
}

TEST_F(FailingTier, of_another_geometry_is_refused_and_left_as_it_was) {
  make_over_disk();
  (void)serve_over_disk(1, keys_of({1, 2, 3, 4}));
  cache.reset();
  guard.reset();
  file.reset();
  FileStoreConfig other = stored();
  other.fingerprint[0] = std::byte{1};  // another model, data type or layout
  try {
    const FileStore refused{other, io};
    ADD_FAILURE() << "another model's blocks were taken for its own";
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string{error.what()}.find("was made for the model and geometry"), std::string::npos) << error.what();
  }
  make_over_disk();
  EXPECT_EQ(serve_over_disk(1, keys_of({1, 2, 3, 4})), 4U);
}

}  // namespace
}  // namespace terrace::test
