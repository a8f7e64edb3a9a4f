// An application. It uses the public headers as an engine does, and tries what may break where a library begins: exceptions,
// error codes, and classes of the application's own.

#include <terrace/async_cache.hpp>
#include <terrace/keys.hpp>
#include <terrace/log.hpp>
#include <terrace/offload_cache.hpp>
#include <terrace/policies.hpp>
#include <terrace/result.hpp>
#include <terrace/system.hpp>
#include <terrace/types.hpp>
#include <terrace/waker.hpp>

#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

class OwnWaker final : public terrace::Waker {
 public:
  void wake() noexcept override { ++wakes; }
  int wakes = 0;
};

void keys_are_made() {
  terrace::KeyChain chain{terrace::root_key({}), 16};
  const std::vector<terrace::TokenId> tokens(40, 7);
  chain.append(tokens);
  expect(chain.keys().size() == 2 && chain.tokens_waiting() == 8, "40 tokens are two blocks of 16, and 8 tokens wait");
}

void errors_are_told_apart() {
  const terrace::Result<terrace::BlockKey> key = terrace::parse_block_key("no key");
  expect(key.has_error() && key.error() == terrace::Errc::invalid_argument, "an error of the library has its code here");
  expect(key.error().category() == terrace::terrace_category(), "there is one category");
  try {
    (void)terrace::hash_unit(std::span<const std::uint32_t>{});
    expect(false, "no group has no hash unit");
  } catch (const std::invalid_argument& error) {
    expect(!std::string_view{error.what()}.empty(), "the exception says why");
  }
}

void classes_are_one_on_both_sides() {
  const std::unique_ptr<terrace::EvictionPolicy> policy = terrace::lru_policy(8);
  expect(dynamic_cast<terrace::EvictionPolicy*>(policy.get()) != nullptr, "a policy of the library is a policy here");
  OwnWaker own;
  terrace::Waker& waker = own;
  waker.wake();
  expect(dynamic_cast<OwnWaker*>(&waker) != nullptr && own.wakes == 1, "a waker of the application is its own");
  expect(terrace::to_string(terrace::LogLevel::warning) == "warning", "functions are exported");
}

constexpr std::uint32_t slots = 8;
constexpr terrace::Bytes block_bytes = terrace::KiB * 4;

std::vector<terrace::BlockKey> four_keys() {
  terrace::KeyChain chain{terrace::root_key({}), 16};
  chain.append(std::vector<terrace::TokenId>(64, 7));
  return {chain.keys().begin(), chain.keys().end()};
}

void a_cache_finds_what_was_committed() {
  terrace::CacheSystemOptions options;
  options.ranks = {{.device = terrace::InstantGpu{}}};
  options.pools = {{.block_bytes = block_bytes, .device_blocks = slots, .host_blocks = 16}};
  terrace::CacheSystem system{options};
  terrace::Cache& cache = system.cache();
  const std::vector<terrace::BlockKey> keys = four_keys();

  terrace::Result<terrace::Lease> lease = cache.acquire({.id = terrace::RequestId{1}, .keys = keys, .units = 4});
  expect(lease.has_value() && cache.state(*lease) == terrace::RequestState::ready, "an empty cache has room");
  const terrace::Fence done = system.device().launch([](terrace::BlockAccess&) {});
  expect(cache.commit(*lease, keys, done).has_value(), "computed blocks are shared");
  cache.release(std::move(*lease), done);
  expect(cache.match(keys).found[terrace::Source::device] == 4, "they are found on the device");
  cache.drain();
}

void an_event_loop_serves() {
  terrace::CacheSystemOptions options;
  options.pools = {{.block_bytes = block_bytes, .device_blocks = slots, .host_blocks = 16}};
  terrace::CacheSystem system{options};
  boost::asio::thread_pool loop{1};
  terrace::AsyncCache cache{loop.get_executor(), system.cache()};
  const std::vector<terrace::BlockKey> keys = four_keys();
  {
    const terrace::Grant grant =
        cache.acquire({.id = terrace::RequestId{1}, .keys = keys, .units = 4}, boost::asio::use_future).get();
    expect(grant.table.size() == 4 && grant.hit_sources.empty(), "a new request gets slots and no hits");
  }
  cache.stop(boost::asio::use_future).get();
  loop.join();
}

void slots_of_the_engine_are_stored_and_loaded() {
  std::vector<std::byte> kv(terrace::count(block_bytes) * slots);
  const auto block = [&](std::uint32_t slot) { return std::span{kv}.subspan(slot * terrace::count(block_bytes), 4096); };
  terrace::CacheSystemOptions options;
  const terrace::DeviceRegion region{.base = reinterpret_cast<std::uintptr_t>(kv.data()),
                                     .stride = terrace::count(block_bytes),
                                     .bytes = terrace::count(block_bytes)};
  options.ranks = {{.device = terrace::InstantGpu{}, .regions = {{region}}}};
  options.pools = {{.block_bytes = block_bytes, .device_blocks = slots, .host_blocks = 16}};
  options.engine_owns_slots = true;
  terrace::CacheSystem system{options};
  terrace::OffloadCache offload{system.cache()};
  const std::vector<terrace::BlockKey> keys = four_keys();
  const auto finish = [&](terrace::OffloadJobId job) {
    std::uint32_t moved = 0;
    for (bool ended = false; !ended;) {
      for (const terrace::OffloadEvent& event : offload.poll()) {
        if (event.kind != terrace::OffloadEvent::Kind::ended || event.job != job) continue;
        ended = true;
        moved = event.moved;
      }
    }
    return moved;
  };

  const std::array from{terrace::SlotId{0}, terrace::SlotId{1}, terrace::SlotId{2}, terrace::SlotId{3}};
  for (const terrace::SlotId slot : from) std::ranges::fill(block(slot.value()), std::byte{9});
  expect(offload.store({.id = terrace::OffloadJobId{1}, .keys = keys, .slots = from}).has_value(), "slots can be stored");
  expect(finish(terrace::OffloadJobId{1}) == 4, "all four blocks are stored");
  std::ranges::fill(kv, std::byte{});

  const std::array into{terrace::SlotId{7}, terrace::SlotId{6}, terrace::SlotId{5}, terrace::SlotId{4}};
  expect(offload.load({.id = terrace::OffloadJobId{2}, .keys = keys, .slots = into}).has_value(), "and loaded elsewhere");
  expect(finish(terrace::OffloadJobId{2}) == 4, "all four blocks are loaded");
  for (const terrace::SlotId slot : into) {
    expect(std::ranges::all_of(block(slot.value()), [](std::byte b) { return b == std::byte{9}; }), "with their bytes");
  }
  offload.drain();
}

}  // namespace

int main() {
  keys_are_made();
  errors_are_told_apart();
  classes_are_one_on_both_sides();
  a_cache_finds_what_was_committed();
  an_event_loop_serves();
  slots_of_the_engine_are_stored_and_loaded();
  if (failures == 0) std::puts("the consumer works");
  return failures == 0 ? 0 : 1;
}
