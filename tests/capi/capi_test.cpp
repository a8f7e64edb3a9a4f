#include "capi/status.hpp"
#include "terrace.h"
#include "tests/capi/store_fixture.hpp"

#include <gtest/gtest.h>

#include <boost/system/system_error.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
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

// ---- structures of other versions

TEST(CapiStructures, a_size_of_0_is_refused) {
  terrace_open_options options{};
  terrace_store* store = nullptr;
  EXPECT_EQ(terrace_store_open(&options, &store), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(store, nullptr);
  EXPECT_NE(std::string{terrace_last_error()}.find("struct_size of options is 0"), std::string::npos) << terrace_last_error();
}

struct Later {
  terrace_batch batch;
  std::uint64_t new_field;
};

TEST_F(StoreFixture, a_structure_of_a_later_header_is_accepted_if_its_new_fields_are_0) {
  Later later{};
  later.batch = batch_of({0});
  later.batch.struct_size = sizeof later;
  ASSERT_EQ(terrace_store_put(store(), &later.batch), TERRACE_OK) << terrace_last_error();
  EXPECT_EQ(finish(later.batch.id).size(), 1U);
  later.new_field = 1;
  EXPECT_EQ(terrace_store_put(store(), &later.batch), TERRACE_INVALID_ARGUMENT);
  EXPECT_NE(std::string{terrace_last_error()}.find("does not have"), std::string::npos) << terrace_last_error();
}

TEST_F(StoreFixture, statistics_fill_a_larger_structure_with_0) {
  struct {
    terrace_store_statistics known;
    std::uint64_t unknown;
  } later{};
  later.known.struct_size = sizeof later;
  later.unknown = 77;
  ASSERT_EQ(terrace_store_read_statistics(store(), &later.known), TERRACE_OK);
  EXPECT_EQ(later.known.struct_size, sizeof later);
  EXPECT_EQ(later.unknown, 0U);
  EXPECT_GT(later.known.capacity_blocks, 0U);
  later.known.struct_size = 8;
  EXPECT_EQ(terrace_store_read_statistics(store(), &later.known), TERRACE_INVALID_ARGUMENT);
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
  EXPECT_EQ(terrace_offload_fd(nullptr), -1);
  EXPECT_EQ(terrace_offload_destroy(nullptr, 0), 1);
  EXPECT_EQ(terrace_write_back_start(nullptr, nullptr, nullptr), TERRACE_INVALID_ARGUMENT);
}

}  // namespace
