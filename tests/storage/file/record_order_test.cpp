// The records and data that a process leaves when it is killed at any moment.

#include "base/random.hpp"
#include "storage/format/format.hpp"

#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace terrace::test {
namespace {

constexpr std::uint32_t slots = 80;

/// Expects that the data of every record in the catalog verify. Returns the number of records.
std::uint32_t expect_all_verify(SimulatedFiles& disk, const FileStoreConfig& config) {
  const auto catalog = disk.content("/store/catalog");
  const auto data = disk.content("/store/blocks-0000");
  std::uint32_t records = 0;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const auto record = decode_record(catalog.subspan(catalog_page_bytes + std::size_t{slot} * record_bytes, record_bytes));
    if (!record) continue;
    ++records;
    const auto block = data.subspan(std::size_t{slot} * block_size, block_size);
    EXPECT_EQ(payload_checksum(record->block.key, config.fingerprint, block), record->checksum) << "slot " << slot;
  }
  return records;
}

TEST(RecordOrder, leaves_no_record_whose_data_another_block_has_overwritten) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const FileStoreConfig config = config_for("/store", slots);
    SimulatedIo io;
    std::uint64_t next = 1;
    std::uint32_t records_max = 0;
    std::uint64_t evicted = 0;
    for (int run = 0; run < 2; ++run) {
      SimulatedHarness h{io, config, seed};
      Random random{seed + 100 * static_cast<std::uint64_t>(run)};
      std::vector<StoreEvent> events;
      for (int step = 0; step < 400; ++step) {
        const std::uint64_t die = random.below(20);
        if (die < 6) {
          h.start_write(prefix_of(next, 1 + static_cast<std::uint32_t>(random.below(6))));
          next += 10;
        } else if (die == 6) {
          const BlockKey key = key_of(next - 10 * random.below(5) - 10);
          h.store().remove({&key, 1}, 1);
        } else if (io.queued() > 0) {
          h.advance();
        }
        if (random.below(3) == 0) h.store().poll(events);
        h.store().check_invariants();
        records_max = std::max(records_max, expect_all_verify(io.files(), config));
        if (testing::Test::HasFailure()) return;
      }
      h.drain();
      evicted += h.store().stat().evicted;
    }
    EXPECT_GT(records_max, slots / 2);
    EXPECT_GT(evicted, slots);
  }
}

}  // namespace
}  // namespace terrace::test
