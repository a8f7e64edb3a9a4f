#include "runtime/store/tier_batches.hpp"

#include "storage/io/aligned_buffer.hpp"
#include "tests/runtime/store/gated_stores.hpp"
#include "tests/seed.hpp"
#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

constexpr std::uint32_t capacity = 24;
constexpr std::uint64_t model_keys = 60;
constexpr std::uint32_t model_rows = 48;
constexpr std::size_t model_steps = 1500;

enum class Sharing : bool { no, yes };

/// Random batches on a store, beside a map of what must be there, and the expected content of every row that is read. With
/// sharing, there is a shared store behind it, which stops and fails now and then.
class Model {
 public:
  Model(StoreKind kind, std::uint64_t seed, Sharing sharing)
      : harness_{make_harness(kind, capacity)},
        sharing_{sharing},
        layered_{harness_->store(), shared_, clock_, {}},
        // Rows with gaps, none of them at a multiple of 4 KiB.
        memory_(model_rows * stride + 8),
        batches_{sharing == Sharing::yes ? static_cast<BlockStore&>(layered_) : harness_->store(),
                 nullptr,
                 nullptr,
                 clock_,
                 nobody_,
                 {.blocks_max = 64, .gets_under_way_max = 5, .puts_under_way_max = 4, .flush_interval = std::chrono::seconds{1}},
                 sharing == Sharing::yes ? &layered_ : nullptr},
        random_{seed} {
    const HostRows rows{memory_.data() + 8, model_rows, Bytes{block_size}, Bytes{stride}};
    region_ = batches_.regions().add(rows, Bytes{block_size}, nullptr).value();
    rows_ = rows;
  }

  void run() {
    for (std::size_t step = 0; step < model_steps && !::testing::Test::HasFailure(); ++step) {
      act();
      disturb();
      poll();
      layered_.check_invariants();
      batches_.check_invariants();
      if (step % 50 == 0) settle();
    }
    settle();
    EXPECT_GT(hits_, 100U);
    EXPECT_GT(evicted_, 50U);
    EXPECT_GT(with_parent_, 2U);
    const TierStatistics now = batches_.statistics();
    EXPECT_EQ(now.gets, now.hits + now.misses + now.corrupt + now.get_failures + now.gets_cancelled + now.gets_late);
    EXPECT_EQ(now.puts, now.stored + now.put_failures + now.puts_cancelled + now.puts_late);
    EXPECT_EQ(now.unaligned, now.hits + now.stored);
    EXPECT_EQ(now.hits, hits_);
    if (sharing_ == Sharing::no) return;
    EXPECT_EQ(now.shared_gets, now.shared_hits + now.shared_misses + now.shared_gets_declined);
    EXPECT_EQ(now.shared_puts, now.shared_stored + now.shared_present + now.shared_not_stored + now.shared_puts_cancelled +
                                   now.shared_puts_declined);
    for (const std::uint64_t each :
         {now.shared_hits, now.shared_stored, now.shared_present, now.shared_misses, now.shared_not_stored}) {
      EXPECT_GT(each, 10U);
    }
  }

 private:
  static constexpr std::size_t stride = block_size + 24;

