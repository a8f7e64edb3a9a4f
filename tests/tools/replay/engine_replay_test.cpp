// Requests as in an engine: whole replays in this process, with both ways to drive the cache.
#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tools/replay/engine/slot_reserve.hpp"
#include "tools/replay/replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace terrace::tools {

// For test names and messages.
void PrintTo(Mode mode, std::ostream* out) { *out << to_string(mode); }

namespace {

/// Three tiers, each too small for the work.
ReplayOptions small_tiers(Mode mode) {
  ReplayOptions options;
  options.mode = mode;
  options.block_tokens = 64;
  options.block_bytes = Bytes{1024};
  options.device_blocks = 150;
  options.host_blocks = 300;
  options.system.storage = MemoryStorage{KiB * 800};
  options.write_policy = WritePolicy::write_back;
  options.requests_max = 250;
  options.concurrency = 16;
  options.output_tokens_max = 300;
  return options;
}

/// Large tiers and one request at a time, so that hits depend only on the workload.
ReplayOptions roomy(Mode mode, const std::string& workload) {
  ReplayOptions options;
  options.mode = mode;
  options.workload = workload;
  options.block_tokens = 64;
  options.block_bytes = Bytes{64};
  options.device_blocks = 60'000;
  options.host_blocks = 0;
  options.requests_max = 250;
  options.concurrency = 1;
  options.output_tokens_max = 130;
  return options;
}

ReplayResult replay_well(const ReplayOptions& options) {
  ReplayResult result = run_replay(options);
  const Verdict verdict = judge(options, result);
  EXPECT_EQ(verdict.status, ExitStatus::done) << verdict.line;
  EXPECT_EQ(result.checked, result.counts.hits());
  EXPECT_EQ(result.counts.found.sum() + result.counts.miss, result.counts.total);
  return result;
}

class EngineReplay : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, EngineReplay, testing::Values(Mode::confined, Mode::loop),
                         [](const auto& row) { return std::string{to_string(row.param)}; });

TEST_P(EngineReplay, takes_preempted_requests_up_again_where_they_were) {
  const ReplayOptions options = small_tiers(GetParam());
  const ReplayResult result = replay_well(options);
  EXPECT_EQ(result.counts.requests + result.counts.rejected, options.requests_max);
  EXPECT_GT(result.engine.preemptions, 0U);
  EXPECT_GT(result.engine.hits_again, 0U);
  // The hits of preempted requests are compared too, and counted separately.
  EXPECT_EQ(result.compared, result.checked + result.engine.hits_again);
  EXPECT_GT(result.engine.output_blocks, 0U);
  EXPECT_EQ(result.engine.aborted, 0U);
}

/// The replay after a restart, with all blocks of the one request in storage. The request waits for the end of its prefetch if
/// it comes before, so the tiers in which it finds its blocks do not depend on the speed of the machine.
TEST(ConfinedReplay, announces_requests_and_finds_their_blocks_in_the_host_tier) {
  const test::TemporaryDirectory directory;
  ReplayOptions options = small_tiers(Mode::confined);
  options.trace =
      directory.write("t.jsonl", R"({"timestamp": 50, "input_length": 2000, "output_length": 1, "hash_ids": [1, 2, 3, 4]})"
                                 "\n");
  options.block_tokens = 512;
  options.block_bytes = Bytes{4096};
  options.system.storage = FileStorage{.directories = {directory.path() / "store"}, .capacity = MiB, .io = IoChoice::threads};
  options.write_policy = WritePolicy::write_through;
  options.speed = 1;
  ASSERT_EQ(replay_well(options).counts.miss, 3U);

  const ReplayResult without = replay_well(options);
  EXPECT_EQ(without.prefetches.orders, 0U);
  EXPECT_EQ(without.counts.found[Source::storage], 3U);
  options.prefetch_ahead = std::chrono::duration<double>{0.02};
  const ReplayResult with = replay_well(options);
  EXPECT_EQ(with.prefetches.orders, 1U);
  EXPECT_EQ(with.prefetches.from_storage, 3U);
  EXPECT_EQ(with.counts.found[Source::host], 3U);
  EXPECT_EQ(with.counts.found[Source::storage], 0U);
}

TEST_P(EngineReplay, gets_everything_back_from_requests_that_are_aborted) {
  ReplayOptions options = small_tiers(GetParam());
  options.abort_rate = 0.5;
  for (const InclusionPolicy inclusion : {InclusionPolicy::lazy_exclusive, InclusionPolicy::non_inclusive,
                                          InclusionPolicy::exclusive, InclusionPolicy::inclusive}) {
    for (const Release release : {Release::done, Release::launch}) {
      options.system.inclusion = inclusion;
      options.release = release;
      const ReplayResult result = replay_well(options);
      EXPECT_GT(result.engine.aborted, options.requests_max / 5);
      EXPECT_EQ(result.counts.requests + result.counts.rejected + result.engine.aborted, options.requests_max);
    }
  }
}

