#include "tests/storage/shared/shared_store_contract.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace terrace::contract {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedStoreContract);

class CountingWaker final : public Waker {
 public:
  void wake() noexcept override { ++woken; }
  std::atomic<int> woken{0};
};

// ---- blocks ------------------------------------------------------------------------------------------------------------

TEST_P(SharedStoreContract, a_block_comes_back_byte_for_byte_to_every_user_with_the_secret) {
  const auto prefix = prefix_of(1, 3);
  std::size_t bytes = 0;
  for (const std::size_t size : {small_block, large_block}) {
    for (const StoredBlock& block : prefix) {
      EXPECT_FALSE(write(block, size));
      EXPECT_FALSE(read(block, size));
      EXPECT_FALSE(read(block, size, 1));
      bytes += size;
    }
  }
  const SharedStoreStat stat = store().stat();
  EXPECT_EQ(stat.writes, 6U);
  EXPECT_EQ(stat.reads, 6U);
  EXPECT_EQ(count(stat.written), bytes);
  EXPECT_EQ(count(stat.read), bytes);
  EXPECT_EQ(stat.corrupt(), 0U);
}

TEST_P(SharedStoreContract, what_was_never_written_is_not_found) {
  EXPECT_EQ(read(root_block(1), large_block), Errc::not_found);
  EXPECT_EQ(store().stat().reads_missing, 1U);
  EXPECT_EQ(store().stat().corrupt(), 0U);
}

TEST_P(SharedStoreContract, a_probe_counts_the_keys_before_the_first_gap) {
  const auto prefix = prefix_of(1, 6);
  EXPECT_EQ(leading(prefix), 0U);
  for (const std::size_t n : {0U, 1U, 2U, 4U, 5U}) ASSERT_FALSE(write(prefix[n], small_block));
  EXPECT_EQ(leading(prefix, 1), 3U);
  EXPECT_EQ(leading({prefix[3], prefix[4]}, 1), 0U);
  EXPECT_EQ(leading({prefix[4], prefix[5]}, 1), 2U);
  EXPECT_EQ(leading({}, 1), 0U);
  const SharedStoreStat stat = store(1).stat();
  EXPECT_EQ(stat.probes, 4U);
  EXPECT_EQ(stat.keys_asked, 10U);
  EXPECT_EQ(stat.keys_there, 5U);
}

TEST_P(SharedStoreContract, a_probe_for_each_key_says_which_are_there_in_which_group) {
  auto blocks = prefix_of(1, 6);
  for (StoredBlock& block : blocks) block.group = GroupId{static_cast<std::uint16_t>(block.depth % 3)};
  for (const std::size_t n : {1U, 2U, 5U}) ASSERT_FALSE(write(blocks[n], small_block));
  StoredBlock other = blocks[1];
  other.group = GroupId{7};
  blocks.push_back(other);
  std::vector<std::uint8_t> there(blocks.size(), 0);
  const std::uint64_t token = start_probe_each(blocks, there, 1);
  drain(1);
  EXPECT_FALSE(event(token).error);
  EXPECT_EQ(event(token).leading, 3U) << "all that are there";
  EXPECT_EQ(there, (std::vector<std::uint8_t>{0, 1, 1, 0, 0, 1, 0}));
  EXPECT_EQ(store(1).stat().keys_asked, 7U);
  EXPECT_EQ(store(1).stat().keys_there, 3U);
}

TEST_P(SharedStoreContract, keys_that_agree_in_their_first_eight_bytes_are_two_blocks) {
  const StoredBlock block = root_block(1);
  StoredBlock other = block;
  other.key = with_prefix64_of(block.key, 2);
  ASSERT_FALSE(write(block, small_block));
  EXPECT_EQ(read(other, small_block), Errc::not_found);
  ASSERT_FALSE(write(other, small_block));
  EXPECT_FALSE(read(other, small_block));
  EXPECT_FALSE(read(block, small_block));
}

