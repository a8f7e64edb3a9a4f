#pragma once

#include "base/waker.hpp"
#include "storage/redis/redis_shared_store.hpp"
#include "tests/redis/server/real_server.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace terrace::test {

using std::chrono::milliseconds;

/// A user of real servers that waits for each event.
class RedisUser {
 public:
  explicit RedisUser(RedisOptions options, std::shared_ptr<const SharedSecret> secret = nullptr)
      : store_{open_redis_store(std::move(options), &waker_, std::move(secret))} {}
  explicit RedisUser(const std::string& url) : RedisUser{parse_redis_url(url)} {}

  [[nodiscard]] SharedStore& store() { return *store_; }

  std::uint64_t start_read(const StoredBlock& block, std::size_t bytes, Duration deadline = patience) {
    std::vector<std::byte>& into = memory_[++token_];
    into.assign(bytes, std::byte{0xee});
    const SharedRead read{token_, block, into, clock_.now() + deadline};
    store_->read({&read, 1});
    return token_;
  }
  std::uint64_t start_write(const StoredBlock& block, std::size_t bytes, Duration deadline = patience) {
    std::vector<std::byte>& from = memory_[++token_];
    from.resize(bytes);
    fill(from, block.key);
    const SharedWrite write{token_, block, from, clock_.now() + deadline};
    store_->write({&write, 1});
    return token_;
  }
  /// Waits for an event.
  SharedEvent wait(std::uint64_t token) {
    std::vector<SharedEvent> events;
    while (!events_.contains(token)) {
      waker_.acknowledge();
      events.clear();
      if (store_->poll(events) == 0) waker_.wait(1000);
      for (const SharedEvent& event : events) events_[event.token] = event;
    }
    return events_[token];
  }
  [[nodiscard]] bool has_event(std::uint64_t token) {
    std::vector<SharedEvent> events;
    store_->poll(events);
    for (const SharedEvent& event : events) events_[event.token] = event;
    return events_.contains(token);
  }
  [[nodiscard]] std::vector<std::byte>& memory(std::uint64_t token) { return memory_[token]; }

  ErrorCode write(const StoredBlock& block, std::size_t bytes, Duration deadline = patience) {
    const std::uint64_t token = start_write(block, bytes, deadline);
    const ErrorCode error = wait(token).error;
    memory_.erase(token);
    return error;
  }
  /// Fails the test if a wrong block is served.
  ErrorCode read(const StoredBlock& block, std::size_t bytes, Duration deadline = patience) {
    const std::uint64_t token = start_read(block, bytes, deadline);
    const ErrorCode error = wait(token).error;
    EXPECT_TRUE(error || holds(memory_[token], block.key)) << "a wrong block was served";
    memory_.erase(token);
    return error;
  }
  SharedEvent probe(const std::vector<StoredBlock>& blocks, Duration deadline = patience) {
    std::vector<BlockKey> keys;
    for (const StoredBlock& block : blocks) keys.push_back(block.key);
    store_->probe({.token = ++token_, .keys = keys, .deadline = clock_.now() + deadline});
    return wait(token_);
  }
  /// Waits until some node, or none, can be used.
  [[nodiscard]] bool becomes_usable(bool usable = true) {
    return comes_true([&] { return store_->usable() == usable; });
  }
  [[nodiscard]] bool becomes(StoreState state) {
    return comes_true([&] { return store_->health().state == state; });
  }

 private:
  EventFdWaker waker_;
  SteadyClock clock_;
  std::map<std::uint64_t, std::vector<std::byte>> memory_;  // the store ends before it does
  std::unique_ptr<SharedStore> store_;
  std::uint64_t token_ = 0;
  std::map<std::uint64_t, SharedEvent> events_;
};

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator files{"/proc/self/fd"};
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

}  // namespace terrace::test
