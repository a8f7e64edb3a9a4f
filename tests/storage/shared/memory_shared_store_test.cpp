#include "storage/shared/memory_shared_store.hpp"

#include "tests/simulated/simulated_shared_store.hpp"
#include "tests/storage/shared/shared_store_contract.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <thread>

namespace terrace::contract {
namespace {

using NodeState = SimulatedSharedEngine::NodeState;
using std::chrono::milliseconds;

constexpr Bytes engine_bytes{MiB * 8};

/// Three users of one SharedMemoryEngine.
class InMemoryHarness : public SharedStoreHarness {
 public:
  [[nodiscard]] SharedStore& user(std::size_t n) override { return *users_[n]; }
  void end_user() override { users_[0].reset(); }
  [[nodiscard]] TimePoint now() const override { return clock_.now(); }
  void pass() override { clock_.advance(std::chrono::microseconds{100}); }
  void pass(Duration time) override { clock_.advance(time); }
  [[nodiscard]] Duration expiry() const override { return std::chrono::minutes{1}; }
  void change(const std::string& name, const std::function<void(Value&)>& how) override {
    bool is_gone = false;
    values().change(name, [&](Value& value) {
      how(value);
      is_gone = value.empty();
    });
    if (is_gone) values().remove(name);
  }

 protected:
  [[nodiscard]] virtual SharedMemoryEngine& values() = 0;
  [[nodiscard]] static MemorySharedOptions options_of(bool sealed, std::size_t user) {
    MemorySharedOptions options{.prefix = contract_prefix, .expiry = {.after = std::chrono::minutes{1}}};
    if (sealed) options.secret = user < 2 ? secret_of() : secret_of("another secret, of another deployment");
    return options;
  }

  ManualClock clock_;
  std::vector<std::unique_ptr<SharedStore>> users_;
};

/// Nothing happens before a poll, so a stalled engine is one without polls.
class MemoryHarness final : public InMemoryHarness {
 public:
  explicit MemoryHarness(bool sealed) {
    for (std::size_t n = 0; n < 3; ++n) {
      users_.push_back(std::make_unique<MemorySharedStore>(engine_, clock_, options_of(sealed, n)));
    }
  }
  void stall(bool) override {}
  void set_full(bool full) override {
    const std::string name = "of others";
    engine_->remove(name);
    if (!full) return;
    Value rest(count(engine_bytes) - count(engine_->used()) - name.size());
    ASSERT_TRUE(engine_->set({{name, std::move(rest)}}, never, now()));
  }

 private:
  [[nodiscard]] SharedMemoryEngine& values() override { return *engine_; }

  std::shared_ptr<SharedMemoryEngine> engine_ =
      std::make_shared<SharedMemoryEngine>(engine_bytes, SharedMemoryEngine::WhenFull::refuse);
};

class SimulatedHarness final : public InMemoryHarness {
 public:
  explicit SimulatedHarness(bool sealed) {
    for (std::size_t n = 0; n < 3; ++n) {
      users_.push_back(std::make_unique<SimulatedSharedStore>(engine_, SimulatedSharedOptions{.memory = options_of(sealed, n)}));
    }
  }
  ~SimulatedHarness() override { users_.clear(); }
  void stall(bool stalled) override { engine_.set_all_nodes(stalled ? NodeState::stalled : NodeState::well); }
  void set_full(bool full) override { engine_.set_full(full); }

 private:
  [[nodiscard]] SharedMemoryEngine& values() override { return *engine_.values(); }

