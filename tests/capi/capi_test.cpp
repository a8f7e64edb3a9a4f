#include "capi/status.hpp"
#include "terrace.h"
#include "tests/capi/store_fixture.hpp"
#include "tools/live/client.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <boost/system/system_error.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using namespace terrace::capi;
using terrace::Errc;

TEST(Capi, codes_of_both_languages_are_the_same) {
  EXPECT_EQ(status_of(Errc::ok), TERRACE_OK);
  EXPECT_EQ(status_of(Errc::never_fits), TERRACE_NEVER_FITS);
  EXPECT_EQ(status_of(Errc::io_failed), TERRACE_IO_FAILED);
  EXPECT_EQ(status_of(Errc::stopped), TERRACE_STOPPED);
  EXPECT_EQ(status_of(terrace::ErrorCode{ENOSPC, boost::system::system_category()}), -ENOSPC);
}

TEST(Capi, every_number_has_a_text) {
  EXPECT_STREQ(terrace_status_text(TERRACE_CORRUPT), terrace::terrace_category().message(TERRACE_CORRUPT).c_str());
  EXPECT_NE(std::string{terrace_status_text(-ENOSPC)}.find("No space"), std::string::npos);
  EXPECT_STREQ(terrace_status_text(999), "unknown status 999");
  EXPECT_STRNE(terrace_status_text(INT32_MIN), "");
}

TEST(Capi, exceptions_become_statuses) {
  const auto status_of_a = [](const auto& exception) { return guarded("f", [&]() -> terrace_status { throw exception; }); };
  EXPECT_EQ(status_of_a(std::invalid_argument{"no such thing"}), TERRACE_INVALID_ARGUMENT);
  EXPECT_STREQ(terrace_last_error(), "f: no such thing");
  EXPECT_EQ(status_of_a(std::bad_alloc{}), TERRACE_NO_MEMORY);
  EXPECT_EQ(status_of_a(std::runtime_error{"no GPU"}), TERRACE_UNAVAILABLE);
  EXPECT_EQ(status_of_a(std::logic_error{"impossible"}), TERRACE_INTERNAL);
  EXPECT_EQ(status_of_a(7), TERRACE_INTERNAL);
  EXPECT_EQ(status_of_a(std::system_error{EACCES, std::generic_category(), "open"}), -EACCES);
  EXPECT_EQ(status_of_a(std::system_error{std::error_code{terrace::make_error_code(Errc::in_use)}, "open"}), TERRACE_IN_USE);
  EXPECT_EQ(status_of_a(boost::system::system_error{Errc::corrupt, "open"}), TERRACE_CORRUPT);
}

TEST(Capi, a_long_sentence_is_cut) {
  EXPECT_EQ(fail(TERRACE_FULL, std::string(5000, 'x')), TERRACE_FULL);
  EXPECT_EQ(std::strlen(terrace_last_error()), 1023U);
}

TEST(Capi, times_keep_their_limits) {
  EXPECT_EQ(time_from_now(TERRACE_NEVER), terrace::never);
  EXPECT_EQ(time_from_now(TERRACE_NEVER - 1), terrace::never);
  const terrace::TimePoint passed = time_from_now(INT64_MIN);
  EXPECT_LE(passed, std::chrono::steady_clock::now());
  EXPECT_EQ(deadline_of(0), terrace::never);
  EXPECT_EQ(until(terrace::never), TERRACE_NEVER);
  EXPECT_EQ(until(terrace::TimePoint{}), 0);
}

// ---- keys

TEST(CapiKeys, names_of_equal_and_of_any_length_give_the_same_keys) {
  const std::string bytes = "aabbcc";
  const std::array<std::uint32_t, 3> lengths{2, 2, 2};
  std::array<terrace_key, 3> equal{};
  std::array<terrace_key, 3> any{};
  const terrace_names same{bytes.data(), nullptr, 2, 3};
  const terrace_names each{bytes.data(), lengths.data(), 0, 3};
  ASSERT_EQ(terrace_keys_of_names("n", 1, &same, equal.data()), TERRACE_OK);
  ASSERT_EQ(terrace_keys_of_names("n", 1, &each, any.data()), TERRACE_OK);
  EXPECT_EQ(std::memcmp(equal.data(), any.data(), sizeof equal), 0);
  EXPECT_NE(std::memcmp(&equal[0], &equal[1], sizeof(terrace_key)), 0);
  std::array<terrace_key, 3> other{};
  ASSERT_EQ(terrace_keys_of_names("m", 1, &same, other.data()), TERRACE_OK);
  EXPECT_NE(std::memcmp(&equal[0], &other[0], sizeof(terrace_key)), 0);
}

