#pragma once

#include "tests/redis/fake_engine.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace terrace::test {

using std::chrono::milliseconds;

/// A client of fake servers, and calls that a test makes.
class RedisClientTest : public testing::Test {
 protected:
  static constexpr std::size_t small_block = 5'000;
  static constexpr std::size_t large_block = std::size_t{64} << 10;

  void begin(const std::string& url) {
    RedisOptions options = parse_redis_url(url);
    options.seed = 7;
    options.connections = connections_;
    options.window = window_;
    engine_ = std::make_unique<FakeEngine>(options);
  }
  void start(const std::string& url = "redis://host:1") {
    if (!engine_) begin(url);
    engine_->begin();
    engine_->run();
  }
  [[nodiscard]] FakeServer& server(std::uint16_t port = 1) { return engine_->server(port); }
  [[nodiscard]] RedisClient& client() { return engine_->client(); }
  [[nodiscard]] std::string name(const StoredBlock& block, std::uint32_t part = 0) const {
    return names_->name(block.key, block.group, part);
  }
  /// The server has something under the name of the block.
  void keep(const StoredBlock& block) { server().values.insert_or_assign(name(block), std::string(3, 'x')); }
  [[nodiscard]] TimePoint in(Duration time) { return engine_->clock().now() + time; }

  /// `there`: a byte for each block, if each is asked for by itself (SharedProbe::there).
  std::uint64_t probe(const std::vector<StoredBlock>& blocks, TimePoint deadline = never, std::span<std::uint8_t> there = {}) {
    std::vector<BlockKey> keys;
    for (const StoredBlock& block : blocks) keys.push_back(block.key);
    return call(SharedProbe{.token = ++token_, .keys = keys, .deadline = deadline, .there = there});
  }
  std::uint64_t read(const StoredBlock& block, std::size_t bytes = small_block, TimePoint deadline = never) {
    std::vector<std::byte>& into = memory_[++token_];
    into.assign(bytes, std::byte{0xee});
    return call(SharedRead{token_, block, into, deadline});
  }
  std::uint64_t write(const StoredBlock& block, std::size_t bytes = small_block, TimePoint deadline = never) {
    std::vector<std::byte>& from = memory_[++token_];
    from.resize(bytes);
    fill(from, block.key);
    return call(SharedWrite{token_, block, from, deadline});
  }
  [[nodiscard]] std::vector<std::byte>& memory(std::uint64_t token) { return memory_[token]; }
  [[nodiscard]] bool has_event(std::uint64_t token) const { return engine_->events().contains(token); }
  [[nodiscard]] SharedEvent event(std::uint64_t token) const {
    if (has_event(token)) return engine_->events().at(token);
    ADD_FAILURE() << "no event of token " << token;
    return {};
  }
  [[nodiscard]] ErrorCode error(std::uint64_t token) const { return event(token).error; }
  /// The only node, or one of several.
  [[nodiscard]] SharedNode node(std::uint16_t port = 1) {
    for (const SharedNode& each : client().health().nodes) {
      if (each.address == "host:" + std::to_string(port)) return each;
    }
    ADD_FAILURE() << "no node with port " << port;
    return {};
  }
  void expect_well(std::uint64_t read_token, const StoredBlock& block) {
    EXPECT_FALSE(error(read_token)) << error(read_token).message();
    EXPECT_TRUE(holds(memory(read_token), block.key)) << "a wrong block was served";
  }

  std::uint32_t connections_ = 2;
  Bytes window_{MiB * 4};
  std::unique_ptr<FakeEngine> engine_;
  const std::shared_ptr<const SharedValueNames> names_ = std::make_shared<const SharedValueNames>("terrace");

 private:
  template <class Operation>
  std::uint64_t call(const Operation& operation) {
    client().begin(KeptOperation::of(operation, {}), names_);
    engine_->run();
    return operation.token;
  }

  std::uint64_t token_ = 0;
  std::map<std::uint64_t, std::vector<std::byte>> memory_;
};

}  // namespace terrace::test