TEST_P(EngineReplay, computes_prompts_in_chunks_and_answers_behind_them) {
  const test::TemporaryDirectory directory;
  ReplayOptions options = small_tiers(GetParam());
  const std::string first = R"({"timestamp": 0, "input_length": 1000, "output_length": 30, "hash_ids": [1, 2]})"
                            "\n";
  const std::string second = R"({"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]})"
                             "\n";
  options.trace = directory.write("t.jsonl", first + second);
  options.block_tokens = 512;
  options.concurrency = 1;
  options.step_tokens = 400;
  const ReplayResult result = replay_well(options);
  // The second block of the first request has a part of its answer. That of the second request has another id.
  EXPECT_EQ(result.counts.found[Source::device], 1U);
  EXPECT_EQ(result.counts.total, 3U);
  EXPECT_EQ(result.engine.prefilled, 1000U + 1100U - 512U);
  EXPECT_EQ(result.engine.decoded, 29U + 4U);
  EXPECT_EQ(result.engine.output_blocks, 1U);
  if (GetParam() == Mode::confined) {
    EXPECT_EQ(result.engine.steps, 3U + 29U + 2U + 4U);
    EXPECT_EQ(result.engine.running_mean(), 1);
  }
}

TEST_P(EngineReplay, finds_in_the_next_prompt_what_the_model_has_written) {
  for (const char* const workload : {"chat", "agent"}) {
    ReplayOptions options = roomy(GetParam(), workload);
    const ReplayResult with_output = replay_well(options);
    options.cache_output = false;
    const ReplayResult without = replay_well(options);
    EXPECT_EQ(without.engine.output_blocks, 0U);
    EXPECT_EQ(with_output.counts.total, without.counts.total);
    // Many answers in these requests are followed by a prompt that begins with them. Each block of such an answer is then one hit
    // that would have been a miss.
    EXPECT_GT(with_output.counts.hits(), without.counts.hits() + with_output.engine.output_blocks / 4) << workload;
    EXPECT_LE(with_output.counts.hits(), without.counts.hits() + with_output.engine.output_blocks) << workload;
  }
}

TEST_P(EngineReplay, invents_no_hits_where_nobody_asks_for_an_answer) {
  ReplayOptions options = roomy(GetParam(), "rag");
  const ReplayResult with_output = replay_well(options);
  options.cache_output = false;
  EXPECT_GT(with_output.engine.output_blocks, 0U);
  EXPECT_EQ(with_output.counts.hits(), replay_well(options).counts.hits());
}

TEST_P(EngineReplay, takes_hits_from_the_tiers_that_it_is_told_to_and_where_told_only_what_pays) {
  ReplayOptions options = small_tiers(GetParam());
  options.write_policy = WritePolicy::write_through;
  options.prefill_speed = 1e12;  // no load is as fast as this
  const auto replay_with = [&options](Loads loads) {
    options.loads = loads;
    return replay_well(options);
  };
  const ReplayResult always = replay_with(Loads::always);
  EXPECT_GT(always.counts.found[Source::host], 0U);
  EXPECT_GT(always.counts.found[Source::storage], 0U);
  EXPECT_EQ(always.manager.turned_down, 0U);
  const ReplayResult measured = replay_with(Loads::measured);
  EXPECT_GT(measured.manager.turned_down, 0U);
  const ReplayResult host = replay_with(Loads::host);
  EXPECT_GT(host.counts.found[Source::host], 0U);
  EXPECT_EQ(host.counts.found[Source::storage], 0U);
  EXPECT_EQ(host.moved.storage_reads.blocks, 0U);
  const ReplayResult none = replay_with(Loads::none);
  EXPECT_GT(none.counts.found[Source::device], 0U);
  EXPECT_EQ(none.counts.found[Source::host], 0U);
  EXPECT_EQ(none.counts.found[Source::storage], 0U);
  EXPECT_EQ(none.moved.swap_in.blocks, 0U);
}

TEST_P(EngineReplay, writes_no_more_than_leaves_a_request_within_the_device) {
  const test::TemporaryDirectory directory;
  ReplayOptions options = small_tiers(GetParam());
  options.trace =
      directory.write("t.jsonl", R"({"timestamp": 0, "input_length": 130, "output_length": 9999, "hash_ids": [1, 2, 3]})"
                                 "\n");
  options.device_blocks = 4;
  options.output_tokens_max = 9999;
  const ReplayResult result = replay_well(options);
  EXPECT_EQ(result.counts.requests, 1U);
  EXPECT_EQ(result.engine.decoded, 4U * 64 - 130);
}

TEST(EngineSteps, computes_no_more_tokens_in_a_step_than_it_may) {
  ReplayOptions options = roomy(Mode::confined, "chat");
  options.concurrency = 16;
  options.step_tokens = 100;
  options.output_tokens_max = 1;
  const ReplayResult result = replay_well(options);
  EXPECT_GE(result.engine.steps, (result.engine.prefilled + 99) / 100);
  EXPECT_LT(result.engine.steps, result.engine.prefilled / 100 * 11 / 10);
}

