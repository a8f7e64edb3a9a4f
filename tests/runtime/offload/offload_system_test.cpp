#include "terrace/keys.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/system.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace {
namespace {

CacheSystemOptions options_for(DeviceOptions device) {
  CacheSystemOptions options;
  options.ranks.front().device = device;
  options.pools.front().block_bytes = KiB * 4;
  options.pools.front().device_blocks = 8;
  options.pools.front().host_blocks = 4;
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

}  // namespace
}  // namespace terrace
