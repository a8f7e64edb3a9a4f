#include "tools/replay/engine/verifier.hpp"

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

/// A device whose memory the host cannot address, so everything is copied through `scratch`.
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

constexpr std::uint32_t verified_block_tokens = 8;
constexpr BlockShape shape{Bytes{block_bytes}, verified_block_tokens};
const std::vector<BlockKey> keys{key_of(1), key_of(2), key_of(3)};
const std::vector<SlotId> table{SlotId{5}, SlotId{2}, SlotId{7}, SlotId{0}};

/// A batch of three full blocks and one partly filled block: `hits` of them are hits, the others are computed.
ComputeBatch batch_of(std::uint64_t request, std::size_t hits) {
  ComputeBatch batch;
  batch.add_hits(request, keys, std::vector(hits, Source::host), table);
  batch.add_tokens(request, keys, table, verified_block_tokens, {hits * verified_block_tokens, 3 * verified_block_tokens + 2});
  return batch;
}

void run(Verifier& verifier, ComputeBatch batch, FarMemory& memory) { verifier.run(batch, memory); }

TEST(Verifier, what_one_request_computes_the_next_one_finds) {
  FarMemory memory{8};
  Verifier verifier{Verify::all, shape};
  run(verifier, batch_of(1, 0), memory);
  EXPECT_EQ(verifier.totals().compared, 0);
  EXPECT_EQ(first_difference(memory.at(2), key_of(2)), std::nullopt);
  ComputeBatch batch = batch_of(2, 3);
  verifier.run(batch, memory);
  EXPECT_EQ(verifier.totals().compared, 3);
  EXPECT_EQ(batch.hits.front().compared, 3);
  EXPECT_EQ(verifier.totals().mismatches, 0);
}

TEST(Verifier, what_is_computed_token_by_token_comes_to_the_same) {
  for (const std::uint32_t tokens : {1U, 3U, 8U, 64U, 512U}) {
    FarMemory memory{8};
    Verifier verifier{Verify::all, {Bytes{block_bytes}, tokens}};
    // One token of each block in turn, as requests that are served together write them.
    for (std::uint64_t token = 0; token < tokens; ++token) {
      for (std::size_t block = 0; block < keys.size(); ++block) {
        EXPECT_NE(first_difference(memory.at(table[block].value()), keys[block]), std::nullopt);
        ComputeBatch batch;
        batch.add_tokens(1, keys, table, tokens, {block * tokens + token, block * tokens + token + 1});
        verifier.run(batch, memory);
      }
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(first_difference(memory.at(table[i].value()), keys[i]), std::nullopt) << tokens;
    }
  }
}

TEST(Verifier, gives_every_token_its_own_bytes_of_a_block) {
  EXPECT_EQ(shape.offset_of(0), 0);
  EXPECT_EQ(shape.offset_of(3), 192);
  EXPECT_EQ(shape.offset_of(8), 512);
  const BlockShape uneven{Bytes{100}, 3};
  EXPECT_EQ(uneven.offset_of(1), 32);
  EXPECT_EQ(uneven.offset_of(2), 64);
  EXPECT_EQ(uneven.offset_of(3), 100);
}

TEST(Verifier, says_where_the_first_wrong_byte_is) {
  FarMemory memory{8};
  Verifier verifier{Verify::all, shape};
  run(verifier, batch_of(1, 0), memory);
  memory.at(2)[300] ^= std::byte{4};
  memory.at(7)[0] ^= std::byte{4};
  run(verifier, batch_of(2, 3), memory);
  EXPECT_EQ(verifier.totals().mismatches, 2);
  const Mismatch first = verifier.totals().first_mismatch.value();
  EXPECT_EQ(first.request, 2);
  EXPECT_EQ(first.block, 1);
  EXPECT_EQ(first.key, key_of(2));
  EXPECT_EQ(first.found_in, Source::host);
  EXPECT_EQ(first.slot, SlotId{2});
  EXPECT_EQ(first.byte, 300);
  EXPECT_EQ(describe(first), "request 2, block 1, key 0202020202020202, found in host, slot 2, byte 300");
}

TEST(Verifier, does_not_write_what_was_hit_nor_leave_the_partial_block_as_it_was) {
  FarMemory memory{8};
  Verifier verifier{Verify::none, shape};
  memory.at(5).assign(block_bytes, std::byte{1});
  memory.at(0).assign(block_bytes, std::byte{1});
  run(verifier, batch_of(1, 1), memory);
  EXPECT_EQ(memory.at(5), std::vector(block_bytes, std::byte{1}));
  EXPECT_NE(memory.at(0), std::vector(block_bytes, std::byte{1}));
}

TEST(Verifier, samples_every_sixteenth_hit_and_compares_none_where_told) {
  FarMemory memory{8};
  Verifier sample{Verify::sample, shape};
  Verifier none{Verify::none, shape};
  for (int i = 0; i < 32; ++i) {
    run(sample, batch_of(1, 3), memory);
    run(none, batch_of(1, 3), memory);
  }
  EXPECT_EQ(sample.totals().compared, 32 * 3 / 16);
  EXPECT_EQ(sample.totals().mismatches, 32 * 3 / 16);
  EXPECT_EQ(none.totals().compared, 0);
  EXPECT_EQ(none.totals().mismatches, 0);
}

}  // namespace
}  // namespace terrace::tools
