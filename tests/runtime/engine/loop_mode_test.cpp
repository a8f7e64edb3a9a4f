// The cache on an event loop: real threads, an emulated device, coroutines.

#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/async_cache.hpp"
#include "terrace/emulated_stream.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

constexpr auto as_tuple = asio::as_tuple(asio::use_awaitable);

CacheSystemOptions small() {
  CacheSystemOptions options;
  options.pools = {{.block_bytes = KiB * 4, .device_blocks = 8, .host_blocks = 8}};
  return options;
}

/// The whole life of one request. Returns its number of hits, or the error.
asio::awaitable<ErrorCode> serve(AsyncCache& runtime, std::uint64_t id, std::vector<BlockKey> keys, RequestStats& stats) {
  const AcquireRequest wanted = request_for(id, keys);
  auto [error, grant] = co_await runtime.acquire(wanted, as_tuple);
  if (error) co_return error;
  stats = grant.stats;
  auto [commit_error, committed] = co_await runtime.commit(grant.lease, keys, Fence{}, as_tuple);
  EXPECT_TRUE(commit_error || committed.units.value() == keys.size());
  co_return commit_error;
}

asio::awaitable<void> stop(AsyncCache& runtime) {
  auto [error, left] = co_await runtime.stop(as_tuple);
  EXPECT_FALSE(error);
  EXPECT_TRUE(left.none());
}

TEST(LoopMode, serves_a_request_and_then_hits_it) {
  CacheSystem stack{small()};
  asio::io_context loop;
  {
    AsyncCache runtime{loop.get_executor(), stack.cache()};
    RequestStats first;
    RequestStats second;
    asio::co_spawn(
        loop,
        [](AsyncCache& r, std::vector<BlockKey> keys, std::vector<BlockKey> others, RequestStats& a,
           RequestStats& b) -> asio::awaitable<void> {
          const ErrorCode first_error = co_await serve(r, 1, keys, a);
          EXPECT_FALSE(first_error);
          const ErrorCode second_error = co_await serve(r, 2, others, b);
          EXPECT_FALSE(second_error);
          const auto match = [&keys](Cache& cache) { return cache.match(keys); };
          auto [error, found] = co_await r.perform(match, as_tuple);
          EXPECT_FALSE(error);
          EXPECT_EQ(found.found[Source::device], 3U);
          co_await stop(r);
        }(runtime, keys_of({1, 2, 3}), keys_of({1, 2, 4}), first, second),
        asio::detached);
    loop.run();
    EXPECT_EQ(first.miss, 3U);
    EXPECT_EQ(second.found[Source::device], 2U);
  }
  stack.cache().manager().check_invariants();
}

TEST(LoopMode, requests_wait_in_order_for_room_and_all_are_served) {
  CacheSystem stack{small()};
  asio::io_context loop;
  {
    AsyncCache runtime{loop.get_executor(), stack.cache()};
    constexpr std::uint64_t count = 200;
    std::uint64_t served = 0;
    std::vector<RequestStats> stats(count);
    for (std::uint64_t id = 0; id < count; ++id) {
      const auto n = static_cast<std::uint32_t>(id);
      asio::co_spawn(
          loop,
          [](AsyncCache& r, std::uint64_t request_id, std::vector<BlockKey> keys, RequestStats& s,
             std::uint64_t& done) -> asio::awaitable<void> {
            const ErrorCode error = co_await serve(r, request_id, keys, s);
            EXPECT_FALSE(error);
            if (++done == count) co_await stop(r);
          }(runtime, id, keys_of({n % 5, n % 7, 1, 2}), stats[id], served),
          asio::detached);
    }
    loop.run();
    EXPECT_EQ(served, count);
  }
  EXPECT_EQ(stack.cache().manager().requests().live_requests(), 0U);
  EXPECT_EQ(stack.cache().manager().readers(), 0U);
  stack.cache().manager().check_invariants();
}

TEST(LoopMode, leases_end_on_any_thread) {
  CacheSystem stack{small()};
  asio::thread_pool pool{2};
  {
    AsyncCache runtime{pool.get_executor(), stack.cache()};
    std::vector<std::thread> threads;
    std::atomic<std::uint64_t> next{1};
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          const std::uint64_t id = next.fetch_add(1);
          const std::vector<BlockKey> keys = keys_of({static_cast<std::uint32_t>(id % 9), 1});
          Grant grant = runtime.acquire(request_for(id, keys), asio::use_future).get();
          runtime.commit(grant.lease, keys, Fence{}, asio::use_future).get();
        }  // the lease ends here, on this thread
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(runtime.stop(asio::use_future).get().none());
    pool.join();
  }
  EXPECT_EQ(stack.cache().manager().requests().live_requests(), 0U);
  stack.cache().manager().check_invariants();
}

