// Every reason to refuse an order has a sentence of its own, which says what would be right.
#include "tests/runtime/offload/offload_fixture.hpp"

#include "terrace/keys.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/system.hpp"

#include <gtest/gtest.h>

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
    try {
      const OffloadCache over{own.cache()};
      FAIL() << "it was accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string{error.what()}.find("set CacheSystemOptions::engine_owns_slots"), std::string::npos) << error.what();
    }
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
