// A name server that does not answer for a long time.

#include "storage/redis/redis_shared_store.hpp"
#include "tests/patience.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string_view>

namespace {

std::mutex mutex;
std::condition_variable answers;
bool is_silent = true;  ///< guarded by mutex
std::atomic<int> asked{0};
std::atomic<int> answered{0};

}  // namespace

/// In place of that of the C library, for this program.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  using Real = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool is_name = (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (!is_name || !std::string_view{node}.starts_with("slow-")) return real(node, service, hints, found);
  ++asked;
  std::unique_lock lock{mutex};
  answers.wait(lock, [] { return !is_silent; });
  ++answered;
  return EAI_AGAIN;
}

namespace terrace::test {
namespace {

TEST(RedisLookUp, holds_up_neither_the_end_nor_other_names) {
  {
    // The first name is that of no node at all, and so is the second one, but that is known at once.
    RedisOptions options = parse_redis_url("redis://slow-1,slow-2,127.0.0.1:1?cluster=1");
    const std::unique_ptr<SharedStore> store = open_redis_store(options);
    EXPECT_TRUE(comes_true([] { return asked == 2; })) << "one name does not wait for another";
    EXPECT_TRUE(comes_true([&] { return store->health().reason.find("slow-1") != std::string::npos; }));
    // It is tried again while nobody has answered yet, and asked only once.
    EXPECT_TRUE(comes_true([&] { return store->health().reason.find("in time") != std::string::npos; }));
  }
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(answered, 0) << "the store has ended before";
  {
    const std::lock_guard lock{mutex};
    is_silent = false;
  }
  answers.notify_all();
  EXPECT_TRUE(comes_true([] { return answered == 2; }));
}

}  // namespace
}  // namespace terrace::test