TEST_P(SharedStoreContract, groups_are_apart) {
  StoredBlock block = root_block(1);
  block.group = GroupId{1};
  ASSERT_FALSE(write(block, small_block));
  StoredBlock other = block;
  other.group = GroupId{2};
  EXPECT_EQ(leading({other}), 0U);
  EXPECT_EQ(read(other, small_block), Errc::not_found);
  EXPECT_EQ(leading({block}), 1U);
}

TEST_P(SharedStoreContract, blocks_of_other_weights_are_not_there) {
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(write(block, small_block));
  store(1).use(fingerprint_of(2));
  EXPECT_EQ(leading({block}, 1), 0U);
  EXPECT_EQ(read(block, small_block, 1), Errc::not_found);
  store(1).use(contract_fingerprint());
  EXPECT_EQ(leading({block}, 1), 1U);
  EXPECT_FALSE(read(block, small_block, 1));
}

TEST_P(SharedStoreContract, operations_keep_the_fingerprint_of_their_beginning) {
  const StoredBlock first = root_block(1);
  const StoredBlock second = root_block(2);
  ASSERT_FALSE(write(first, small_block));
  const std::uint64_t probe = start_probe({first});
  const std::uint64_t read_token = start_read(first, small_block);
  const std::uint64_t write_token = start_write(second, small_block);
  store().use(fingerprint_of(2));
  drain();
  EXPECT_EQ(event(probe).leading, 1U);
  EXPECT_FALSE(event(read_token).error);
  EXPECT_FALSE(event(write_token).error);
  EXPECT_FALSE(read(second, small_block, 1));
}

TEST_P(SharedStoreContract, a_block_may_be_written_again_and_by_several_users_at_once) {
  const StoredBlock block = root_block(1);
  for (const std::size_t user : {0U, 0U, 1U}) {
    EXPECT_FALSE(write(block, large_block, user));
    EXPECT_FALSE(read(block, large_block, 0));
    EXPECT_FALSE(read(block, large_block, 1));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<std::uint64_t> tokens;
    for (int i = 0; i < 3; ++i) {
      for (const std::size_t user : {0U, 1U}) tokens.push_back(start_write(block, large_block, user));
    }
    drain(0);
    drain(1);
    for (const std::uint64_t token : tokens) EXPECT_FALSE(event(token).error);
    // An engine may have kept the first part of one user and the second of the other. Then the first who reads it finds that
    // out, and the block is removed: it is a miss, and never wrong, because read() compares it.
    for (const std::size_t user : {0U, 1U}) {
      const ErrorCode error = read(block, large_block, user);
      EXPECT_TRUE(!error || error == Errc::corrupt || error == Errc::not_found) << error.message();
    }
  }
}

TEST_P(SharedStoreContract, many_operations_at_once_end_in_one_event_each) {
  const auto prefix = prefix_of(1, 60);
  std::vector<std::uint64_t> writes;
  for (const StoredBlock& block : prefix) writes.push_back(start_write(block, block.depth % 3 == 0 ? large_block : small_block));
  EXPECT_GE(store().in_flight(), prefix.size());
  drain();
  for (const std::uint64_t token : writes) EXPECT_FALSE(event(token).error);
  std::vector<std::uint64_t> reads;
  const std::uint64_t probe = start_probe(prefix);
  for (const StoredBlock& block : prefix) reads.push_back(start_read(block, block.depth % 3 == 0 ? large_block : small_block));
  const std::uint64_t missing = start_read(root_block(1000), small_block);
  drain();
  EXPECT_EQ(event(probe).leading, 60U);
  EXPECT_EQ(event(missing).error, Errc::not_found);
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    EXPECT_FALSE(event(reads[i]).error);
    EXPECT_TRUE(holds(memory(reads[i]), prefix[i].key));
  }
}

