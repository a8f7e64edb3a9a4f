#include "terrace/keys.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/system.hpp"
#include "tests/refusal.hpp"
#include "tests/runtime/offload/offload_fixture.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

CacheSystemOptions options_for(DeviceOptions device) {
  CacheSystemOptions options;
  options.ranks.front().device = device;
  options.pools = {{.block_bytes = KiB * 4, .device_blocks = 8, .host_blocks = 4}};
  options.engine_owns_slots = true;
  options.key_order = KeyOrder::flat;
  options.storage = MemoryStorage{KiB * 4 * 64};
  options.write_policy = WritePolicy::write_through;
  return options;
}

/// An engine that sleeps until there is something to do.
void wait_for_end(OffloadCache& offload, OffloadJobId job) {
  for (bool ended = false; !ended;) {
    for (const OffloadEvent& event : offload.poll()) {
      EXPECT_FALSE(event.error);
      ended |= event.kind == OffloadEvent::Kind::ended && event.job == job;
    }
    if (ended) return;
    pollfd fd{offload.wake_fd(), POLLIN, 0};
    ASSERT_GE(::poll(&fd, 1, 10'000), 0);
  }
}

class OffloadSystem : public ::testing::TestWithParam<DeviceOptions> {};

TEST_P(OffloadSystem, serves_an_engine_that_owns_the_slots) {
  CacheSystem system{options_for(GetParam())};
  OffloadCache offload{system.cache()};
  std::vector<BlockKey> keys;
  for (int i = 0; i < 6; ++i) {
    const std::string name = "chunk " + std::to_string(i);
    keys.push_back(opaque_key({}, std::as_bytes(std::span{name})));
  }
  for (int i = 0; i < 6; ++i) {
    const SlotId slot{static_cast<std::uint32_t>(i)};
    OffloadOrder store;
    store.id = OffloadJobId{static_cast<std::uint64_t>(i)};
    store.keys = std::span{keys}.subspan(static_cast<std::size_t>(i), 1);
    store.slots = std::span{&slot, 1};
    store.after = system.device().launch([=](BlockAccess& access) {
      std::vector<std::byte> scratch(4096);
      std::ranges::fill(access.write_target(slot, scratch), std::byte(i + 1));
      access.written(slot, scratch);
    });
    ASSERT_TRUE(offload.store(store).has_value());
    wait_for_end(offload, store.id);
  }
  EXPECT_EQ(offload.leading(keys), 6U);  // four of them in the host tier
  const std::vector<SlotId> slots{SlotId{5}, SlotId{4}, SlotId{3}, SlotId{2}, SlotId{1}, SlotId{0}};
  OffloadOrder load;
  load.id = OffloadJobId{100};
  load.keys = keys;
  load.slots = slots;
  ASSERT_TRUE(offload.load(load).has_value());
  wait_for_end(offload, load.id);
  std::vector<int> found(6);
  const Fence read = system.device().launch([&](BlockAccess& access) {
    std::vector<std::byte> scratch(4096);
    for (std::size_t i = 0; i < 6; ++i) found[i] = static_cast<int>(access.read(slots[i], scratch).back());
  });
  while (system.device().reached() < read) offload.poll();
  EXPECT_EQ(found, (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_GE(offload.totals().loaded_storage, 2U);
  EXPECT_EQ(system.cache().resize(Tier::device, 4).error(), Errc::invalid_argument);
  offload.stop_accepting();
  offload.drain();
}

INSTANTIATE_TEST_SUITE_P(Devices, OffloadSystem, ::testing::Values(DeviceOptions{InstantGpu{}}, DeviceOptions{EmulatedGpu{}}));

TEST(OffloadSystemOptions, flat_keys_need_an_engine_that_owns_the_slots) {
  CacheSystemOptions options = options_for(InstantGpu{});
  options.engine_owns_slots = false;
  EXPECT_THROW(CacheSystem{options}, std::invalid_argument);
}

// ---- every reason to refuse an order has a sentence of its own, which says what would be right

class OffloadErrors : public Offload {
 protected:
  void SetUp() override {
    make(sizes(8, KeyOrder::prefix), {.jobs = 2, .pinned_blocks = 4});
    put(1, keys_, 0, 1);
  }
  OffloadOrder load(std::uint64_t id, const std::vector<SlotId>& to) { return order(id, keys_, to); }
  template <class T>
  void refused(const Result<T>& result, Errc error, const std::string& part) {
    ASSERT_FALSE(result.has_value()) << part;
    EXPECT_EQ(result.error(), error) << part;
    const std::string sentence = result.error().message();
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    EXPECT_TRUE(sentences_.insert(sentence).second) << "two reasons have one sentence: " << sentence;
  }

  const std::vector<BlockKey> keys_ = [] {
    KeyChain chain{root_key({}), 16};
    chain.append(std::vector<TokenId>(std::size_t{16} * 4, 7));
    return std::vector<BlockKey>{chain.keys().begin(), chain.keys().end()};
  }();
  const std::vector<SlotId> slots_{SlotId{0}, SlotId{1}, SlotId{2}, SlotId{3}};
  std::set<std::string> sentences_;
};

TEST_F(OffloadErrors, say_what_is_wrong_with_an_order) {
  refused(offload->load(load(2, {SlotId{0}, SlotId{1}, SlotId{2}})), Errc::invalid_argument, "one element for each key");
  refused(offload->load(load(2, {SlotId{0}, SlotId{1}, SlotId{2}, SlotId{77}})), Errc::invalid_argument, "does not have");
  refused(offload->load(load(2, {SlotId{0}, SlotId{1}, SlotId{2}, SlotId{2}})), Errc::invalid_argument, "a slot twice");
  OffloadOrder wrong = load(2, slots_);
  wrong.pool = PoolId{1};
  refused(offload->load(wrong), Errc::invalid_argument, "no such pool");
  wrong = load(2, slots_);
  wrong.first = 5;
  refused(offload->load(wrong), Errc::invalid_argument, "`first` is more than");
  wrong = load(2, slots_);
  wrong.key_order = KeyOrder::flat;
  wrong.first = 1;
  refused(offload->load(wrong), Errc::invalid_argument, "`first` must be 0");
  wrong = load(2, slots_);
  wrong.after = Fence{99};
  refused(offload->load(wrong), Errc::invalid_argument, "the fence was never given out");
  std::array<std::byte, 8> small{};
  const std::vector<std::span<std::byte>> memory(4, small);
  wrong.after = {};
  wrong.memory = memory;
  refused(offload->load(wrong), Errc::invalid_argument, "not both");
  wrong.slots = {};
  refused(offload->load(wrong), Errc::invalid_argument, "the size of one block");
  refused(offload->store(load(2, {})), Errc::invalid_argument, "a store needs");
  const std::uint64_t others = offload->totals().refused;
  EXPECT_EQ(others, 10U);

  ASSERT_TRUE(offload->load(load(2, slots_)).has_value());
  refused(offload->load(load(2, slots_)), Errc::duplicate_request, "a job of this id is under way");
  refused(offload->load(load(3, slots_)), Errc::in_use, "another job uses one of `slots`");
  ASSERT_TRUE(offload->load(load(3, {SlotId{4}, SlotId{5}, SlotId{6}, SlotId{7}})).has_value());
  refused(offload->load(load(4, slots_)), Errc::refused, "OffloadLimits");
  settle();
  refused(offload->cancel(OffloadJobId{2}), Errc::not_found, "there is no job");
}

TEST_F(OffloadErrors, say_what_is_wrong_with_pins_and_reservations) {
  std::vector<SlotId> host(4);
  ASSERT_TRUE(offload->pin(OffloadJobId{5}, keys_).has_value());
  refused(offload->pin(OffloadJobId{5}, keys_), Errc::duplicate_request, "unpin() first");
  refused(offload->pin(OffloadJobId{6}, keys_), Errc::no_room, "unpin() some first");
  refused(offload->pin(OffloadJobId{6}, std::span{keys_}.first(1), {}, host), Errc::invalid_argument, "more `slots` than keys");
  const BlockKey unknown = opaque_key({}, std::as_bytes(std::span{"?"}));
  refused(offload->pin(OffloadJobId{6}, std::span{&unknown, 1}), Errc::not_found, "none of the keys");
  refused(offload->unpin(OffloadJobId{6}), Errc::not_found, "no pin of this id");
  refused(offload->reserve(load(7, slots_), host), Errc::invalid_argument, "the cache chooses the slots");
  refused(offload->reserve(load(7, {}), std::span{host}.first(3)), Errc::invalid_argument, "one of `slots` for each key");
  refused(offload->publish(OffloadJobId{7}, true), Errc::not_found, "no reservation");
}

TEST(OffloadErrorsOfCaches, name_the_owner_of_the_slots) {
  CacheSystemOptions options;
  options.ranks.front().device = InstantGpu{};
  options.pools = {{.block_bytes = KiB, .device_blocks = 4, .host_blocks = 4}};
  {
    CacheSystem own{options};
    const std::string said = test::refusal_of<std::invalid_argument>([&] { const OffloadCache over{own.cache()}; });
    EXPECT_NE(said.find("set CacheSystemOptions::engine_owns_slots"), std::string::npos) << said;
  }
  options.engine_owns_slots = true;
  CacheSystem engines{options};
  const BlockKey key = root_key({});
  const Result<Lease> lease = engines.cache().acquire({.id = RequestId{1}, .keys = std::span{&key, 1}});
  EXPECT_EQ(lease.error(), Errc::never_fits);
  EXPECT_NE(lease.error().message().find("by an OffloadCache"), std::string::npos) << lease.error().message();
}

}  // namespace
}  // namespace terrace
