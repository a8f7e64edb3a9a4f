#include "terrace.h"
#include "tests/patience.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

namespace {

using Publisher = std::unique_ptr<terrace_event_publisher, decltype(&terrace_event_publisher_destroy)>;

terrace_event_options on_any_port() {
  terrace_event_options options{};
  options.struct_size = sizeof options;
  options.endpoint = "tcp://127.0.0.1:0";
  return options;
}

Publisher open(const terrace_event_options& options = on_any_port()) {
  terrace_event_publisher* publisher = nullptr;
  EXPECT_EQ(terrace_event_publisher_open(&options, &publisher), TERRACE_OK) << terrace_last_error();
  return {publisher, &terrace_event_publisher_destroy};
}

terrace_event_statistics statistics(const Publisher& publisher) {
  terrace_event_statistics statistics{};
  statistics.struct_size = sizeof statistics;
  EXPECT_EQ(terrace_event_publisher_read_statistics(publisher.get(), &statistics), TERRACE_OK);
  return statistics;
}

terrace_block_tokens two_blocks(const std::array<terrace_key, 2>& keys, const std::array<uint32_t, 4>& tokens) {
  terrace_block_tokens blocks{};
  blocks.struct_size = sizeof blocks;
  blocks.keys = keys.data();
  blocks.count = keys.size();
  blocks.tokens = tokens.data();
  blocks.token_count = tokens.size();
  blocks.block_tokens = 2;
  return blocks;
}

struct CapiEvents : testing::Test {
  void SetUp() override {
    ASSERT_EQ(terrace_keys_of_tokens("m", 1, nullptr, tokens.data(), tokens.size(), 2, keys.data()), TERRACE_OK);
  }

  std::array<uint32_t, 4> tokens{1, 2, 3, 4};
  std::array<terrace_key, 2> keys{};
};

TEST_F(CapiEvents, blocks_are_published_once_they_are_cached_and_described) {
  terrace_event_publisher_destroy(nullptr);
  const Publisher publisher = open();
  EXPECT_EQ(std::string{terrace_event_publisher_endpoint(publisher.get())}.rfind("tcp://127.0.0.1:", 0), 0U);
  EXPECT_STREQ(terrace_event_publisher_replay_endpoint(publisher.get()), "");
  std::array<terrace_cache_event, 3> events{};
  events[0].key = keys[0];
  events[0].source = TERRACE_DEVICE;
  events[1].key = keys[1];
  events[1].parent = keys[0];
  events[1].source = TERRACE_STORAGE;
  events[1].depth = 1;
  events[2].key = keys[1];
  events[2].source = TERRACE_SHARED;
  EXPECT_EQ(terrace_event_publisher_publish(publisher.get(), events.data(), events.size()), TERRACE_OK);
  EXPECT_TRUE(terrace::test::comes_true([&] { return statistics(publisher).without_tokens == 2; }));
  const terrace_block_tokens blocks = two_blocks(keys, tokens);
  EXPECT_EQ(terrace_event_publisher_describe(publisher.get(), &blocks), TERRACE_OK);
  EXPECT_TRUE(terrace::test::comes_true([&] { return statistics(publisher).published_blocks == 2; }));
  EXPECT_EQ(statistics(publisher).stored, 2U);
}

TEST_F(CapiEvents, options_have_defaults_and_wrong_ones_are_refused) {
  terrace_event_options options = on_any_port();
  options.heartbeat = -1;
  terrace_event_publisher* none = nullptr;
  EXPECT_EQ(terrace_event_publisher_open(&options, &none), TERRACE_INVALID_ARGUMENT);
  EXPECT_STREQ(terrace_last_error(), "terrace_event_publisher_open: heartbeat must be at least 1 ms");
  options = on_any_port();
  const Publisher publisher = open(options);
  options.endpoint = terrace_event_publisher_endpoint(publisher.get());
  EXPECT_EQ(terrace_event_publisher_open(&options, &none), -EADDRINUSE);
  EXPECT_EQ(none, nullptr);
  options.endpoint = "5557";
  EXPECT_EQ(terrace_event_publisher_open(&options, &none), TERRACE_INVALID_ARGUMENT);
  options.struct_size = 8;
  EXPECT_EQ(terrace_event_publisher_open(&options, &none), TERRACE_INVALID_ARGUMENT);
}

TEST_F(CapiEvents, wrong_arguments_are_refused_with_their_place) {
  const Publisher publisher = open();
  const auto refusal = [&](std::uint32_t kind, std::uint32_t source, std::uint32_t group) {
    std::array<terrace_cache_event, 2> events{};
    events[0].kind = TERRACE_CACHE_CLEARED;
    events[1].kind = kind;
    events[1].source = source;
    events[1].group = group;
    EXPECT_EQ(terrace_event_publisher_publish(publisher.get(), events.data(), events.size()), TERRACE_INVALID_ARGUMENT);
    return std::string{terrace_last_error()};
  };
  const std::string function = "terrace_event_publisher_publish: ";
  EXPECT_EQ(refusal(3, TERRACE_HOST, 0), function + "events[1].kind is 3, must be a TERRACE_CACHE_ number");
  EXPECT_EQ(refusal(TERRACE_CACHE_STORED, 0, 0),
            function + "events[1].source is 0, must be TERRACE_DEVICE, TERRACE_HOST, TERRACE_STORAGE or TERRACE_SHARED");
  EXPECT_EQ(refusal(TERRACE_CACHE_STORED, 5, 0),
            function + "events[1].source is 5, must be TERRACE_DEVICE, TERRACE_HOST, TERRACE_STORAGE or TERRACE_SHARED");
  EXPECT_EQ(refusal(TERRACE_CACHE_REMOVED, TERRACE_HOST, 65536), function + "events[1].group is 65536, must be at most 65535");
  EXPECT_EQ(terrace_event_publisher_publish(publisher.get(), nullptr, 1), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_event_publisher_publish(publisher.get(), nullptr, 0), TERRACE_OK);

  terrace_block_tokens blocks = two_blocks(keys, tokens);
  blocks.token_count = 3;
  EXPECT_EQ(terrace_event_publisher_describe(publisher.get(), &blocks), TERRACE_INVALID_ARGUMENT);
  EXPECT_STREQ(terrace_last_error(), "terrace_event_publisher_describe: there must be block_tokens tokens for each key");
  blocks.tokens = nullptr;
  EXPECT_EQ(terrace_event_publisher_describe(publisher.get(), &blocks), TERRACE_INVALID_ARGUMENT);
  blocks = two_blocks(keys, tokens);
  blocks.group = 65536;
  EXPECT_EQ(terrace_event_publisher_describe(publisher.get(), &blocks), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_event_publisher_describe(nullptr, &blocks), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(statistics(publisher).batches, 0U);
}

}  // namespace