TEST_P(SharedStoreContract, removed_blocks_are_gone) {
  const auto prefix = prefix_of(1, 2);
  for (const StoredBlock& block : prefix) ASSERT_FALSE(write(block, large_block));
  const std::vector<BlockKey> keys{prefix[1].key, key_of(77)};
  store().remove(keys, GroupId{});
  for (int i = 0; i < 100'000 && leading(prefix) == 2; ++i) harness_->pass();
  EXPECT_EQ(leading(prefix), 1U);
  EXPECT_EQ(read(prefix[1], large_block), Errc::not_found);
  EXPECT_FALSE(read(prefix[0], large_block));
  EXPECT_EQ(store().stat().removed, 2U);
}

TEST_P(SharedStoreContract, blocks_expire_unless_they_are_renewed) {
  const StoredBlock used = root_block(1);
  const StoredBlock unused = root_block(2);
  ASSERT_FALSE(write(used, large_block));
  ASSERT_FALSE(write(unused, large_block));
  // Now the second user knows the engine. Before it does, it may drop a renewal: nothing reports the outcome of one.
  ASSERT_FALSE(read(used, large_block, 1));
  for (int i = 0; i < 4; ++i) {
    harness_->pass(harness_->expiry() / 3);
    store(1).renew(std::vector<StoredBlock>{used});
    drain(1);
    for (std::uint32_t part = 0; part < shared_parts(large_block).count; ++part) harness_->await_renewal(value_name(used, part));
  }
  EXPECT_FALSE(read(used, large_block));
  EXPECT_EQ(leading({unused}), 0U);
  EXPECT_EQ(read(unused, large_block), Errc::not_found);
  EXPECT_EQ(store(1).stat().renewed, 4U);
}

// ---- values that are not what they should be ---------------------------------------------------------------------------

TEST_P(SharedStoreContract, damaged_bytes_are_corrupt_and_removed_once) {
  for (const std::size_t size : {small_block, large_block}) {
    for (std::uint32_t part = 0; part < shared_parts(size).count; ++part) {
      const StoredBlock block = root_block(size + part);
      ASSERT_FALSE(write(block, size));
      harness_->change(value_name(block, part), [](Value& value) { value.back() ^= std::byte{1}; });
      const std::uint64_t before = mismatches(damage());
      EXPECT_EQ(read(block, size), Errc::corrupt);
      EXPECT_EQ(mismatches(damage()), before + 1);
      for (int i = 0; i < 100'000 && leading({block}) == 1; ++i) harness_->pass();
      EXPECT_EQ(read(block, size), Errc::not_found);
      EXPECT_FALSE(write(block, size));
      EXPECT_FALSE(read(block, size, 1));
    }
  }
}

TEST_P(SharedStoreContract, a_value_under_another_name_is_corrupt) {
  const StoredBlock block = root_block(1);
  const StoredBlock other = root_block(2);
  ASSERT_FALSE(write(block, small_block));
  ASSERT_FALSE(write(other, small_block));
  Value stolen;
  harness_->change(value_name(other, 0), [&](Value& value) { stolen = value; });
  harness_->change(value_name(block, 0), [&](Value& value) { value = stolen; });
  EXPECT_EQ(read(block, small_block), Errc::corrupt);
  EXPECT_EQ(mismatches(SharedMismatch::key), 1U);
  EXPECT_FALSE(read(other, small_block));
}

TEST_P(SharedStoreContract, a_block_with_another_parent_or_depth_is_corrupt) {
  const auto prefix = prefix_of(1, 2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_FALSE(write(prefix[1], small_block));
    StoredBlock wanted = prefix[1];
    if (i == 0) wanted.parent = key_of(99);
    else ++wanted.depth;
    EXPECT_EQ(read(wanted, small_block), Errc::corrupt);
    EXPECT_EQ(mismatches(SharedMismatch::key), i + 1U);
    drain();
  }
}

TEST_P(SharedStoreContract, a_block_of_another_size_is_corrupt) {
  for (const auto& [written, wanted] : {std::pair{small_block, small_block + 8}, std::pair{large_block, small_block},
                                        std::pair{small_block, large_block}, std::pair{large_block, large_block + 8}}) {
    const StoredBlock block = root_block(written + wanted);
    ASSERT_FALSE(write(block, written));
    const std::uint64_t before = mismatches(SharedMismatch::length);
    EXPECT_EQ(read(block, wanted), Errc::corrupt);
    EXPECT_EQ(mismatches(SharedMismatch::length), before + 1);
  }
}

TEST_P(SharedStoreContract, a_value_that_is_cut_or_longer_is_corrupt) {
  std::uint64_t n = 1;
  for (const std::size_t left :
       {large_block / 2, shared_header_bytes, shared_header_bytes - 1, std::size_t{1}, 2 * large_block}) {
    const StoredBlock block = root_block(n++);
    ASSERT_FALSE(write(block, large_block));
    harness_->change(value_name(block, 0), [left](Value& value) { value.resize(left); });
    const SharedMismatch why = left < shared_header_bytes ? SharedMismatch::format : SharedMismatch::length;
    const std::uint64_t before = mismatches(why);
    EXPECT_EQ(read(block, large_block), Errc::corrupt) << left;
    EXPECT_EQ(mismatches(why), before + 1) << left;
  }
}

TEST_P(SharedStoreContract, a_block_whose_second_part_is_gone_is_corrupt_and_one_without_its_first_part_is_not_there) {
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(write(block, large_block));
  harness_->change(value_name(block, 1), [](Value& value) { value.clear(); });
  EXPECT_EQ(read(block, large_block), Errc::corrupt);
  EXPECT_EQ(mismatches(SharedMismatch::length), 1U);
  for (int i = 0; i < 100'000 && leading({block}) == 1; ++i) harness_->pass();
  ASSERT_FALSE(write(block, large_block));
  harness_->change(value_name(block, 0), [](Value& value) { value.clear(); });
  EXPECT_EQ(leading({block}), 0U);
  EXPECT_EQ(read(block, large_block), Errc::not_found);
}

TEST_P(SharedStoreContract, parts_of_two_writes_are_not_mixed) {
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(write(block, large_block));
  Value first;
  harness_->change(value_name(block, 0), [&](Value& value) { first = value; });
  ASSERT_FALSE(write(block, large_block));
  harness_->change(value_name(block, 0), [&](Value& value) { value = first; });
  EXPECT_EQ(read(block, large_block), Errc::corrupt);
  EXPECT_EQ(mismatches(SharedMismatch::length), 1U);
}

TEST_P(SharedStoreContract, bytes_of_others_are_corrupt) {
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(write(block, small_block));
  harness_->change(value_name(block, 0), [](Value& value) { std::ranges::fill(value, std::byte{'x'}); });
  EXPECT_EQ(read(block, small_block), Errc::corrupt);
  EXPECT_EQ(mismatches(SharedMismatch::format), 1U);
}

TEST_P(SharedStoreContract, a_user_with_another_secret_reads_nothing) {
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(write(block, small_block));
  if (GetParam().sealed) {
    EXPECT_EQ(read(block, small_block, 2), Errc::corrupt);
    EXPECT_EQ(mismatches(SharedMismatch::seal, 2), 1U);
  } else {
    EXPECT_FALSE(read(block, small_block, 2)) << "without secrets, all users are the same";
  }
}

TEST_P(SharedStoreContract, a_full_engine_is_no_failure) {
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(write(block, small_block));
  harness_->set_full(true);
  EXPECT_EQ(write(root_block(2), large_block), Errc::full);
  EXPECT_EQ(store().stat().full, 1U);
  EXPECT_EQ(store().stat().failed, 0U);
  EXPECT_FALSE(read(block, small_block));
  EXPECT_EQ(read(root_block(2), large_block), Errc::not_found);
  EXPECT_TRUE(store().usable());
}

// ---- deadlines, cancelling ---------------------------------------------------------------------------------------------

TEST_P(SharedStoreContract, operations_end_at_their_deadlines_and_then_touch_nothing) {
  const StoredBlock block = root_block(1);
  const StoredBlock other = root_block(2);
  ASSERT_FALSE(write(block, large_block));
  harness_->stall(true);
  const TimePoint deadline = harness_->now() + std::chrono::milliseconds{40};
  const std::uint64_t probe = start_probe({block}, 0, deadline);
  const std::uint64_t read_token = start_read(block, large_block, 0, deadline);
  const std::uint64_t write_token = start_write(other, large_block, 0, deadline);
  EXPECT_EQ(store().in_flight(), 3U);
  harness_->pass(std::chrono::milliseconds{45});
  drain();
  EXPECT_GE(harness_->now(), deadline);
  for (const std::uint64_t token : {probe, read_token, write_token}) EXPECT_EQ(event(token).error, Errc::deadline_exceeded);
  EXPECT_EQ(store().stat().timed_out, 3U);

  expect_untouched(read_token, write_token, other);
  EXPECT_FALSE(read(block, large_block)) << "the store works again";
}

TEST_P(SharedStoreContract, what_is_cancelled_ends_at_once) {
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(write(block, large_block));
  harness_->stall(true);
  const std::uint64_t probe = start_probe({block});
  const std::uint64_t read_token = start_read(block, large_block);
  const std::uint64_t write_token = start_write(root_block(2), large_block);
  for (const std::uint64_t token : {probe, read_token, write_token}) store().cancel(token);
  store().cancel(12345);  // there is none
  drain();
  for (const std::uint64_t token : {probe, read_token, write_token}) EXPECT_EQ(event(token).error, Errc::cancelled);
  expect_untouched(read_token, write_token, root_block(2));
  EXPECT_FALSE(read(block, large_block));
}

TEST_P(SharedStoreContract, cancelling_what_has_ended_changes_nothing) {
  const std::uint64_t token = start_write(root_block(1), small_block);
  drain();
  store().cancel(token);
  drain();
  EXPECT_FALSE(event(token).error);
  EXPECT_FALSE(read(root_block(1), small_block));
}

TEST_P(SharedStoreContract, a_store_that_ends_leaves_the_memory_of_its_operations) {
  const StoredBlock block = root_block(1);
  ASSERT_FALSE(write(block, large_block));
  harness_->stall(true);
  const std::uint64_t read_token = start_read(block, large_block);
  const std::uint64_t write_token = start_write(root_block(2), large_block);
  harness_->end_user();
  std::ranges::fill(memory(read_token), std::byte{0x11});
  std::ranges::fill(memory(write_token), std::byte{0x22});
  harness_->stall(false);
  EXPECT_FALSE(read(block, large_block, 1));
  EXPECT_TRUE(std::ranges::all_of(memory(read_token), [](std::byte byte) { return byte == std::byte{0x11}; }));
  const ErrorCode late = read(root_block(2), large_block, 1);
  EXPECT_TRUE(!late || late == Errc::not_found) << late.message();
}

TEST_P(SharedStoreContract, the_waker_is_woken_when_something_has_ended) {
  CountingWaker waker;
  store().set_waker(&waker);
  const std::uint64_t token = start_write(root_block(1), small_block);
  for (int i = 0; i < 100'000 && waker.woken == 0 && store().next_deadline() > harness_->now(); ++i) harness_->pass();
  poll();
  EXPECT_TRUE(has_event(token)) << "woken, or time to poll, and nothing was there";
  store().set_waker(nullptr);
  EXPECT_FALSE(read(root_block(1), small_block));
}

TEST_P(SharedStoreContract, says_that_it_is_well) {
  ASSERT_FALSE(write(root_block(1), small_block));
  // The block needs one node; others may still be connected.
  for (int i = 0; i < 100'000 && store().health().state != StoreState::well; ++i) {
    harness_->pass();
    poll();
  }
  const SharedHealth health = store().health();
  EXPECT_EQ(health.state, StoreState::well);
  EXPECT_TRUE(health.reason.empty());
  ASSERT_FALSE(health.nodes.empty());
  for (const SharedNode& node : health.nodes) {
    EXPECT_FALSE(node.address.empty());
    EXPECT_EQ(node.breaker, BreakerState::closed);
  }
  EXPECT_TRUE(store().usable());
}

}  // namespace
}  // namespace terrace::contract