  SimulatedSharedEngine engine_{seed_from_env_or(1), clock_, 3};
};

template <class Harness>
std::unique_ptr<SharedStoreHarness> make(bool sealed) {
  return std::make_unique<Harness>(sealed);
}

INSTANTIATE_TEST_SUITE_P(Memory, SharedStoreContract,
                         testing::Values(SharedStoreKind{"memory", false, make<MemoryHarness>},
                                         SharedStoreKind{"memory_sealed", true, make<MemoryHarness>}),
                         [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(Simulated, SharedStoreContract,
                         testing::Values(SharedStoreKind{"simulated", false, make<SimulatedHarness>},
                                         SharedStoreKind{"simulated_sealed", true, make<SimulatedHarness>}),
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

// ---- the simulation itself ---------------------------------------------------------------------------------------------

/// Two users that read and write some blocks, all faults on. Checks each event.
class FaultyWorld {
 public:
  explicit FaultyWorld(std::uint64_t seed, bool sealed = false) : random_{seed}, engine_{seed, clock_, 3, faults()} {
    SimulatedSharedOptions options{.memory = {.expiry = {.after = std::chrono::seconds{20}}}};
    if (sealed) options.memory.secret = secret_of();
    engine_.set_values_max(24);
    for (auto& store : stores_) store.emplace(engine_, options);
    for (auto& store : stores_) store->use(contract_fingerprint());
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    engine_.set_all_nodes(NodeState::well);
    for (int i = 0; i < 20; ++i) {
      clock_.advance(std::chrono::seconds{1});
      for (std::size_t user = 0; user < 2; ++user) poll(user);
    }
    EXPECT_TRUE(under_way_.empty());
    for (auto& store : stores_) EXPECT_EQ(store->in_flight(), 0U);
  }
  [[nodiscard]] SharedStoreStat stat(std::size_t user) const { return stores_[user]->stat(); }
  [[nodiscard]] const std::vector<std::pair<std::uint64_t, int>>& history() const { return history_; }
  [[nodiscard]] std::uint64_t opened() const { return unusable_; }

 private:
  static SimulatedSharedFaults faults() {
    return {.late = 0.05, .silent = 0.02, .failing = 0.02, .full = 0.02, .lost = 0.02, .evicting = 0.05, .damaging = 0.1};
  }
  static std::size_t bytes_of(const StoredBlock& block) { return block.depth % 4 == 3 ? large_block / 4 : 512; }

  struct UnderWay {
    std::size_t user;
    Kind kind;
    StoredBlock block;
    TimePoint deadline;
    std::vector<std::byte> memory;
  };

  void step() {
    const std::size_t user = random_.below(2);
    const StoredBlock block = prefix_[random_.below(prefix_.size())];
    const TimePoint deadline = random_.chance(0.2) ? never : clock_.now() + milliseconds{random_.between(1, 50)};
    const std::uint64_t token = ++token_;
    switch (random_.below(6)) {
      case 0: {
        std::vector<BlockKey> keys;
        for (const StoredBlock& each : prefix_) keys.push_back(each.key);
        begin(token, {user, Kind::probed, block, deadline, {}});
        stores_[user]->probe({token, keys, GroupId{}, deadline});
        break;
      }
      case 1:
      case 2: {
        UnderWay& operation = begin(token, {user, Kind::written, block, deadline, std::vector<std::byte>(bytes_of(block))});
        fill(operation.memory, block.key);
        stores_[user]->write(std::vector<SharedWrite>{{token, block, operation.memory, deadline}});
        break;
      }
      case 3:
        if (!under_way_.empty() && random_.chance(0.1)) {
          const auto any = std::next(under_way_.begin(), static_cast<std::ptrdiff_t>(random_.below(under_way_.size())));
          stores_[any->second.user]->cancel(any->first);
        }
        if (random_.chance(0.02)) {
          const auto node = static_cast<std::uint32_t>(random_.below(engine_.nodes()));
          const auto data = random_.chance(0.5) ? SimulatedSharedEngine::Data::kept : SimulatedSharedEngine::Data::lost;
          engine_.set_node(node, static_cast<NodeState>(random_.below(3)), data);
        }
        if (random_.chance(0.02)) engine_.set_all_nodes(static_cast<NodeState>(random_.below(3)));
        stores_[user]->renew(prefix_);
        break;
      default: {
        UnderWay& operation = begin(token, {user, Kind::read, block, deadline, std::vector<std::byte>(bytes_of(block))});
        stores_[user]->read(std::vector<SharedRead>{{token, block, operation.memory, deadline}});
      }
    }
    clock_.advance(std::chrono::microseconds{random_.below(5000)});
    if (random_.chance(0.01)) clock_.advance(std::chrono::seconds{random_.below(5)});
    poll(user);
    if (!stores_[user]->usable()) ++unusable_;
  }

  UnderWay& begin(std::uint64_t token, UnderWay operation) {
    return under_way_.emplace(token, std::move(operation)).first->second;
  }

  void poll(std::size_t user) {
    std::vector<SharedEvent> events;
    stores_[user]->poll(events);
    for (const SharedEvent& event : events) {
      const auto found = under_way_.find(event.token);
      ASSERT_NE(found, under_way_.end()) << "a second event";
      const UnderWay& operation = found->second;
      EXPECT_EQ(operation.user, user);
      EXPECT_EQ(operation.kind, event.kind);
      const bool good_read = event.kind == Kind::read && !event.error;
      EXPECT_TRUE(!good_read || holds(operation.memory, operation.block.key)) << "a wrong block was served";
      history_.emplace_back(event.token, event.error.value());
      under_way_.erase(found);
    }
    for (const auto& [token, operation] : under_way_) {
      EXPECT_TRUE(operation.user != user || operation.deadline > clock_.now()) << "not ended at its deadline";
    }
    EXPECT_GT(stores_[user]->next_deadline(), clock_.now());
  }

  Random random_;
  ManualClock clock_;
  SimulatedSharedEngine engine_;
  std::array<std::optional<SimulatedSharedStore>, 2> stores_;
  const std::vector<StoredBlock> prefix_ = prefix_of(1, 12);
  std::uint64_t token_ = 0;
  std::map<std::uint64_t, UnderWay> under_way_;
  std::vector<std::pair<std::uint64_t, int>> history_;
  std::uint64_t unusable_ = 0;
};

TEST(SimulatedSharedStoreTest, serves_no_wrong_block_and_forgets_no_operation_whatever_goes_wrong) {
  SharedStoreStat all;
  std::uint64_t opened = 0;
  const std::uint64_t first = seed_from_env_or(1);
  for (std::uint64_t seed = first; seed < first + 40; ++seed) {
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
    FaultyWorld world{seed, seed % 2 == 0};
    world.run(500);
    for (std::size_t user = 0; user < 2; ++user) {
      const SharedStoreStat stat = world.stat(user);
      all.reads += stat.reads;
      all.reads_missing += stat.reads_missing;
      all.writes += stat.writes;
      all.timed_out += stat.timed_out;
      all.failed += stat.failed;
      all.declined += stat.declined;
      all.full += stat.full;
      all.keys_there += stat.keys_there;
      for (std::size_t i = 0; i < shared_mismatch_count; ++i) all.mismatches[i] += stat.mismatches[i];
    }
    opened += world.opened();
  }
  // All of it has happened.
  for (const std::uint64_t count :
       {all.reads, all.reads_missing, all.writes, all.timed_out, all.failed, all.declined, all.full, all.keys_there, opened}) {
    EXPECT_GT(count, 10U);
  }
  for (std::size_t i = 0; i < shared_mismatch_count; ++i) {
    EXPECT_GT(all.mismatches[i], 0U) << to_string(static_cast<SharedMismatch>(i));
  }
}

TEST(SimulatedSharedStoreTest, takes_the_same_steps_with_the_same_seed) {
  FaultyWorld first{7};
  FaultyWorld second{7};
  FaultyWorld other{8};
  for (FaultyWorld* const world : {&first, &second, &other}) world->run(300);
  EXPECT_EQ(first.history(), second.history());
  EXPECT_NE(first.history(), other.history());
}

/// One user of three nodes, without random faults.
class SimulatedNodes : public testing::Test {
 protected:
  SharedEvent end_of(const std::function<void()>& call) {
    call();
    std::vector<SharedEvent> events;
    for (int i = 0; i < 1000 && events.empty(); ++i) {
      clock_.advance(milliseconds{1});
      store_.poll(events);
    }
    EXPECT_EQ(events.size(), 1U);
    return events.empty() ? SharedEvent{} : events[0];
  }
  ErrorCode write(const StoredBlock& block) {
    return end_of([&] { store_.write(std::vector<SharedWrite>{{1, block, memory_}}); }).error;
  }
  ErrorCode read(const StoredBlock& block) {
    return end_of([&] { store_.read(std::vector<SharedRead>{{2, block, memory_}}); }).error;
  }
  SharedEvent probe(const std::vector<StoredBlock>& blocks) {
    std::vector<BlockKey> keys;
    for (const StoredBlock& block : blocks) keys.push_back(block.key);
    return end_of([&] { store_.probe({3, keys}); });
  }
  [[nodiscard]] std::uint32_t node_of(const StoredBlock& block) const {
    return simulated_node_of(block.key.prefix64(), engine_.nodes());
  }

  ManualClock clock_;
  SimulatedSharedEngine engine_{1, clock_, 3};
  SimulatedSharedStore store_{engine_, {.breaker = {.failures_max = 2}}};
  std::vector<std::byte> memory_ = std::vector<std::byte>(100);
};

TEST_F(SimulatedNodes, go_on_when_one_of_them_is_dead) {
  const auto prefix = prefix_of(1, 12);
  for (const StoredBlock& block : prefix) ASSERT_FALSE(write(block));
  const std::uint32_t dead = node_of(prefix[4]);
  engine_.set_node(dead, NodeState::dead);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(read(prefix[4]), Errc::io_failed);
  EXPECT_EQ(read(prefix[4]), Errc::refused) << "the breaker is open";
  EXPECT_TRUE(store_.usable());
  EXPECT_EQ(store_.health().state, StoreState::degraded);
  const auto gap = static_cast<std::uint32_t>(
      std::ranges::find_if(prefix, [&](const StoredBlock& block) { return node_of(block) == dead; }) - prefix.begin());
  const SharedEvent probed = probe(prefix);
  EXPECT_FALSE(probed.error) << "its keys are misses";
  EXPECT_EQ(probed.leading, gap);
  for (const StoredBlock& block : prefix) {
    EXPECT_TRUE(node_of(block) == dead || !read(block));
  }
  engine_.set_node(dead, NodeState::well, SimulatedSharedEngine::Data::lost);
  clock_.advance(std::chrono::seconds{1});
  EXPECT_EQ(read(prefix[4]), Errc::not_found) << "it has come back empty";
  EXPECT_EQ(store_.health().state, StoreState::well);
}

TEST_F(SimulatedNodes, are_not_asked_for_a_while_when_all_are_dead) {
  const auto prefix = prefix_of(1, 12);
  engine_.set_all_nodes(NodeState::dead);
  for (int round = 0; round < 2; ++round) {
    for (const StoredBlock& block : prefix) (void)write(block);
  }
  EXPECT_FALSE(store_.usable());
  EXPECT_EQ(store_.health().state, StoreState::down);
  EXPECT_EQ(probe(prefix).error, Errc::refused);
  engine_.set_all_nodes(NodeState::well);
  clock_.advance(std::chrono::seconds{1});
  EXPECT_TRUE(store_.usable());
  for (const StoredBlock& block : prefix) EXPECT_FALSE(write(block));
  EXPECT_EQ(probe(prefix).leading, 12U);
}

}  // namespace
}  // namespace terrace::contract
