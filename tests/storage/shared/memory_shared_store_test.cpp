#include "storage/shared/memory_shared_store.hpp"

#include "tests/storage/shared/shared_store_contract.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace terrace::contract {
namespace {

constexpr Bytes engine_bytes{MiB * 8};

/// Nothing happens before a poll, so a stalled engine is one without polls.
class MemoryHarness final : public SharedStoreHarness {
 public:
  explicit MemoryHarness(bool sealed) {
    for (std::size_t n = 0; n < 3; ++n) {
      MemorySharedOptions options{.prefix = contract_prefix, .expiry = {.after = std::chrono::minutes{1}}};
      if (sealed) options.secret = n < 2 ? secret_of() : secret_of("another secret, of another deployment");
      users_.push_back(std::make_unique<MemorySharedStore>(engine_, clock_, options));
    }
  }
  [[nodiscard]] SharedStore& user(std::size_t n) override { return *users_[n]; }
  void end_user() override { users_[0].reset(); }
  [[nodiscard]] TimePoint now() const override { return clock_.now(); }
  void pass() override { clock_.advance(std::chrono::microseconds{100}); }
  void pass(Duration time) override { clock_.advance(time); }
  [[nodiscard]] Duration expiry() const override { return std::chrono::minutes{1}; }
  void stall(bool) override {}
  void set_full(bool full) override {
    const std::string name = "of others";
    engine_->remove(name);
    if (!full) return;
    Value rest(count(engine_bytes) - count(engine_->used()) - name.size());
    ASSERT_TRUE(engine_->set({{name, std::move(rest)}}, never, now()));
  }
  void change(const std::string& name, const std::function<void(Value&)>& how) override {
    bool is_gone = false;
    engine_->change(name, [&](Value& value) {
      how(value);
      is_gone = value.empty();
    });
    if (is_gone) engine_->remove(name);
  }

 private:
  ManualClock clock_;
  std::shared_ptr<SharedMemoryEngine> engine_ =
      std::make_shared<SharedMemoryEngine>(engine_bytes, SharedMemoryEngine::WhenFull::refuse);
  std::vector<std::unique_ptr<MemorySharedStore>> users_;
};

std::unique_ptr<SharedStoreHarness> make_memory(bool sealed) { return std::make_unique<MemoryHarness>(sealed); }

INSTANTIATE_TEST_SUITE_P(Memory, SharedStoreContract,
                         testing::Values(SharedStoreKind{"memory", false, make_memory},
                                         SharedStoreKind{"memory_sealed", true, make_memory}),
                         [](const auto& param) { return param.param.name; });

// ---- the engine in memory ----------------------------------------------------------------------------------------------

class SharedMemoryEngineTest : public testing::Test {
 protected:
  [[nodiscard]] bool set(const std::string& name, Duration expires_in, std::size_t bytes = 99) {
    return engine_.set({{name, Value(bytes)}}, clock_.now() + expires_in, clock_.now());
  }
  [[nodiscard]] bool get(const std::string& name) { return engine_.get(std::vector{name}, clock_.now())[0] != nullptr; }