  struct Expected {
    BatchKind kind;
    std::vector<BlockKey> keys;
    std::vector<std::uint32_t> rows;
  };

  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return random_() % end; }

  /// Distinct free rows; fewer if there are too few.
  [[nodiscard]] std::vector<std::uint32_t> free_rows(std::size_t wanted) {
    std::vector<std::uint32_t> rows;
    for (std::uint32_t row = 0; row < model_rows && rows.size() < wanted; ++row) {
      if (!busy_.contains(row)) rows.push_back(row);
    }
    return rows;
  }

  void disturb() {
    shared_.held = below(shared_.held ? 2 : 10) == 0 ? !shared_.held : shared_.held;
    shared_.is_usable = below(shared_.is_usable ? 50 : 5) == 0 ? !shared_.is_usable : shared_.is_usable;
    const bool fails = below(3) == 0;
    shared_.fails_with = fails ? make_error_code(Errc::deadline_exceeded) : ErrorCode{};
    if (layered_.shared_is_left() && below(4) == 0) layered_.resume_shared();
    if (below(8) == 0) shared_.remove(std::vector{key_of(below(model_keys)), key_of(below(model_keys))}, {});
  }

  void act() {
    clock_.advance(std::chrono::milliseconds{below(40)});
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
      case 3: return put();
      case 4:
      case 5:
      case 6:
      case 7: return get();
      case 8:
        if (!expected_.empty()) static_cast<void>(batches_.cancel(BatchId{expected_.rbegin()->first}));
        return;
      case 9: {
        const std::vector<BlockKey> gone{key_of(below(model_keys)), key_of(below(model_keys))};
        return static_cast<void>(batches_.remove(gone));
      }
      case 10:
        if (below(20) == 0) return static_cast<void>(batches_.clear());
        if (batches_.submit_flush(BatchId{next_id_})) expected_[next_id_] = {BatchKind::flush, {}, {}};
        ++next_id_;
        return;
      default: harness_->advance();
    }
  }

  void put() {
    Expected put{BatchKind::put, {}, free_rows(1 + below(8))};
    std::vector<BlockKey> parents;
    for (const std::uint32_t row : put.rows) {
      const std::uint64_t number = below(model_keys);
      put.keys.push_back(key_of(number));
      test::fill(rows_.row(row), put.keys.back());
      // A parent is any smaller number, or none; it need not be stored.
      parents.push_back(number > 0 && below(2) == 0 ? key_of(below(number)) : BlockKey{});
    }
    if (below(3) == 0) parents.clear();
    const TimePoint deadline = below(10) == 0 ? clock_.now() + std::chrono::milliseconds{below(60)} : never;
    if (!batches_.submit_put({BatchId{next_id_}, put.keys, region_, put.rows, parents, deadline})) return;
    begin(std::move(put));
  }

  void get() {
    Expected get{BatchKind::get, {}, free_rows(1 + below(8))};
    for (const std::uint32_t row : get.rows) {
      get.keys.push_back(key_of(below(model_keys)));
      std::ranges::fill(rows_.row(row), std::byte{0xEE});
    }
    const TimePoint deadline = below(10) == 0 ? clock_.now() + std::chrono::milliseconds{below(60)} : never;
    if (!batches_.submit_get({BatchId{next_id_}, get.keys, region_, get.rows, deadline})) return;
    begin(std::move(get));
  }

  void begin(Expected batch) {
    for (const std::uint32_t row : batch.rows) busy_.insert(row);
    expected_[next_id_++] = std::move(batch);
  }

  void poll() {
    std::vector<BatchResult> results;
    batches_.poll(results);
    std::vector<TierEvent> events;
    batches_.poll_events(events);
    for (const BatchResult& result : results) check(result);
    for (const TierEvent& event : events) {
      const bool is_stored = event.kind == TierEvent::Kind::stored;
      EXPECT_TRUE(!is_stored || there_.insert(event.key).second) << "stored twice";
      if (event.kind == TierEvent::Kind::evicted) ++evicted_;
      if (event.kind == TierEvent::Kind::evicted || event.kind == TierEvent::Kind::removed) there_.erase(event.key);
      if (event.kind == TierEvent::Kind::memory_free) release(abandoned_.extract(event.batch.value()).mapped());
    }
    std::uint64_t depth = 0;
    harness_->store().for_each([&](const StoredBlock& block) { depth += block.depth > 0; });
    with_parent_ = std::max(with_parent_, depth);
  }

  void check(const BatchResult& result) {
    const auto at = expected_.find(result.id.value());
    ASSERT_NE(at, expected_.end()) << "a second result";
    const Expected batch = std::move(at->second);
    expected_.erase(at);
    EXPECT_EQ(result.kind, batch.kind);
    if (batch.kind == BatchKind::flush) {
      EXPECT_FALSE(result.errors.at(0)) << result.errors[0].message();
      return;
    }
    ASSERT_EQ(result.errors.size(), batch.keys.size());
    std::uint32_t succeeded = 0;
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      const std::span<const std::byte> row = rows_.row(batch.rows[i]);
      if (result.errors[i]) {
        const bool ours = result.errors[i] == Errc::cancelled || result.errors[i] == Errc::deadline_exceeded;
        EXPECT_TRUE(ours || (batch.kind == BatchKind::get ? result.errors[i] == Errc::not_found
                                                          : result.errors[i] == Errc::full || result.errors[i] == Errc::refused))
            << result.errors[i].message();
        continue;
      }
      ++succeeded;
      EXPECT_TRUE(holds(row, batch.keys[i])) << "byte for byte";
      hits_ += batch.kind == BatchKind::get;
    }
    EXPECT_EQ(result.succeeded, succeeded);
    EXPECT_EQ(result.bytes, Bytes{block_size} * succeeded);
    if (result.memory_in_use) abandoned_[result.id.value()] = batch.rows;
    else release(batch.rows);
  }

  void release(const std::vector<std::uint32_t>& rows) {
    for (const std::uint32_t row : rows) EXPECT_EQ(busy_.erase(row), 1U);
  }

  /// Waits until nothing is under way. Then the store has exactly what the events say, and each block that it has is a hit.
  void settle() {
    shared_.held = false;
    for (int i = 0; !batches_.is_idle() || !expected_.empty(); ++i) {
      ASSERT_LT(i, 10000);
      harness_->advance();
      poll();
    }
    EXPECT_TRUE(abandoned_.empty());
    EXPECT_TRUE(busy_.empty());
    for (std::uint64_t n = 0; n < model_keys; ++n) {
      EXPECT_EQ(batches_.contains(key_of(n)), there_.contains(key_of(n))) << n;
    }
    const std::vector<BlockKey> all{there_.begin(), there_.end()};
    Expected get{BatchKind::get, all, free_rows(all.size())};
    ASSERT_TRUE(batches_.submit_get({BatchId{next_id_}, get.keys, region_, get.rows, never}));
    const std::uint64_t before = hits_;
    begin(std::move(get));
    while (!batches_.is_idle()) {
      harness_->advance();
      poll();
    }
    poll();
    EXPECT_EQ(hits_ - before, all.size());
  }

  ManualClock clock_;
  std::unique_ptr<StoreHarness> harness_;
  Sharing sharing_;
  GatedSharedStore shared_;
  LayeredStore layered_;
  AlignedBuffer memory_;
  NullWaker nobody_;
  TierBatches batches_;
  std::mt19937_64 random_;
  HostRows rows_;
  HostRegionId region_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Expected> expected_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> abandoned_;
  std::set<std::uint32_t> busy_;
  std::set<BlockKey> there_;
  std::uint64_t hits_ = 0;
  std::uint64_t evicted_ = 0;
  std::uint64_t with_parent_ = 0;
};

class TierBatchesModel : public ::testing::TestWithParam<StoreKind> {};

TEST_P(TierBatchesModel, agree_with_a_map_byte_for_byte) {
  for (std::uint64_t seed = 1; seed <= 4 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model{GetParam(), seed, Sharing::no}.run();
  }
}

TEST_P(TierBatchesModel, with_a_shared_store_that_fails_agree_with_a_map_byte_for_byte) {
  for (std::uint64_t seed = 1; seed <= 4 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model{GetParam(), seed, Sharing::yes}.run();
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, TierBatchesModel,
                         ::testing::Values(StoreKind::memory, StoreKind::file_simulated, StoreKind::file_threads,
                                           StoreKind::striped_simulated),
                         [](const auto& param) { return test::to_string(param.param); });

}  // namespace
}  // namespace terrace::test
