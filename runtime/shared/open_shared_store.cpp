#include "runtime/shared/open_shared_store.hpp"

#include "storage/redis/redis_shared_store.hpp"
#include "storage/shared/memory_shared_store.hpp"
#include "storage/shared/sealing.hpp"
#include "terrace/clock.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace terrace {
namespace {

constexpr std::string_view in_memory = "memory:";
/// The memory of one `memory:` engine. It is for trials and tests.
constexpr Bytes memory_capacity = GiB;

std::shared_ptr<const SharedSecret> secret_of(const SharedStorage& options) {
  if (options.secret_file.empty()) return nullptr;
  const std::string secret = read_secret(options.secret_file.string(), "secret");
  try {
    return std::make_shared<const SharedSecret>(std::as_bytes(std::span{secret}));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument{fmt::format("{}: {}", options.secret_file.string(), error.what())};
  }
}

RedisOptions read_url(std::string_view url) {
  try {
    return parse_redis_url(url);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument{fmt::format("the URL of the shared store: {}", error.what())};
  }
}

SharedExpiry expiry_of(const SharedStorage& options) { return {options.expiry, options.expiry_per_depth}; }

/// The engine with this name, which stores with equal names share while at least one of them exists.
std::shared_ptr<SharedMemoryEngine> engine_named(const std::string& url) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<SharedMemoryEngine>> engines;
  const std::lock_guard lock{mutex};
  std::weak_ptr<SharedMemoryEngine>& known = engines[url];
  std::shared_ptr<SharedMemoryEngine> engine = known.lock();
  if (!engine) known = engine = std::make_shared<SharedMemoryEngine>(memory_capacity);
  return engine;
}

/// A MemorySharedStore with its own clock.
struct OwnMemory {
  explicit OwnMemory(const SharedStorage& options)
      : store{engine_named(options.url), clock, {options.prefix, expiry_of(options), secret_of(options)}} {}

  SteadyClock clock;
  MemorySharedStore store;
};

}  // namespace

RedisOptions redis_options(const SharedStorage& options) {
  RedisOptions redis = read_url(options.url);
  if (redis.password.empty()) {
    redis.password = options.password;
    redis.password_file = options.password_file.string();
  }
  if (redis.password.empty() && redis.password_file.empty()) {
    const char* const password = std::getenv("TERRACE_SHARED_PASSWORD");  // NOLINT(concurrency-mt-unsafe): only read
    if (password != nullptr) redis.password = password;
  }
  redis.ca_file = options.ca_file.string();
  redis.prefix = options.prefix;
  redis.expiry = expiry_of(options);
  redis.connections = options.connections_per_node;
  redis.window = options.window_bytes;
  return redis;
}

std::shared_ptr<SharedStore> open_shared_store(const SharedStorage& options) {
  if (options.store) return options.store;
  if (options.url.starts_with(in_memory)) {
    const auto own = std::make_shared<OwnMemory>(options);
    return {own, &own->store};
  }
  return open_redis_store(redis_options(options), nullptr, secret_of(options));
}

}  // namespace terrace