TEST(CapiKeys, a_prefix_can_be_continued) {
  const std::string bytes = "aabbcc";
  std::array<terrace_key, 3> whole{};
  std::array<terrace_key, 3> parts{};
  const terrace_names all{bytes.data(), nullptr, 2, 3};
  ASSERT_EQ(terrace_keys_of_prefix("n", 1, nullptr, &all, whole.data()), TERRACE_OK);
  const terrace_names first{bytes.data(), nullptr, 2, 1};
  const terrace_names rest{bytes.data() + 2, nullptr, 2, 2};
  ASSERT_EQ(terrace_keys_of_prefix("n", 1, nullptr, &first, parts.data()), TERRACE_OK);
  ASSERT_EQ(terrace_keys_of_prefix("n", 1, parts.data(), &rest, parts.data() + 1), TERRACE_OK);
  EXPECT_EQ(std::memcmp(whole.data(), parts.data(), sizeof whole), 0);
}

TEST(CapiKeys, tokens_make_the_keys_of_full_blocks) {
  const std::vector<std::uint32_t> tokens(40, 7);
  std::array<terrace_key, 3> keys{};
  ASSERT_EQ(terrace_keys_of_tokens("n", 1, nullptr, tokens.data(), tokens.size(), 16, keys.data()), TERRACE_OK);
  EXPECT_NE(std::memcmp(&keys[0], &keys[1], sizeof(terrace_key)), 0);
  const terrace_key untouched{};
  EXPECT_EQ(std::memcmp(&keys[2], &untouched, sizeof untouched), 0);
  EXPECT_EQ(terrace_keys_of_tokens("n", 1, nullptr, tokens.data(), tokens.size(), 0, keys.data()), TERRACE_INVALID_ARGUMENT);
}

// ---- a store