/// Blocks are shared when they are launched, chunk by chunk: a request that comes while a prompt is computed finds its done part.
TEST(EngineSteps, shares_a_prompt_chunk_by_chunk) {
  const test::TemporaryDirectory directory;
  const std::string line = R"({"timestamp": 0, "input_length": 1536, "output_length": 1, "hash_ids": [1, 2, 3]})"
                           "\n";
  ReplayOptions options = small_tiers(Mode::confined);
  options.trace = directory.write("t.jsonl", line + line + line);
  options.block_tokens = 512;
  // In the second step, the last chunk of the first request leaves tokens for the second request, which also finds that chunk.
  options.step_tokens = 1000;
  const ReplayResult result = replay_well(options);
  EXPECT_EQ(result.counts.hits(), 4U) << "of each the block with the last token is left to compute";
  EXPECT_EQ(result.engine.prefilled, 1536U + 512U + 512U);
}

using test::keys_of;

constexpr std::uint32_t reserved = 4;

/// A device and a host of two blocks each; no block is in both tiers.
class SlotReserveTest : public testing::Test {
 protected:
  static CacheSystemOptions options() {
    CacheSystemOptions options;
    options.ranks[0].device = InstantGpu{};
    options.pools = {
        {.block_bytes = Bytes{64}, .device_blocks = 2, .device_blocks_max = Blocks{2} + Blocks{reserved}, .host_blocks = 2}};
    options.inclusion = InclusionPolicy::exclusive;
    options.policy = lru_policy;
    return options;
  }

  /// Acquires with slots of the reserve, which then frees slots again.
  Lease acquire(std::uint64_t id, const std::vector<BlockKey>& keys) {
    AcquireRequest wanted = test::request_for(id, keys);
    reserve_.give();
    Lease lease = cache_.acquire(wanted).value();
    EXPECT_TRUE(cache_.wait(lease).has_value());
    EXPECT_TRUE(reserve_.take());
    return lease;
  }
  void serve(std::uint64_t id, const std::vector<BlockKey>& keys) {
    Lease lease = acquire(id, keys);
    ASSERT_TRUE(cache_.commit(lease, keys, Fence{}).has_value());
    cache_.release(std::move(lease), no_longer_used);
    cache_.drain();
  }
  [[nodiscard]] std::uint64_t cached(Tier tier) const { return cache_.manager().residency().tree().resident(tier); }

  CacheSystem stack_{options()};
  Cache& cache_ = stack_.cache();
  SlotReserve reserve_{cache_, reserved};
};

TEST_F(SlotReserveTest, leaves_the_cache_what_it_was_configured_with) {
  EXPECT_EQ(cache_.manager().device_ledger().free, 2U);
  serve(1, keys_of({1, 2}));
  serve(2, keys_of({3, 4}));
  EXPECT_EQ(cached(Tier::device), 2U);
  EXPECT_EQ(cached(Tier::host), 2U);
  EXPECT_EQ(cache_.manager().device_ledger().free, 0U);
  EXPECT_EQ(reserve_.requests(), 3U);
}

/// Without the reserve, each evicted block would take the place of a host block before the hits have left their slots.
TEST_F(SlotReserveTest, has_hits_leave_the_host_before_others_go_there) {
  serve(1, keys_of({1, 2}));
  serve(2, keys_of({3, 4}));
  for (std::uint64_t id = 3; id < 9; ++id) {
    const std::vector<BlockKey> keys = id % 2 == 0 ? keys_of({3, 4}) : keys_of({1, 2});
    EXPECT_EQ(cache_.match(keys).found[Source::host], 2U);
    serve(id, keys);
    EXPECT_EQ(cache_.match(keys).found[Source::device], 2U);
    EXPECT_EQ(cached(Tier::host), 2U);
  }
  EXPECT_EQ(cache_.stats().evicted_host, 0U);
}

TEST_F(SlotReserveTest, takes_its_slots_when_an_operator_resumes_the_cache) {
  serve(1, keys_of({1, 2}));
  reserve_.give();
  cache_.clear({.wait = true});
  EXPECT_FALSE(reserve_.take());
  reserve_.give();
  cache_.drain();
  ASSERT_TRUE(cache_.resume().has_value());
  EXPECT_TRUE(reserve_.take());
  EXPECT_EQ(cache_.manager().device_ledger().free, 2U);
  EXPECT_EQ(reserve_.requests(), 3U) << "those that were refused are not counted";
}

TEST_F(SlotReserveTest, holds_on_to_what_the_request_hit) {
  serve(1, keys_of({1, 2}));
  Lease held = acquire(2, keys_of({1, 2}));
  EXPECT_EQ(cache_.match(keys_of({1, 2})).found[Source::device], 2U);
  cache_.release(std::move(held), no_longer_used);
}

}  // namespace

}  // namespace terrace::tools