TEST(LoopMode, stop_refuses_what_is_new_and_fails_what_waits) {
  CacheSystem stack{small()};
  asio::io_context loop;
  {
    AsyncCache runtime{loop.get_executor(), stack.cache()};
    Grant held;
    ErrorCode waiting;
    ErrorCode late;
    const auto big = keys_of({1, 2, 3, 4, 5, 6, 7, 8});
    runtime.acquire(request_for(1, big), [&](ErrorCode error, Grant grant) {
      EXPECT_FALSE(error);
      held = std::move(grant);
      const auto other = std::make_shared<std::vector<BlockKey>>(keys_of({9}));
      runtime.acquire(request_for(2, *other), [&, other](ErrorCode e, Grant) {
        waiting = e;
        held = {};
      });
      runtime.stop([&, other](ErrorCode, const WorkLeft&) {
        runtime.acquire(request_for(3, *other), [&, other](ErrorCode e, Grant) { late = e; });
      });
    });
    loop.run();
    EXPECT_EQ(waiting, Errc::stopped);
    EXPECT_EQ(late, Errc::stopped);
  }
}

TEST(LoopMode, a_request_that_can_never_fit_is_told_so) {
  CacheSystem stack{small()};
  asio::io_context loop;
  {
    AsyncCache runtime{loop.get_executor(), stack.cache()};
    ErrorCode got;
    const auto keys = keys_of({1, 2, 3, 4, 5, 6, 7, 8, 9});
    runtime.acquire(request_for(1, keys), [&](ErrorCode error, Grant) {
      got = error;
      runtime.stop([](ErrorCode, const WorkLeft&) {});
    });
    loop.run();
    EXPECT_EQ(got, Errc::never_fits);
  }
}

// ---- the threads of the library have names, and leave signals to the program (docs/design/threads.md)

struct ThreadFacts {
  std::string name;
  std::string blocked;  ///< the mask of blocked signals, in hexadecimal digits
};

class Quiet final : public LogSink {
 public:
  void write(LogLevel, std::string_view) override {}
};

std::map<std::string, ThreadFacts> threads_of_this_process() {
  std::map<std::string, ThreadFacts> threads;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    ThreadFacts facts;
    std::getline(std::ifstream{task.path() / "comm"} >> std::ws, facts.name);
    std::ifstream status{task.path() / "status"};
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) facts.blocked = line.substr(line.find_last_of("\t ") + 1);
    }
    threads.emplace(task.path().filename(), facts);
  }
  return threads;
}

TEST(LibraryThreads, have_names_and_leave_signals_to_the_program) {
  const auto before = threads_of_this_process();
  std::set<std::string> names;
  Quiet sink;
  {
    CacheSystemOptions options;
    options.pools = {{.device_blocks = 8, .host_blocks = 8}};
    options.log.sink = &sink;
    CacheSystem system{options};
    ASSERT_TRUE(system.cache().resize(Tier::host, 64).has_value());  // the arena's thread begins with its first task
    EmulatedStream stream;
    stream.synchronize();
    // A thread sets its name after it has been started.
    (void)system.device().launch([](BlockAccess&) {});
    system.cache().drain();
    for (int attempt = 0; attempt < 1'000 && names.size() < 6; ++attempt) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      names.clear();
      for (const auto& [id, facts] : threads_of_this_process()) {
        if (before.contains(id) || facts.blocked.empty()) continue;  // of the test program, or just gone
        if (facts.name.starts_with("terrace-")) names.insert(facts.name);
        // Signals 32 and 33 belong to the C library, and SIGKILL and SIGSTOP (9 and 19) cannot be blocked.
        EXPECT_EQ(std::stoull(facts.blocked, nullptr, 16) | 0x1'8004'0100U, 0xFFFF'FFFF'FFFF'FFFFU) << facts.name;
      }
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"terrace-arena", "terrace-compute", "terrace-copy", "terrace-log", "terrace-stream",
                                          "terrace-xfer"}));
}

}  // namespace
}  // namespace terrace::test
