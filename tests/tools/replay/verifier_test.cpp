// The content that belongs to a key, the comparison of hits with it, and the verdict on a replay.

#include "tools/replay/engine/verifier.hpp"
#include "tools/replay/replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
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

ReplayResult good_result() {
  ReplayResult result;
  result.counts = {.requests = 3, .total = 10, .miss = 4};
  result.counts.found[Source::device] = 4;
  result.counts.found[Source::host] = 2;
  result.checked = 6;
  result.compared = 6;
  result.checks.ledgers_balanced = true;
  return result;
}

ReplayResult with_mismatch() {
  ReplayResult result = good_result();
  result.mismatches = 1;
  result.first_mismatch = Mismatch{};
  return result;
}

ReplayOptions injecting(Fault fault) {
  ReplayOptions options;
  options.inject = fault;
  return options;
}

TEST(Verdict, of_a_good_run_is_silence) {
  EXPECT_EQ(judge({}, good_result()).status, ExitStatus::done);
  EXPECT_EQ(judge({}, good_result()).line, "");
}

TEST(Verdict, of_a_mismatch_is_1_whatever_else_happened) {
  ReplayResult result = with_mismatch();
  result.interrupted = true;
  result.failure = "something else";
  const Verdict verdict = judge({}, result);
  EXPECT_EQ(verdict.status, ExitStatus::check_failed);
  EXPECT_NE(verdict.line.find("1 of 6"), std::string::npos);
}

TEST(Verdict, of_a_broken_check_is_1) {
  for (const auto breakage : {+[](FinalChecks& c) { c.leases = 1; }, +[](FinalChecks& c) { c.readers = 1; },
                              +[](FinalChecks& c) { c.orphans = 1; }, +[](FinalChecks& c) { c.stored = 1; },
                              +[](FinalChecks& c) { c.device.held = 1; }, +[](FinalChecks& c) { c.ledgers_balanced = false; }}) {
    ReplayResult result = good_result();
    breakage(result.checks);
    EXPECT_EQ(judge({}, result).status, ExitStatus::check_failed);
  }
}

TEST(Verdict, wants_every_hit_compared_where_all_were_to_be) {
  ReplayResult result = good_result();
  result.checked = 5;
  EXPECT_EQ(judge({}, result).status, ExitStatus::check_failed);
  ReplayOptions options;
  options.verify = Verify::sample;
  EXPECT_EQ(judge(options, result).status, ExitStatus::done);
}

TEST(Verdict, of_a_failed_run_is_3_and_of_an_interrupted_one_130) {
  ReplayResult result = good_result();
  result.interrupted = true;
  EXPECT_EQ(judge({}, result).status, ExitStatus::interrupted);
  result.failure = "no room";
  EXPECT_EQ(judge({}, result).status, ExitStatus::run_failed);
  EXPECT_EQ(judge({}, result).line, "no room");
}

TEST(Verdict, of_a_planted_fault_is_1_caught_or_not) {
  ReplayResult result = with_mismatch();
  result.faults_planted = 9;
  EXPECT_EQ(judge(injecting(Fault::flip), result).status, ExitStatus::check_failed);
  EXPECT_NE(judge(injecting(Fault::flip), result).line.find("9 blocks planted, 1 mismatches caught"), std::string::npos);
  result = good_result();
  result.faults_planted = 9;
  EXPECT_EQ(judge(injecting(Fault::late), result).status, ExitStatus::check_failed);
  EXPECT_NE(judge(injecting(Fault::late), result).line.find("9 copies planted, and none was caught"), std::string::npos);
}

TEST(Verdict, of_a_fault_that_could_not_be_planted_is_3) {
  EXPECT_EQ(judge(injecting(Fault::flip), good_result()).status, ExitStatus::run_failed);
}

/// A key whose bytes differ.
BlockKey mixed_key(std::uint8_t seed) {
  BlockKey key;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) key.bytes[i] = static_cast<std::byte>(seed * 31 + i * 7);
  return key;
}

std::vector<std::byte> content(const BlockKey& key, std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  fill_content(block, key);
  return block;
}

class ContentOfSize : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ContentOfSize, testing::Values(1, 7, 8, 63, 255, 256, 257, 1000, 4096, 65'536 + 24));

TEST_P(ContentOfSize, agrees_with_itself_and_ends_where_the_block_ends) {
  std::vector<std::byte> block(GetParam() + 16, std::byte{0xAA});
  fill_content(std::span{block}.first(GetParam()), mixed_key(1));
  EXPECT_EQ(first_difference(std::span{block}.first(GetParam()), mixed_key(1)), std::nullopt);
  for (std::size_t i = GetParam(); i < block.size(); ++i) EXPECT_EQ(block[i], std::byte{0xAA});
}

TEST_P(ContentOfSize, finds_the_first_byte_that_differs) {
  const std::vector<std::byte> good = content(mixed_key(2), GetParam());
  for (const std::size_t at : {std::size_t{0}, GetParam() / 2, GetParam() - 1}) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{1};
    bad.back() ^= std::byte{2};
    EXPECT_EQ(first_difference(bad, mixed_key(2)), at);
  }
}

TEST_P(ContentOfSize, comes_to_the_same_in_parts) {
  std::vector<std::byte> block(GetParam());
  const std::size_t middle = GetParam() / 2 / 8 * 8;
  fill_content(std::span{block}.subspan(middle), mixed_key(5), middle);
  fill_content(std::span{block}.first(middle), mixed_key(5), 0);
  EXPECT_EQ(block, content(mixed_key(5), GetParam()));
}

TEST(Content, differs_from_key_to_key_in_nearly_every_word) {
  const std::vector<std::byte> one = content(mixed_key(1), 4096);
  const std::vector<std::byte> other = content(mixed_key(2), 4096);
  int same = 0;
  for (std::size_t at = 0; at < 4096; at += 8) same += std::memcmp(&one[at], &other[at], 8) == 0;
  EXPECT_LE(same, 1);
}

TEST(Content, differs_from_place_to_place) {
  const std::vector<std::byte> block = content(mixed_key(3), 65'536);
  std::set<std::uint64_t> words;
  for (std::size_t at = 0; at < block.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, &block[at], 8);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), 65'536 / 8);
}

TEST(Content, of_zeros_or_poison_is_no_content) {
  EXPECT_EQ(first_difference(std::vector(4096, std::byte{0}), mixed_key(4)), 0);
  EXPECT_EQ(first_difference(std::vector(4096, std::byte{0xDB}), mixed_key(4)), 0);
}

}  // namespace
}  // namespace terrace::tools
