// The step path of a warm manager allocates nothing. In a program of its own, because it counts every allocation.
#include "runtime/cache_manager.hpp"
#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

namespace {

std::size_t allocations = 0;

void* allocate(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc{};
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace terrace {
namespace {

constexpr std::uint32_t device_blocks = 2000;
constexpr std::uint32_t prompt_blocks = 64;

/// Prompts that share their first half with the others of their family, and have an end of their own.
std::vector<std::vector<BlockKey>> prompts() {
  std::vector<std::vector<BlockKey>> made;
  for (std::uint32_t family = 0; family < 8; ++family) {
    for (std::uint32_t member = 0; member < 16; ++member) {
      std::vector<std::uint32_t> names(prompt_blocks, 1 + family);
      for (std::uint32_t i = prompt_blocks / 2; i < prompt_blocks; ++i) names[i] = 100 + family * 16 + member;
      made.push_back(test::keys_of(names));
    }
  }
  return made;
}

/// A whole request: looked up, acquired, extended by a block of output, committed in two parts, released.
void serve(CacheManager& manager, std::uint64_t id, const std::vector<BlockKey>& keys) {
  const RequestId request{id};
  (void)manager.match(keys);
  AcquireRequest wanted;
  wanted.id = request;
  wanted.keys = keys;
  wanted.blocks = static_cast<std::uint32_t>(keys.size());
  TERRACE_CHECK(manager.acquire(wanted).has_value());
  TERRACE_CHECK(manager.extend(request, 1).has_value());
  TERRACE_CHECK(manager.commit(request, std::span{keys}.first(keys.size() / 2), Fence{id}).has_value());
  TERRACE_CHECK(manager.commit(request, keys, Fence{id}).has_value());
  TERRACE_CHECK(manager.advance(request, keys.size(), Fence{id}).has_value());
  TERRACE_CHECK(manager.block_table(request)->size() == keys.size() + 1);
  TERRACE_CHECK(manager.request_stats(request).has_value());
  TERRACE_CHECK(manager.release(request, Fence{id}).has_value());
  manager.actions().clear();
}

class Allocations : public testing::TestWithParam<PolicyKind> {};
INSTANTIATE_TEST_SUITE_P(Policies, Allocations, testing::Values(PolicyKind::lru, PolicyKind::adaptive));

void expect_none_once_warm(CacheManager& manager) {
  const auto requests = prompts();
  std::uint64_t id = 0;
  // More blocks than the device has, so that each round gives up what the next one wants.
  ASSERT_GT(8 * (prompt_blocks / 2) + requests.size() * (prompt_blocks / 2), device_blocks);
  for (int round = 0; round < 4; ++round) {
    for (const auto& keys : requests) serve(manager, ++id, keys);
  }
  const std::uint64_t evicted_before = manager.stats().evicted_device;
  const std::size_t before = allocations;
  for (int round = 0; round < 4; ++round) {
    for (const auto& keys : requests) serve(manager, ++id, keys);
  }
  EXPECT_EQ(allocations - before, 0U);
  EXPECT_GT(manager.match(requests.back()).total(), 0U);  // it hit, too
  EXPECT_GT(manager.stats().evicted_device, evicted_before + 4 * device_blocks);
}

ManagerConfig with_policy(PolicyKind policy) {
  ManagerConfig config;
  config.policy = policy;
  config.device_blocks = device_blocks;
  return config;
}

TEST_P(Allocations, are_none_on_the_step_path_once_warm) {
  CacheManager manager{with_policy(GetParam())};
  expect_none_once_warm(manager);
}

TEST_P(Allocations, are_none_where_residency_is_sampled) {
  CacheManager manager{with_policy(GetParam())};
  manager.sample_residency(64);
  expect_none_once_warm(manager);
  EXPECT_GT(manager.take_residency().device.lifetime.total(), 0U);
}

TEST_P(Allocations, are_none_where_groups_have_windows_and_states) {
  ManagerConfig config = with_policy(GetParam());
  GroupConfig window;
  window.kind = GroupKind::sliding_window;
  window.span_tokens = 16;
  window.pool = PoolId{1};
  GroupConfig state;
  state.kind = GroupKind::recurrent;
  state.optional = true;  // of a prompt that is computed at once only the last is kept: it would veto the beginnings others share
  state.pool = PoolId{1};
  config.groups = {GroupConfig{}, window, state};
  config.null_block = true;
  config.other_pools = {config};
  CacheManager manager{config};
  expect_none_once_warm(manager);
}

TEST(AllocationCount, counts) {
  const std::size_t before = allocations;
  const std::vector<int> some(10);
  EXPECT_EQ(allocations, before + 1);
}

}  // namespace
}  // namespace terrace
