#include "tools/replay/content.hpp"
#include "tools/replay/verifier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace terrace::tools {
namespace {

constexpr std::size_t block_bytes = 512;

BlockKey key_of(std::uint8_t number) {
  BlockKey key;
  key.bytes.fill(static_cast<std::byte>(number));
  return key;
}

/// A device whose memory the host cannot address: everything goes through the scratch.
class FarMemory final : public BlockAccess {
 public:
  explicit FarMemory(std::size_t slots) : slots_(slots, std::vector<std::byte>(block_bytes)) {}

  std::span<const std::byte> read(PoolId, SlotId slot, std::span<std::byte> scratch) override {
    std::ranges::copy(slots_.at(slot.value()), scratch.begin());
    return scratch;
  }
  std::span<std::byte> write_target(PoolId, SlotId, std::span<std::byte> scratch) override { return scratch; }
  void written(PoolId, SlotId slot, std::span<std::byte> scratch) override {
    std::ranges::copy(scratch, slots_.at(slot.value()).begin());
  }

  std::vector<std::byte>& at(std::size_t slot) { return slots_.at(slot); }

 private:
  std::vector<std::vector<std::byte>> slots_;
};

ComputeJob job_of(std::uint64_t request, std::size_t hits) {
  ComputeJob job;
  job.request = request;
  job.keys = {key_of(1), key_of(2), key_of(3)};
  job.hit_tiers.assign(hits, Tier::host);
  job.slots = {SlotId{5}, SlotId{2}, SlotId{7}, SlotId{0}};
  return job;
}

TEST(Verifier, what_one_request_computes_the_next_one_finds) {
  FarMemory memory{8};
  Verifier verifier{Verify::all};
  verifier.run(job_of(1, 0), memory, block_bytes);
  EXPECT_EQ(verifier.checked(), 0);
  EXPECT_EQ(first_difference(memory.at(2), key_of(2)), std::nullopt);
  verifier.run(job_of(2, 3), memory, block_bytes);
  EXPECT_EQ(verifier.checked(), 3);
  EXPECT_EQ(verifier.mismatches(), 0);
}

TEST(Verifier, says_where_the_first_wrong_byte_is) {
  FarMemory memory{8};
  Verifier verifier{Verify::all};
  verifier.run(job_of(1, 0), memory, block_bytes);
  memory.at(2)[300] ^= std::byte{4};
  memory.at(7)[0] ^= std::byte{4};
  verifier.run(job_of(2, 3), memory, block_bytes);
  EXPECT_EQ(verifier.mismatches(), 2);
  const Mismatch first = verifier.first_mismatch().value();
  EXPECT_EQ(first.request, 2);
  EXPECT_EQ(first.block, 1);
  EXPECT_EQ(first.key, key_of(2));
  EXPECT_EQ(first.found_in, Tier::host);
  EXPECT_EQ(first.slot, SlotId{2});
  EXPECT_EQ(first.byte, 300);
  EXPECT_EQ(describe(first), "request 2, block 1, key 0202020202020202, found in host, slot 2, byte 300");
}

TEST(Verifier, does_not_write_what_was_hit_nor_leave_the_partial_block_as_it_was) {
  FarMemory memory{8};
  Verifier verifier{Verify::none};
  memory.at(5).assign(block_bytes, std::byte{1});
  memory.at(0).assign(block_bytes, std::byte{1});
  verifier.run(job_of(1, 1), memory, block_bytes);
  EXPECT_EQ(memory.at(5), std::vector(block_bytes, std::byte{1}));
  EXPECT_NE(memory.at(0), std::vector(block_bytes, std::byte{1}));
}

TEST(Verifier, samples_every_sixteenth_hit_and_compares_none_where_told) {
  FarMemory memory{8};
  Verifier sample{Verify::sample};
  Verifier none{Verify::none};
  for (int i = 0; i < 32; ++i) {
    sample.run(job_of(1, 3), memory, block_bytes);
    none.run(job_of(1, 3), memory, block_bytes);
  }
  EXPECT_EQ(sample.checked(), 32 * 3 / 16);
  EXPECT_EQ(sample.mismatches(), 32 * 3 / 16);
  EXPECT_EQ(none.checked(), 0);
  EXPECT_EQ(none.mismatches(), 0);
}

}  // namespace
}  // namespace terrace::tools
