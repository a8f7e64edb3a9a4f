// Fault sweeps: the same run is repeated. The first operation fails in the first run, the second one in the next run, and so on,
// until a run has no more operations. Every call to the file system and every read, write and sync counts as an operation.

#include "storage/file/file_store.hpp"

#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;

/// Records which blocks are stored according to the events, and checks that no wrong bytes are served.
class Witness {
 public:
  explicit Witness(StoreHarness& h) : h_{h} {}

  void note(const std::vector<StoreEvent>& events) {
    for (const StoreEvent& event : events) {
      if (event.kind == Kind::written && !event.error) readable_.push_back(event.key);
      if (event.kind == Kind::removed || event.kind == Kind::evicted) std::erase(readable_, event.key);
      if (event.kind == Kind::read && !event.error) {
        EXPECT_TRUE(holds(h_.content(event.token), event.key)) << "a wrong block was served";
      }
    }
    std::sort(readable_.begin(), readable_.end());
    readable_.erase(std::unique(readable_.begin(), readable_.end()), readable_.end());
    std::vector<BlockKey> there;
    h_.store().for_each([&](const StoredBlock& block) { there.push_back(block.key); });
    std::sort(there.begin(), there.end());
    EXPECT_EQ(there, readable_);
    EXPECT_EQ(h_.store().stat().orphans, 0U);
    h_.store().check_invariants();
  }

  [[nodiscard]] const std::vector<BlockKey>& readable() const { return readable_; }

 private:
  StoreHarness& h_;
  std::vector<BlockKey> readable_;
};

/// Writes prefixes into a store that is too small for all of them, reads, removes, and closes the store.
std::vector<BlockKey> workload(SimulatedHarness& h) {
  Witness witness{h};
  const auto prefix = prefix_of(1, 4);
  const auto other = prefix_of(20, 4);
  witness.note(h.write(prefix));
  for (const StoredBlock& block : prefix) h.start_read(block.key);
  witness.note(h.drain());
  h.start_write(other);
  h.start_read(prefix[3].key);
  witness.note(h.drain());
  h.store().remove({&other[2].key, 1}, 3);
  for (const StoredBlock& block : other) h.start_read(block.key);
  witness.note(h.drain());
  witness.note(h.write({child_of(prefix[0], 40), root_block(41), root_block(42)}));
  for (const StoredBlock& block : {prefix[0], prefix[1], other[0], other[1]}) h.start_read(block.key);
  witness.note(h.drain());
  (void)h.store().close();
  return witness.readable();
}

enum class Then : unsigned char { restart, power_failure };

/// Each operation in turn has the fault. Then the store is started again.
void sweep(const IoFault& fault, Then then) {
  const FileStoreConfig config = config_for("/store", 6);
  std::size_t runs = 0;
  for (std::uint64_t number = 0;; ++number, ++runs) {
    SCOPED_TRACE("fault at operation " + std::to_string(number));
    SimulatedIo io;
    io.files().inject(number, fault);
    std::vector<BlockKey> readable;
    try {
      SimulatedHarness h{io, config, number};
      readable = workload(h);
    } catch (const std::system_error& error) {
      EXPECT_FALSE(io.files().exists("/store")) << "left behind by: " << error.what();
      EXPECT_EQ(io.in_flight(), 0U);
    }
    const bool swept = io.files().next_number() <= number;
    io.files().inject(number, {});

    // The next start serves no wrong bytes, whatever happened, and blocks in which the fault flipped no bit are intact.
    if (then == Then::power_failure) io.files().lose_unsynced();
    const bool may_be_damaged = fault.flip || then == Then::power_failure;
    SimulatedHarness again{io, config, number};
    Witness witness{again};
    std::vector<BlockKey> there;
    again.store().for_each([&](const StoredBlock& block) { there.push_back(block.key); });
    EXPECT_EQ(again.store().stat().orphans, 0U);
    for (const BlockKey& key : there) {
      EXPECT_TRUE(std::binary_search(readable.begin(), readable.end(), key)) << "a block came back from the dead";
      const ErrorCode error = again.read(key);
      EXPECT_TRUE(!error || (may_be_damaged && (error == Errc::corrupt || error == Errc::not_found))) << error.message();
    }
    again.store().check_invariants();
    if (swept) {
      EXPECT_EQ(there.size(), readable.size()) << "the last run met no fault";
      break;
    }
  }
  EXPECT_GT(runs, 40U);
}

class FileStoreFaults : public testing::TestWithParam<Then> {};
INSTANTIATE_TEST_SUITE_P(Then, FileStoreFaults, testing::Values(Then::restart, Then::power_failure), [](const auto& param) {
  return std::string{param.param == Then::restart ? "restart" : "power_failure"};
});

TEST_P(FileStoreFaults, an_io_error_at_any_operation) { sweep({.error = EIO}, GetParam()); }
TEST_P(FileStoreFaults, no_space_at_any_operation) { sweep({.error = ENOSPC}, GetParam()); }
TEST_P(FileStoreFaults, too_few_bytes_at_any_operation) { sweep({.bytes_max = 100}, GetParam()); }
TEST_P(FileStoreFaults, a_flipped_bit_at_any_operation) { sweep({.flip = true}, GetParam()); }
TEST_P(FileStoreFaults, a_stall_at_any_operation) { sweep({.stall = true}, GetParam()); }

TEST(FileStoreRestart, an_error_at_any_operation_of_a_restart_loses_only_what_it_hit) {
  const auto prefix = prefix_of(1, 6);
  const FileStoreConfig config = config_for("/store", 40);
  for (std::uint64_t number = 0;; ++number) {
    SCOPED_TRACE("fault at operation " + std::to_string(number));
    SimulatedIo io;
    {
      SimulatedHarness h{io, config};
      h.write(prefix);
    }
    const std::uint64_t first = io.files().next_number();
    io.files().inject(first + number, {.error = EIO});
    try {
      SimulatedHarness h{io, config};
      for (const StoredBlock& block : prefix) {
        const ErrorCode error = h.read(block.key);
        EXPECT_TRUE(!error || error == Errc::not_found || error == Errc::io_failed) << error.message();
      }
    } catch (const std::system_error&) {
      SimulatedHarness h{io, config};
      for (const StoredBlock& block : prefix) EXPECT_TRUE(h.reads_back(block.key)) << "a start that failed lost a block";
    }
    if (io.files().next_number() <= first + number) break;
    ASSERT_LT(number, 100U);
  }
}

TEST(FileStoreRestart, a_lock_that_another_process_was_quicker_to_take_is_left_alone) {
  SimulatedIo io;
  // Operations 3, 5, ...: after the directory was made and checked and the lock file was made. Between two attempts to lock, the
  // start reads who the owner is.
  for (std::uint64_t n = 0; n < 500; ++n) io.files().inject(3 + 2 * n, {.error = EWOULDBLOCK});
  EXPECT_THROW((FileStore{config_for("/store", 4), io}), std::system_error);
  EXPECT_TRUE(io.files().exists("/store/lock"));
  EXPECT_FALSE(io.files().exists("/store/catalog"));
}

TEST(FileStoreRestart, a_lock_whose_owner_was_killed_before_it_could_say_who_it_was_is_waited_for) {
  SimulatedIo io;
  // The system has not closed the last descriptors of the old process yet.
  for (std::uint64_t n = 0; n < 3; ++n) io.files().inject(3 + 2 * n, {.error = EWOULDBLOCK});
  SimulatedHarness h{io, config_for("/store", 4)};
  h.write({root_block(1)});
  EXPECT_TRUE(h.reads_back(key_of(1)));
}

}  // namespace
}  // namespace terrace::test