TEST_F(StoreFixture, an_option_that_says_nothing_about_a_store_is_refused) {
  EXPECT_EQ(status_of_opening(config() + "host-blocks = 8\n"), TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(std::string{terrace_last_error()}.find("host-blocks says nothing about a store"), std::string::npos)
      << terrace_last_error();
  EXPECT_EQ(status_of_opening("[[pool]]\nblock-bytes = \"4KiB\"\n"), TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(std::string{terrace_last_error()}.find("where = \"file:DIR\""), std::string::npos) << terrace_last_error();
  EXPECT_EQ(status_of_opening("[storage]\nwhere = \"file:" + directory() + "\"\ncapacity = \"1MiB\"\n"),
            TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(std::string{terrace_last_error()}.find("block-bytes"), std::string::npos) << terrace_last_error();
}

TEST_F(StoreFixture, an_admin_endpoint_tells_the_configuration_of_a_store) {
  const std::string socket = directory() + "/s";
  const std::string text = "[storage]\nwhere = \"file:" + directory() + "/another" +
                           "\"\ncapacity = \"1MiB\"\n[[pool]]\nblock-bytes = \"4KiB\"\n[admin]\nlisten = \"unix:" + socket +
                           "\"\ninterval = \"10ms\"\n";
  terrace_open_options options = made<terrace_open_options>();
  options.config = text.c_str();
  terrace_store* store = nullptr;
  ASSERT_EQ(terrace_store_open(&options, &store), TERRACE_OK) << terrace_last_error();
  EXPECT_LE(terrace_store_next_poll(store), 10'000'000);
  const terrace::tools::AdminClient client{terrace::tools::Target{.socket = socket, .token_file = {}}};
  const boost::json::object health = client.get("/healthz");
  EXPECT_EQ(health.at("status").as_string(), "ok");
  std::map<std::string, std::string> told;
  const boost::json::object config = client.get("/v1/config");
  for (const boost::json::value& value : config.at("start").as_array()) {
    told[value.at("name").as_string().c_str()] = value.at("value").as_string().c_str();
  }
  EXPECT_EQ(told["storage.capacity"], "1MiB");
  EXPECT_EQ(told["pool[0].block-bytes"], "4KiB");
  EXPECT_EQ(told["admin.listen"], "unix:" + socket);
  for (const auto& [name, value] : told) EXPECT_FALSE(name.starts_with("pool[0].host")) << name;
  EXPECT_FALSE(told.contains("policy"));
  terrace_store_destroy(store);
  EXPECT_FALSE(std::filesystem::exists(socket));
  EXPECT_EQ(status_of_opening(text + "block-tokens = 16\n"), TERRACE_INVALID_ARGUMENT);
}

TEST_F(StoreFixture, one_directory_has_one_owner) {
  EXPECT_EQ(status_of_opening(config()), TERRACE_IN_USE) << terrace_last_error();
}

TEST_F(StoreFixture, a_store_has_no_regions_of_a_device) {
  terrace_open_options options = made<terrace_open_options>();
  const terrace_device_region region{};
  options.config = "";
  options.regions = &region;
  options.region_count = 1;
  terrace_store* other = nullptr;
  EXPECT_EQ(terrace_store_open(&options, &other), TERRACE_INVALID_ARGUMENT);
}

TEST_F(StoreFixture, results_say_what_became_of_each_block) {
  terrace_batch put = batch_of({0, 1});
  ASSERT_EQ(terrace_store_put(store(), &put), TERRACE_OK);
  EXPECT_EQ(terrace_store_get(store(), &put), TERRACE_DUPLICATE_REQUEST);
  EXPECT_EQ(finish(put.id), (std::vector<terrace_status>{TERRACE_OK, TERRACE_OK}));
  terrace_batch get = batch_of({0, 2});
  ASSERT_EQ(terrace_store_get(store(), &get), TERRACE_OK);
  EXPECT_EQ(finish(get.id), (std::vector<terrace_status>{TERRACE_OK, TERRACE_NOT_FOUND}));
  ASSERT_EQ(terrace_store_flush(store(), 99), TERRACE_OK);
  EXPECT_EQ(finish(99), (std::vector<terrace_status>{TERRACE_OK}));
}

TEST_F(StoreFixture, wrong_batches_change_nothing) {
  terrace_batch batch = batch_of({0});
  batch.region = 1234;
  EXPECT_EQ(terrace_store_put(store(), &batch), TERRACE_NOT_FOUND);
  batch = batch_of({0});
  const std::uint32_t beyond = 1'000'000;
  batch.rows = &beyond;
  EXPECT_EQ(terrace_store_put(store(), &batch), TERRACE_INVALID_ARGUMENT);
  batch = batch_of({0});
  batch.rows = nullptr;
  EXPECT_EQ(terrace_store_get(store(), &batch), TERRACE_INVALID_ARGUMENT);
  batch = batch_of({0});
  batch.parents = batch.keys;
  EXPECT_EQ(terrace_store_get(store(), &batch), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_store_cancel(store(), batch.id), TERRACE_NOT_FOUND);
  terrace_store_statistics statistics = made<terrace_store_statistics>();
  ASSERT_EQ(terrace_store_read_statistics(store(), &statistics), TERRACE_OK);
  EXPECT_EQ(statistics.puts + statistics.gets + statistics.batches, 0U);
}

TEST_F(StoreFixture, a_stopped_store_says_so) {
  terrace_store_stop(store());
  const terrace_batch batch = batch_of({0});
  EXPECT_EQ(terrace_store_put(store(), &batch), TERRACE_STOPPED);
  EXPECT_EQ(terrace_store_drain(store(), 0), TERRACE_OK);
}

TEST_F(StoreFixture, of_a_parent_is_stopped_in_a_child_and_goes_on_in_the_parent) {
  const terrace_batch batch = batch_of({0, 1});
  ASSERT_EQ(terrace_store_put(store(), &batch), TERRACE_OK);
  const pid_t child = ::fork();
  if (child == 0) {
    const terrace_batch another = batch_of({2});
    bool right = terrace_store_put(store(), &another) == TERRACE_STOPPED;
    right = right && std::string{terrace_last_error()}.find("terrace_store_put: the handle belongs to the parent") == 0;
    right = right && terrace_store_clear(store()) == TERRACE_STOPPED && terrace_store_fd(store()) == -1;
    right = right && terrace_store_next_poll(store()) == TERRACE_NEVER && std::string{terrace_store_io(store())}.empty();
    right = right && terrace_store_drain(store(), TERRACE_NEVER) == TERRACE_STOPPED;
    terrace_store_stop(store());
    terrace_store_destroy(store());
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_EQ(terrace_store_drain(store(), TERRACE_NEVER), TERRACE_OK);
  const terrace_batch_result* results = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(terrace_store_poll(store(), &results, &count), TERRACE_OK);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(results[0].succeeded, 2U);
}

TEST_F(StoreFixture, that_is_closed_twice_reports_the_same) {
  terrace_close_report report = made<terrace_close_report>();
  ASSERT_EQ(terrace_store_close(store(), TERRACE_NEVER, &report), TERRACE_OK);
  EXPECT_EQ(report.closed, 1);
  report.closed = 0;
  ASSERT_EQ(terrace_store_close(store(), 0, &report), TERRACE_OK);
  EXPECT_EQ(report.closed, 1);
}

TEST_F(StoreFixture, health_and_io_are_sentences) {
  std::int32_t health = -1;
  const char* reason = nullptr;
  ASSERT_EQ(terrace_store_health(store(), &health, &reason), TERRACE_OK);
  EXPECT_EQ(health, TERRACE_HEALTH_WELL);
  EXPECT_STREQ(reason, "");
  EXPECT_STRNE(terrace_store_io(store()), "");
}

TEST(Capi, a_null_handle_is_an_error_and_no_crash) {
  const terrace_key key{};
  std::uint64_t word = 0;
  std::size_t count = 0;
  EXPECT_EQ(terrace_store_contains(nullptr, &key, 1, &word), TERRACE_INVALID_ARGUMENT);
  EXPECT_STREQ(terrace_last_error(), "terrace_store_contains: store is null");
  EXPECT_EQ(terrace_store_poll(nullptr, nullptr, &count), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_store_fd(nullptr), -1);
  EXPECT_EQ(terrace_store_next_poll(nullptr), TERRACE_NEVER);
  EXPECT_EQ(terrace_store_block_bytes(nullptr), 0U);
  EXPECT_STREQ(terrace_store_io(nullptr), "");
  terrace_store_stop(nullptr);
  terrace_store_destroy(nullptr);
  EXPECT_EQ(terrace_offload_look_up(nullptr, 0, &key, 1, nullptr), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_offload_load(nullptr, nullptr), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_cache_fd(nullptr), -1);
  EXPECT_EQ(terrace_cache_destroy(nullptr, 0), 1);
  EXPECT_EQ(terrace_write_back_start(nullptr, nullptr, nullptr), TERRACE_INVALID_ARGUMENT);
}

/// A cache in which the caller moves the blocks itself, into and out of its own host memory.
class HostRowsFixture : public ::testing::Test {
 protected:
  static constexpr std::size_t block_bytes = 4096;
  static constexpr std::uint32_t row_count = 4;

  void SetUp() override { open(config); }
  void open(const char* wanted) {
    terrace_cache_destroy(std::exchange(cache_, nullptr), TERRACE_NEVER);
    terrace_open_options options = made<terrace_open_options>();
    options.config = wanted;
    options.host_rows = &rows_;
    options.host_rows_count = 1;
    ASSERT_EQ(terrace_offload_open(&options, &cache_), TERRACE_OK) << terrace_last_error();
    const terrace_names names{"abcdef", nullptr, 1, 6};
    ASSERT_EQ(terrace_keys_of_names("", 0, &names, keys_.data()), TERRACE_OK);
  }
  void TearDown() override { EXPECT_EQ(terrace_cache_destroy(cache_, TERRACE_NEVER), 1); }

  terrace_order order(std::uint64_t id, std::size_t first, std::size_t count) {
    terrace_order order = made<terrace_order>();
    order.id = id;
    order.keys = &keys_[first];
    order.count = count;
    return order;
  }

  static constexpr const char* config = "key-order = \"flat\"\n"
                                        "[[pool]]\nblock-bytes = 4096\ndevice-blocks = 1\nhost-blocks = 4\n";
  std::vector<std::byte> memory_ = std::vector<std::byte>(block_bytes * row_count);
  terrace_host_rows rows_{memory_.data(), 0, row_count, 0};
  terrace_offload* cache_ = nullptr;
  std::array<terrace_key, 6> keys_{};
};

TEST_F(HostRowsFixture, of_a_parent_is_stopped_in_a_child) {
  const pid_t child = ::fork();
  if (child == 0) {
    const terrace_offload_event* events = nullptr;
    std::size_t count = 0;
    bool right = terrace_offload_poll(cache_, &events, &count) == TERRACE_STOPPED;
    right = right && terrace_cache_drain(cache_, TERRACE_NEVER) == TERRACE_STOPPED;
    right = right && terrace_cache_fd(cache_) == -1 && terrace_cache_next_poll(cache_) == TERRACE_NEVER;
    right = right && terrace_cache_destroy(cache_, TERRACE_NEVER) == 1;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(HostRowsFixture, the_caller_fills_and_reads_rows_of_its_own_memory) {
  const terrace_order put = order(1, 0, 2);
  std::array<std::uint32_t, 3> at{};
  std::uint32_t count = 0;
  ASSERT_EQ(terrace_offload_reserve(cache_, &put, at.data(), &count), TERRACE_OK) << terrace_last_error();
  ASSERT_EQ(count, 2U);
  for (std::size_t i = 0; i < 2; ++i) memory_[at[i] * block_bytes] = static_cast<std::byte>(10 + i);
  ASSERT_EQ(terrace_offload_publish(cache_, 1, 1), TERRACE_OK);
  EXPECT_EQ(terrace_offload_publish(cache_, 1, 1), TERRACE_NOT_FOUND);
  std::array<std::byte, block_bytes> into{};
  void* const to = into.data();
  terrace_order get = order(2, 1, 1);
  get.memory = &to;
  ASSERT_EQ(terrace_offload_load(cache_, &get), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(terrace_cache_pause_idle_service(cache_, 1'000'000'000), TERRACE_OK);
  EXPECT_EQ(terrace_cache_pause_idle_service(cache_, -1), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_cache_pause_idle_service(cache_, 0), TERRACE_OK);
  ASSERT_EQ(terrace_cache_drain(cache_, TERRACE_NEVER), TERRACE_OK);
  EXPECT_EQ(into[0], std::byte{11});
  const terrace_order pin = order(3, 0, 3);
  ASSERT_EQ(terrace_offload_pin_slots(cache_, &pin, at.data()), TERRACE_OK);
  EXPECT_EQ(memory_[at[0] * block_bytes], std::byte{10});
  EXPECT_EQ(memory_[at[1] * block_bytes], std::byte{11});
  EXPECT_EQ(at[2], TERRACE_NO_SLOT);
  EXPECT_EQ(terrace_offload_unpin(cache_, 3), TERRACE_OK);
}

TEST_F(HostRowsFixture, in_prefix_order_keys_may_stand_alone) {
  open("[[pool]]\nblock-bytes = 4096\ndevice-blocks = 1\nhost-blocks = 4\n");
  std::array<std::uint32_t, 3> at{};
  std::uint32_t count = 0;
  terrace_order put = order(1, 0, 2);
  put.pool = TERRACE_ALONE;
  ASSERT_EQ(terrace_offload_reserve(cache_, &put, at.data(), &count), TERRACE_OK) << terrace_last_error();
  ASSERT_EQ(count, 2U);
  for (std::size_t i = 0; i < 2; ++i) memory_[at[i] * block_bytes] = static_cast<std::byte>(10 + i);
  ASSERT_EQ(terrace_offload_publish(cache_, 1, 1), TERRACE_OK);
  std::array<std::uint8_t, 2> states{};
  ASSERT_EQ(terrace_offload_look_up(cache_, 0, keys_.data(), 2, states.data()), TERRACE_OK);
  EXPECT_EQ(states, (std::array<std::uint8_t, 2>{TERRACE_HOST, TERRACE_MISS})) << "as a prefix, the second follows the first";
  ASSERT_EQ(terrace_offload_look_up(cache_, TERRACE_ALONE, keys_.data(), 2, states.data()), TERRACE_OK);
  EXPECT_EQ(states, (std::array<std::uint8_t, 2>{TERRACE_HOST, TERRACE_HOST}));
  std::size_t leading = 0;
  ASSERT_EQ(terrace_offload_leading(cache_, TERRACE_ALONE, keys_.data(), 3, &leading), TERRACE_OK);
  EXPECT_EQ(leading, 2U);
  terrace_order pin = order(2, 0, 2);
  pin.pool = TERRACE_ALONE;
  ASSERT_EQ(terrace_offload_pin_slots(cache_, &pin, at.data()), TERRACE_OK);
  EXPECT_EQ(memory_[at[1] * block_bytes], std::byte{11});
  EXPECT_EQ(terrace_offload_unpin(cache_, 2), TERRACE_OK);
  pin.slots = at.data();
  EXPECT_EQ(terrace_offload_pin_slots(cache_, &pin, at.data()), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_offload_look_up(cache_, TERRACE_ALONE + 1, keys_.data(), 2, states.data()), TERRACE_INVALID_ARGUMENT);
}

TEST_F(HostRowsFixture, a_companion_goes_after_the_block_to_which_it_belongs) {
  open("[[pool]]\nblock-bytes = 4096\ndevice-blocks = 1\nhost-blocks = 3\n");
  std::array<std::uint32_t, 3> at{};
  std::uint32_t count = 0;
  const auto fill = [&](const terrace_order& order) {
    ASSERT_EQ(terrace_offload_reserve(cache_, &order, at.data(), &count), TERRACE_OK) << terrace_last_error();
    ASSERT_EQ(terrace_offload_publish(cache_, order.id, 1), TERRACE_OK);
  };
  const auto states = [&](std::uint16_t pool) {
    std::array<std::uint8_t, 2> states{};
    EXPECT_EQ(terrace_offload_look_up(cache_, pool, keys_.data(), 2, states.data()), TERRACE_OK);
    return states;
  };
  fill(order(1, 0, 2));
  terrace_order window = order(2, 2, 1);
  window.pool = TERRACE_ALONE;
  window.beside = keys_.data();
  window.beside_count = 2;
  fill(window);
  terrace_order other = order(3, 3, 1);
  fill(other);
  EXPECT_EQ(states(0), (std::array<std::uint8_t, 2>{TERRACE_HOST, TERRACE_MISS}));
  std::uint8_t state = 0;
  ASSERT_EQ(terrace_offload_look_up(cache_, TERRACE_ALONE, &keys_[2], 1, &state), TERRACE_OK);
  EXPECT_EQ(state, TERRACE_HOST);
  fill(order(4, 4, 1));
  ASSERT_EQ(terrace_offload_look_up(cache_, TERRACE_ALONE, &keys_[2], 1, &state), TERRACE_OK);
  EXPECT_EQ(state, TERRACE_MISS);
  EXPECT_EQ(states(0), (std::array<std::uint8_t, 2>{TERRACE_HOST, TERRACE_MISS}));
  EXPECT_EQ(terrace_offload_pin_slots(cache_, &window, at.data()), TERRACE_INVALID_ARGUMENT);
  window.beside = nullptr;
  EXPECT_EQ(terrace_offload_reserve(cache_, &window, at.data(), &count), TERRACE_INVALID_ARGUMENT);
  window.beside_count = 0;
  window.struct_size = offsetof(terrace_order, beside);
  EXPECT_EQ(terrace_offload_reserve(cache_, &window, at.data(), &count), TERRACE_OK) << "an order of an earlier header";
}

TEST_F(HostRowsFixture, options_of_an_earlier_header_have_no_rows) {
  terrace_open_options options = made<terrace_open_options>();
  options.struct_size = offsetof(terrace_open_options, host_rows);
  options.config = config;
  options.host_rows = &rows_;  // beyond the end of what the caller knows
  options.host_rows_count = 99;
  terrace_offload* other = nullptr;
  ASSERT_EQ(terrace_offload_open(&options, &other), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(terrace_cache_destroy(other, TERRACE_NEVER), 1);
}

TEST_F(HostRowsFixture, wrong_reservations_are_refused) {
  terrace_order put = order(1, 0, 1);
  std::uint32_t count = 7;
  EXPECT_EQ(terrace_offload_reserve(cache_, &put, nullptr, &count), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(count, 0U);
  std::uint32_t slot = 0;
  put.slots = &slot;
  EXPECT_EQ(terrace_offload_reserve(cache_, &put, &slot, &count), TERRACE_INVALID_ARGUMENT) << "it names device slots";
}

TEST_F(HostRowsFixture, an_order_that_skips_more_keys_than_it_has_is_refused) {
  const std::uint32_t slot = 0;
  terrace_order load = order(1, 0, 1);
  load.slots = &slot;
  load.first = 2;
  EXPECT_EQ(terrace_offload_load(cache_, &load), TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(std::string{terrace_last_error()}.find("order->first is 2, beyond the 1 keys"), std::string::npos)
      << terrace_last_error();
}

TEST_F(HostRowsFixture, wrong_rows_are_refused) {
  const auto open_with = [](std::vector<terrace_host_rows> rows) {
    terrace_open_options options = made<terrace_open_options>();
    options.config = config;
    options.host_rows = rows.data();
    options.host_rows_count = rows.size();
    terrace_offload* other = nullptr;
    const terrace_status status = terrace_offload_open(&options, &other);
    EXPECT_EQ(terrace_cache_destroy(other, TERRACE_NEVER), 1);
    return std::pair{status, std::string{terrace_last_error()}};
  };
  terrace_host_rows few = rows_;
  few.rows = 3;
  EXPECT_EQ(open_with({few}).first, TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(open_with({few}).second.find("4 slots"), std::string::npos) << open_with({few}).second;
  terrace_host_rows elsewhere = rows_;
  elsewhere.pool = 1;
  EXPECT_NE(open_with({elsewhere}).second.find("there is no pool 1"), std::string::npos);
  EXPECT_NE(open_with({rows_, rows_}).second.find("named twice"), std::string::npos);
}

TEST_F(HostRowsFixture, a_device_in_ordinary_memory_takes_no_stream) {
  std::uint64_t point = 0;
  int no_stream = 0;
  const auto said = [](const char* part) { return std::string{terrace_last_error()}.find(part) != std::string::npos; };
  EXPECT_EQ(terrace_cache_signal(cache_, &no_stream, 0, &point), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(said("stream must be null")) << terrace_last_error();
  EXPECT_EQ(terrace_offload_await(cache_, 1, UINT32_MAX, &no_stream, 0), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(said("stream must be null")) << terrace_last_error();
  EXPECT_EQ(terrace_cache_signal(cache_, nullptr, 1, &point), TERRACE_INVALID_ARGUMENT);
  EXPECT_TRUE(said("there is no such rank")) << terrace_last_error();
  EXPECT_EQ(terrace_cache_signal(cache_, nullptr, 0, &point), TERRACE_OK) << terrace_last_error();
  EXPECT_GT(point, 0U);
}

/// A cache with a shared store and one committed block, which the policy does not write.
class SharedFixture : public HostRowsFixture {
 protected:
  void SetUp() override {
    HostRowsFixture::SetUp();
    terrace_open_options options = made<terrace_open_options>();
    options.config = "key-order = \"flat\"\n[shared]\nurl = \"memory:\"\nwrite-policy = \"none\"\n"
                     "[[pool]]\nblock-bytes = 4096\ndevice-blocks = 1\nhost-blocks = 4\nstaging-blocks = 2\n";
    ASSERT_EQ(terrace_offload_open(&options, &sharing_), TERRACE_OK) << terrace_last_error();
    ASSERT_EQ(terrace_cache_record_events(sharing_), TERRACE_OK);
    poll();  // it notices that the shared store can be used
    terrace_order put = order(1, 0, 1);
    void* const from = memory_.data();
    put.memory = &from;
    ASSERT_EQ(terrace_offload_store(sharing_, &put), TERRACE_OK) << terrace_last_error();
    ASSERT_EQ(terrace_cache_drain(sharing_, TERRACE_NEVER), TERRACE_OK);
    poll();
  }
  void TearDown() override {
    EXPECT_EQ(terrace_cache_destroy(sharing_, TERRACE_NEVER), 1);
    HostRowsFixture::TearDown();
  }
  void poll() {
    const terrace_offload_event* events = nullptr;
    std::size_t count = 0;
    ASSERT_EQ(terrace_offload_poll(sharing_, &events, &count), TERRACE_OK);
  }
  terrace_write_back_progress finish(std::uint64_t job) {
    terrace_write_back_progress progress = made<terrace_write_back_progress>();
    do {
      EXPECT_EQ(terrace_cache_wait(sharing_, 10'000'000), TERRACE_OK);
      poll();
      EXPECT_EQ(terrace_write_back_read(sharing_, job, &progress), TERRACE_OK);
    } while (progress.state == TERRACE_JOB_RUNNING);
    return progress;
  }
  static terrace_write_back everything(std::uint32_t target) {
    terrace_write_back order = made<terrace_write_back>();
    order.scope = TERRACE_SCOPE_ALL;
    order.target = target;
    return order;
  }

  terrace_offload* sharing_ = nullptr;
};

TEST_F(SharedFixture, a_write_back_job_brings_blocks_to_the_shared_store) {
  std::uint64_t job = 0;
  const terrace_write_back to_shared = everything(TERRACE_TARGET_SHARED);
  ASSERT_EQ(terrace_write_back_start(sharing_, &to_shared, &job), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(finish(job).stored, 1U);
  ASSERT_EQ(terrace_write_back_start(sharing_, &to_shared, &job), TERRACE_OK);
  EXPECT_EQ(finish(job).already_there, 1U);
  const terrace_write_back to_storage = everything(TERRACE_TARGET_STORAGE);
  EXPECT_EQ(terrace_write_back_start(sharing_, &to_storage, &job), TERRACE_INVALID_ARGUMENT) << "there is none";
  EXPECT_EQ(terrace_write_back_start(cache_, &to_shared, &job), TERRACE_INVALID_ARGUMENT) << "there is no shared store";
  const terrace_write_back elsewhere = everything(2);
  EXPECT_EQ(terrace_write_back_start(sharing_, &elsewhere, &job), TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(std::string{terrace_last_error()}.find("target is 2"), std::string::npos) << terrace_last_error();
}

TEST_F(SharedFixture, a_write_back_job_of_an_earlier_header_is_for_storage) {
  std::uint64_t job = 0;
  terrace_write_back order = everything(TERRACE_TARGET_SHARED);
  order.struct_size = offsetof(terrace_write_back, target);  // what follows is beyond the end of what the caller knows
  EXPECT_EQ(terrace_write_back_start(sharing_, &order, &job), TERRACE_INVALID_ARGUMENT) << "there is no storage";
  EXPECT_EQ(std::string{terrace_last_error()}.find("struct_size"), std::string::npos) << terrace_last_error();
  order.struct_size -= 1;
  EXPECT_EQ(terrace_write_back_start(sharing_, &order, &job), TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(std::string{terrace_last_error()}.find("struct_size of order"), std::string::npos) << terrace_last_error();
}

TEST_F(SharedFixture, copies_in_the_shared_store_are_hints_that_end) {
  std::uint64_t job = 0;
  const terrace_write_back to_shared = everything(TERRACE_TARGET_SHARED);
  ASSERT_EQ(terrace_write_back_start(sharing_, &to_shared, &job), TERRACE_OK);
  ASSERT_EQ(finish(job).stored, 1U);
  const terrace_cache_event* events = nullptr;
  const std::int64_t* expire_after = nullptr;
  std::size_t count = 0;
  std::size_t expiries = 0;
  ASSERT_EQ(terrace_cache_events(sharing_, &events, &count), TERRACE_OK);
  ASSERT_EQ(terrace_cache_event_expiries(sharing_, &expire_after, &expiries), TERRACE_OK);
  ASSERT_EQ(count, 2U);
  ASSERT_EQ(expiries, 2U);
  EXPECT_EQ(events[0].source, static_cast<std::uint32_t>(TERRACE_HOST));
  EXPECT_EQ(expire_after[0], 0);
  EXPECT_EQ(events[1].source, static_cast<std::uint32_t>(TERRACE_SHARED));
  EXPECT_EQ(expire_after[1], 12 * 3'600'000'000'000) << "half of the expiry";
  ASSERT_EQ(terrace_cache_events(sharing_, &events, &count), TERRACE_OK);
  ASSERT_EQ(terrace_cache_event_expiries(sharing_, &expire_after, &expiries), TERRACE_OK);
  EXPECT_EQ(count + expiries, 0U);
}

}  // namespace