  ManualClock clock_;
  SharedMemoryEngine engine_{Bytes{300}};  ///< room for three values with names of one character
};

TEST_F(SharedMemoryEngineTest, makes_room_by_what_expires_first) {
  EXPECT_TRUE(set("a", std::chrono::seconds{3}));
  EXPECT_TRUE(set("b", std::chrono::seconds{1}));
  EXPECT_TRUE(set("c", std::chrono::seconds{2}));
  EXPECT_EQ(count(engine_.used()), 300U);
  EXPECT_TRUE(set("d", std::chrono::seconds{9}));
  EXPECT_EQ(engine_.names(), (std::vector<std::string>{"a", "c", "d"}));
  engine_.renew("c", clock_.now() + std::chrono::seconds{20}, clock_.now());
  EXPECT_TRUE(set("e", std::chrono::seconds{9}));
  EXPECT_EQ(engine_.names(), (std::vector<std::string>{"c", "d", "e"}));
}

TEST_F(SharedMemoryEngineTest, makes_room_by_the_least_recently_used_of_those_that_expire_together) {
  for (const char* const name : {"a", "b", "c"}) EXPECT_TRUE(set(name, std::chrono::seconds{1}));
  EXPECT_TRUE(get("a"));
  EXPECT_TRUE(engine_.has("b", clock_.now())) << "to ask is no use";
  EXPECT_TRUE(set("d", std::chrono::seconds{1}));
  EXPECT_EQ(engine_.names(), (std::vector<std::string>{"a", "c", "d"}));
}

TEST_F(SharedMemoryEngineTest, sets_all_values_or_none) {
  SharedMemoryEngine refusing{Bytes{300}, SharedMemoryEngine::WhenFull::refuse};
  const TimePoint now = clock_.now();
  EXPECT_TRUE(refusing.set({{"a", Value(99)}, {"b", Value(99)}}, never, now));
  EXPECT_FALSE(refusing.set({{"c", Value(99)}, {"d", Value(99)}}, never, now));
  EXPECT_EQ(refusing.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(refusing.set({{"b", Value(99)}, {"c", Value(99)}}, never, now)) << "a value that is replaced makes room";
  EXPECT_FALSE(set("x", std::chrono::seconds{1}, 300));
  EXPECT_TRUE(engine_.names().empty());
}

TEST_F(SharedMemoryEngineTest, forgets_what_has_expired) {
  EXPECT_TRUE(set("a", std::chrono::seconds{1}));
  clock_.advance(std::chrono::seconds{1});
  EXPECT_FALSE(get("a"));
  engine_.renew("a", never, clock_.now());
  EXPECT_FALSE(engine_.has("a", clock_.now())) << "what has expired is not renewed";
  EXPECT_EQ(count(engine_.used()), 0U);
}

TEST(MemorySharedStoreTest, keeps_users_with_other_prefixes_apart) {
  ManualClock clock;
  const auto engine = std::make_shared<SharedMemoryEngine>(engine_bytes);
  MemorySharedStore first{engine, clock, {.prefix = "first"}};
  MemorySharedStore second{engine, clock, {.prefix = "second"}};
  std::vector<std::byte> memory(small_block);
  std::vector<SharedEvent> events;
  first.write(std::vector<SharedWrite>{{1, root_block(1), memory}});
  first.poll(events);
  second.read(std::vector<SharedRead>{{2, root_block(1), memory}});
  second.poll(events);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_FALSE(events[0].error);
  EXPECT_EQ(events[1].error, Errc::not_found);
  EXPECT_THROW((MemorySharedStore{engine, clock, {.prefix = "a{b}"}}), std::invalid_argument);
}

TEST(MemorySharedStoreTest, serves_several_threads_through_a_store_of_each) {
  const auto engine = std::make_shared<SharedMemoryEngine>(Bytes{MiB});  // too small for all blocks
  const SteadyClock clock;
  std::atomic<int> served{0};
  const auto use = [&](std::uint64_t seed) {
    MemorySharedStore store{engine, clock};
    std::vector<std::byte> memory(large_block);
    std::vector<SharedEvent> events;
    for (std::uint64_t n = 0; n < 200; ++n) {
      const StoredBlock block = root_block((seed + n * 7) % 24);
      fill(memory, block.key);
      store.write(std::vector<SharedWrite>{{1, block, memory}});
      store.poll(events);
      const StoredBlock wanted = root_block((seed + n * 5) % 24);
      store.read(std::vector<SharedRead>{{2, wanted, memory}});
      store.poll(events);
      const bool is_there = !events.back().error;
      EXPECT_TRUE(!is_there || holds(memory, wanted.key));
      served += is_there ? 1 : 0;
    }
    EXPECT_EQ(store.stat().corrupt(), 0U);
  };
  std::vector<std::thread> threads;
  for (std::uint64_t n = 0; n < 3; ++n) threads.emplace_back(use, n);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(served, 0);
}

TEST(SharedExpiryTest, is_shorter_for_deeper_blocks_down_to_half) {
  const SharedExpiry expiry{.after = std::chrono::seconds{10}, .per_depth = std::chrono::seconds{2}};
  EXPECT_EQ(expiry.of(0), std::chrono::seconds{10});
  EXPECT_EQ(expiry.of(1), std::chrono::seconds{8});
  EXPECT_EQ(expiry.of(2), std::chrono::seconds{6});
  EXPECT_EQ(expiry.of(3), std::chrono::seconds{5});
  EXPECT_EQ(expiry.of(0xffffffff), std::chrono::seconds{5});
  EXPECT_EQ((SharedExpiry{std::chrono::seconds{10}, Duration::zero()}.of(0xffffffff)), std::chrono::seconds{10});
  EXPECT_FALSE((SharedExpiry{Duration::zero(), std::chrono::seconds{2}}.expires()));
}

}  // namespace
}  // namespace terrace::contract
