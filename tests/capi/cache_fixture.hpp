#pragma once

#include "terrace.h"
#include "tests/capi/store_fixture.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace terrace::test {

inline constexpr std::uint32_t unit = 4;         // tokens of a block
inline constexpr std::size_t slot_bytes = 4096;  // of the device
inline constexpr std::uint32_t device_blocks = 12;

inline std::vector<std::uint32_t> tokens_of(std::uint32_t from, std::uint32_t count) {
  std::vector<std::uint32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

inline bool says(const char* part) { return std::string{terrace_last_error()}.find(part) != std::string::npos; }

/// The keys of a sequence. Destroyed with the object, also while a request has it.
struct Chain {
  explicit Chain(const std::vector<std::uint32_t>& tokens, const char* salt = nullptr) {
    terrace_root root = made<terrace_root>();
    root.model_digest = "a model";
    root.model_digest_bytes = 7;
    root.tenant_salt = salt;
    EXPECT_EQ(terrace_chain_make(&root, unit, &chain), TERRACE_OK) << terrace_last_error();
    EXPECT_EQ(terrace_chain_append(chain, tokens.data(), tokens.size()), TERRACE_OK);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  ~Chain() { terrace_chain_destroy(chain); }

  [[nodiscard]] std::vector<terrace_key> keys() const {
    const terrace_key* first = nullptr;
    std::size_t count = 0;
    EXPECT_EQ(terrace_chain_keys(chain, &first, &count), TERRACE_OK);
    return {first, first + count};
  }

  terrace_chain* chain = nullptr;
};

/// A cache with a device in ordinary memory, a host tier and storage. The fixture is the engine: it writes and reads the blocks.
class CapiCache : public testing::Test {
 protected:
  void SetUp() override {
    const std::string config = "[storage]\nwhere = \"file:" + directory_.path().string() +
                               "\"\ncapacity = \"1MiB\"\n[device]\nreserve-max = 0\n[[pool]]\nblock-bytes = 4096\ndevice-blocks "
                               "= 12\nhost-blocks = 16\n";
    terrace_open_options options = made<terrace_open_options>();
    options.config = config.c_str();
    const terrace_device_region region{0, 0, reinterpret_cast<std::uint64_t>(memory_.data()), slot_bytes, slot_bytes, 0, 0};
    options.regions = &region;
    options.region_count = 1;
    ASSERT_EQ(terrace_cache_open(&options, &cache_), TERRACE_OK) << terrace_last_error();
  }
  void TearDown() override { EXPECT_EQ(terrace_cache_destroy(cache_, TERRACE_NEVER), 1); }

  static terrace_acquire of_chain(std::uint64_t id, const Chain& chain) {
    terrace_acquire request = made<terrace_acquire>();
    request.request = id;
    request.chain = chain.chain;
    return request;
  }

  /// Acquires, and waits until the request is ready.
  terrace_request acquire(const terrace_acquire& request) {
    terrace_request state = made<terrace_request>();
    EXPECT_EQ(terrace_cache_acquire(cache_, &request, &state), TERRACE_OK) << terrace_last_error();
    while (state.state == TERRACE_REQUEST_WAITING) {
      const terrace_request_event* events = nullptr;
      std::size_t count = 0;
      EXPECT_EQ(terrace_cache_poll(cache_, &events, &count), TERRACE_OK);
      EXPECT_EQ(terrace_cache_read_request(cache_, request.request, &state), TERRACE_OK);
      if (state.state == TERRACE_REQUEST_WAITING) {
        EXPECT_EQ(terrace_cache_wait(cache_, 1'000'000'000), TERRACE_OK);
      }
    }
    EXPECT_EQ(state.state, TERRACE_REQUEST_READY);
    return state;
  }

  /// One step of one request.
  terrace_status step(std::uint64_t id, std::uint64_t computed, const std::vector<std::uint32_t>& tokens = {},
                      std::uint64_t needed = 0) {
    const auto count = static_cast<std::uint32_t>(tokens.size());
    terrace_status status = -1;
    terrace_step step = made<terrace_step>();
    step.requests = &id;
    step.count = 1;
    step.token_counts = &count;
    step.tokens = tokens.data();
    step.token_capacity = count;
    step.computed_tokens = &computed;
    step.needed_tokens = &needed;
    step.statuses = &status;
    const terrace_status first = terrace_cache_step(cache_, &step);
    EXPECT_EQ(first, status);
    return status;
  }

  void release(std::uint64_t id) {
    terrace_release how = made<terrace_release>();
    how.flags = TERRACE_RELEASE_USED_UNTIL;
    EXPECT_EQ(terrace_cache_release(cache_, &id, 1, &how), TERRACE_OK) << terrace_last_error();
  }

  [[nodiscard]] std::vector<std::uint32_t> table(std::uint64_t id) const {
    const std::uint32_t* slots = nullptr;
    std::size_t count = 0;
    EXPECT_EQ(terrace_cache_block_table(cache_, id, 0, &slots, &count), TERRACE_OK) << terrace_last_error();
    return {slots, slots + count};
  }

  /// Computes blocks of a request: block i of the sequence that begins with token `seed` gets bytes of its own.
  void compute(std::uint64_t id, std::uint32_t seed) {
    const std::vector<std::uint32_t> slots = table(id);
    for (std::size_t block = 0; block < slots.size(); ++block)
      std::memset(&memory_[slots[block] * slot_bytes], static_cast<int>(seed + block), slot_bytes);
  }
  void expect_computed(std::uint64_t id, std::uint32_t seed, std::size_t blocks) {
    const std::vector<std::uint32_t> slots = table(id);
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::vector<std::byte> expected(slot_bytes, static_cast<std::byte>(seed + block));
      EXPECT_EQ(std::memcmp(&memory_[slots[block] * slot_bytes], expected.data(), slot_bytes), 0) << block;
    }
  }

  /// Serves a prompt that nobody continues.
  void serve(std::uint64_t id, const Chain& chain, std::uint32_t seed) {
    acquire(of_chain(id, chain));
    compute(id, seed);
    EXPECT_EQ(step(id, terrace_chain_tokens(chain.chain)), TERRACE_OK) << terrace_last_error();
    release(id);
  }

  [[nodiscard]] terrace_cache_statistics statistics() const {
    terrace_cache_statistics value = made<terrace_cache_statistics>();
    EXPECT_EQ(terrace_cache_read_statistics(cache_, &value), TERRACE_OK);
    return value;
  }
  [[nodiscard]] terrace_found match(const std::vector<terrace_key>& keys, std::uint32_t farthest = 0) const {
    terrace_found found = made<terrace_found>();
    EXPECT_EQ(terrace_cache_match(cache_, keys.data(), keys.size(), farthest, &found), TERRACE_OK) << terrace_last_error();
    return found;
  }

  TemporaryDirectory directory_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(slot_bytes * device_blocks);
  terrace_cache* cache_ = nullptr;
};

}  // namespace terrace::test
