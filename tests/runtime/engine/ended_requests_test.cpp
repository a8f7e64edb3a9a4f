// Output lengths that an engine tells at the end of its requests reach the eviction policies.

#include "terrace/async_cache.hpp"
#include "tests/runtime/ends_policy.hpp"
#include "tests/runtime/fixture.hpp"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

class EndedRequests : public CacheFixture {
 protected:
  using Noted = EndsPolicy::Noted;

  void SetUp() override {
    cache_waker.emplace();
    ManagerConfig config = sizes(8);
    config.policy = [this](std::uint32_t) { return std::make_unique<EndsPolicy>(noted); };
    make(config);
  }
  /// The ends, without the candidates.
  [[nodiscard]] std::vector<Noted> ends() const {
    std::vector<Noted> found;
    std::ranges::copy_if(noted, std::back_inserter(found), [](const Noted& one) { return one.output_tokens.has_value(); });
    return found;
  }

  std::vector<Noted> noted;
};

TEST_F(EndedRequests, tell_their_output_before_their_blocks_become_candidates) {
  const auto keys = keys_of({1, 2});
  ASSERT_TRUE(acquire(1, keys).has_value());
  ASSERT_TRUE(commit(1, keys).has_value());
  ASSERT_TRUE(acquire(2, keys).has_value());
  leases[2].set_output_tokens(5);
  leases[2].set_output_tokens(70);  // the last one counts
  release(2);
  EXPECT_EQ(noted, (std::vector<Noted>{{2, 70}})) << "the other request still pins the blocks";
  leases[1].set_output_tokens(9);
  release(1);
  // The second request was the last one to use the blocks.
  EXPECT_EQ(noted, (std::vector<Noted>{{2, 70}, {1, 9}, {2, std::nullopt}}));
}

TEST_F(EndedRequests, need_not_tell_it_and_tell_it_however_their_lease_ends) {
  const auto keys = keys_of({1});
  run(1, keys);
  EXPECT_TRUE(ends().empty());
  ASSERT_TRUE(acquire(2, keys).has_value());
  leases[2].set_output_tokens(3);
  leases.erase(2);  // without used_until()
  EXPECT_EQ(ends(), (std::vector<Noted>{{2, 3}}));
  ASSERT_TRUE(acquire(3, keys_of({5, 6})).has_value());
  leases[3].set_output_tokens(4);
  (void)table(3);
  leases.erase(3);  // compute may know its slots: it is in quarantine until all work is done
  settle();
  EXPECT_EQ(ends().size(), 2U);
  EXPECT_EQ(ends().back(), (Noted{3, 4}));
  Lease none;
  none.set_output_tokens(1);
}

TEST_F(EndedRequests, tell_it_from_other_threads) {
  ASSERT_TRUE(acquire(1, keys_of({1})).has_value());
  std::thread{[lease = std::move(leases[1])]() mutable {
    lease.set_output_tokens(11);
    lease.used_until(no_longer_used);
    lease.reset();
  }}.join();
  leases.erase(1);
  poll();
  EXPECT_EQ(ends(), (std::vector<Noted>{{1, 11}}));
}

TEST_F(EndedRequests, tell_it_in_loop_mode) {
  asio::io_context loop;
  clock.advance(std::chrono::steady_clock::now() - clock.now());
  AsyncCache async{loop.get_executor(), *cache};
  const auto token = [&] { return asio::bind_executor(loop.get_executor(), asio::use_future); };
  const auto ended = [&](auto operation) {
    while (operation.wait_for(std::chrono::seconds{0}) != std::future_status::ready) {
      loop.restart();
      loop.poll();
    }
    return operation.get();
  };
  {
    Grant grant = ended(async.acquire(request(1, keys_of({1})), token()));
    grant.lease.set_output_tokens(21);
    grant.lease.used_until(no_longer_used);
  }
  ended(async.stop(TimePoint{}, token()));
  EXPECT_EQ(ends(), (std::vector<Noted>{{1, 21}}));
}

}  // namespace
}  // namespace terrace::test
