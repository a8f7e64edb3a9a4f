#pragma once

#include "storage/shared/shared_value.hpp"
#include "terrace/shared_store.hpp"
#include "tests/storage/shared/values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// The contract in terrace/shared_store.hpp, for every kind of shared store. The tests are in shared_store_contract_test.cpp. A
/// test program has that file among its sources, and instantiates SharedStoreContract with its kinds.
namespace terrace::contract {

using namespace test;
using Kind = SharedEvent::Kind;

inline constexpr std::size_t small_block = 5000;
inline constexpr std::size_t large_block = std::size_t{64} << 10;  ///< two values
inline constexpr const char* contract_prefix = "contract";
/// The fingerprint that all stores use at the beginning.
inline Fingerprint contract_fingerprint() { return fingerprint_of(1); }

/// An engine and its users, with the controls that a test needs.
class SharedStoreHarness {
 public:
  virtual ~SharedStoreHarness() = default;
  /// A user of the engine. Users 0 and 1 have the same secret, if any; user 2 has another one.
  [[nodiscard]] virtual SharedStore& user(std::size_t n) = 0;
  /// Ends user 0, with what it has under way.
  virtual void end_user() = 0;
  [[nodiscard]] virtual TimePoint now() const = 0;
  /// Lets time pass, as much as an answer of the engine may need.
  virtual void pass() = 0;
  /// Lets at least this time pass.
  virtual void pass(Duration time) = 0;
  /// How long values of root blocks stay without a use.
  [[nodiscard]] virtual Duration expiry() const = 0;
  /// A renewal has no event: waits until that of this value of a root block is done, if that may take time.
  virtual void await_renewal(const std::string&) {}
  /// The engine takes calls and does not answer, until it is called with false.
  virtual void stall(bool stalled) = 0;
  /// The engine refuses new values, until it is called with false.
  virtual void set_full(bool full) = 0;
  /// Changes a value of the engine behind the back of all users. An empty value is removed.
  virtual void change(const std::string& name, const std::function<void(Value&)>& how) = 0;
};

struct SharedStoreKind {
  std::string name;
  bool sealed = false;
  std::function<std::unique_ptr<SharedStoreHarness>(bool sealed)> make;

  friend void PrintTo(const SharedStoreKind& kind, std::ostream* out) { *out << kind.name; }
};

class SharedStoreContract : public testing::TestWithParam<SharedStoreKind> {
 protected:
  void SetUp() override {
    for (std::size_t n = 0; n < 3; ++n) store(n).use(contract_fingerprint());
  }
  [[nodiscard]] SharedStore& store(std::size_t user = 0) { return harness_->user(user); }
  [[nodiscard]] static std::string value_name(const StoredBlock& block, std::uint32_t part) {
    SharedValueNames names{contract_prefix};
    names.use(contract_fingerprint());
    return names.name(block.key, block.group, part);
  }

  // Each call takes a new token.
  std::uint64_t start_probe(const std::vector<StoredBlock>& blocks, std::size_t user = 0, TimePoint deadline = never) {
    std::vector<BlockKey> keys;
    for (const StoredBlock& block : blocks) keys.push_back(block.key);
    store(user).probe({++token_, keys, blocks.empty() ? GroupId{} : blocks[0].group, deadline});
    std::ranges::fill(keys, BlockKey{});  // the call has ended, and the store has what it needs
    return token_;
  }
  /// Asks of each block whether it is there. `there` is valid until the event, and has a byte for each block.
  std::uint64_t start_probe_each(const std::vector<StoredBlock>& blocks, std::span<std::uint8_t> there, std::size_t user = 0,
                                 TimePoint deadline = never) {
    std::vector<BlockKey> keys;
    std::vector<GroupId> groups;
    for (const StoredBlock& block : blocks) {
      keys.push_back(block.key);
      groups.push_back(block.group);
    }
    store(user).probe({++token_, keys, {}, deadline, groups, there});
    std::ranges::fill(keys, BlockKey{});
    std::ranges::fill(groups, GroupId{});
    return token_;
  }
  std::uint64_t start_read(const StoredBlock& block, std::size_t bytes, std::size_t user = 0, TimePoint deadline = never) {
    std::vector<std::byte>& into = memory_[++token_];
    into.assign(bytes, std::byte{0xee});
    std::vector<SharedRead> batch{{token_, block, into, deadline}};
    store(user).read(batch);
    batch[0] = {};
    return token_;
  }
  std::uint64_t start_write(const StoredBlock& block, std::size_t bytes, std::size_t user = 0, TimePoint deadline = never) {
    std::vector<std::byte>& from = memory_[++token_];
    from.resize(bytes);
    fill(from, block.key);
    std::vector<SharedWrite> batch{{token_, block, from, deadline}};
    store(user).write(batch);
    batch[0] = {};
    return token_;
  }
  [[nodiscard]] std::vector<std::byte>& memory(std::uint64_t token) { return memory_[token]; }

  /// Polls once, and keeps the events.
  void poll(std::size_t user = 0) {
    std::vector<SharedEvent> events;
    const std::size_t arrived = store(user).poll(events);
    EXPECT_EQ(arrived, events.size());
    for (const SharedEvent& event : events) {
      EXPECT_TRUE(events_.emplace(event.token, event).second) << "a second event of token " << event.token;
    }
  }
  /// Waits until nothing is under way.
  void drain(std::size_t user = 0) {
    poll(user);
    for (int i = 0; i < 100'000 && store(user).in_flight() > 0; ++i) {
      harness_->pass();
      poll(user);
    }
    ASSERT_EQ(store(user).in_flight(), 0U) << "something does not end";
  }
  [[nodiscard]] SharedEvent event(std::uint64_t token) {
    const auto found = events_.find(token);
    if (found != events_.end()) return found->second;
    ADD_FAILURE() << "no event of token " << token;
    return {};
  }
  [[nodiscard]] bool has_event(std::uint64_t token) const { return events_.contains(token); }

  [[nodiscard]] ErrorCode write(const StoredBlock& block, std::size_t bytes, std::size_t user = 0) {
    const std::uint64_t token = start_write(block, bytes, user);
    drain(user);
    EXPECT_EQ(event(token).kind, Kind::written);
    return event(token).error;
  }
  /// Reads a block. Fails the test if other bytes come than those of the block.
  [[nodiscard]] ErrorCode read(const StoredBlock& block, std::size_t bytes, std::size_t user = 0) {
    const std::uint64_t token = start_read(block, bytes, user);
    drain(user);
    EXPECT_EQ(event(token).kind, Kind::read);
    EXPECT_TRUE(event(token).error || holds(memory(token), block.key)) << "a wrong block was served";
    return event(token).error;
  }
  [[nodiscard]] std::uint32_t leading(const std::vector<StoredBlock>& blocks, std::size_t user = 0) {
    const std::uint64_t token = start_probe(blocks, user);
    drain(user);
    EXPECT_EQ(event(token).kind, Kind::probed);
    EXPECT_FALSE(event(token).error);
    return event(token).leading;
  }
  /// Both operations have ended, so their memory is the caller's again. The engine goes on, and neither memory is used. `written`
  /// is the block of the write: whole, if it is there.
  void expect_untouched(std::uint64_t read_token, std::uint64_t write_token, const StoredBlock& written) {
    std::ranges::fill(memory(read_token), std::byte{0x11});
    std::ranges::fill(memory(write_token), std::byte{0x22});
    harness_->stall(false);
    for (int i = 0; i < 20; ++i) {
      harness_->pass();
      poll();
    }
    EXPECT_TRUE(std::ranges::all_of(memory(read_token), [](std::byte byte) { return byte == std::byte{0x11}; }));
    const ErrorCode late = read(written, memory(write_token).size());
    EXPECT_TRUE(!late || late == Errc::not_found) << late.message();
  }
  [[nodiscard]] std::uint64_t mismatches(SharedMismatch why, std::size_t user = 0) {
    return store(user).stat().mismatches[static_cast<std::size_t>(why)];
  }
  /// The kind of mismatch for other bytes in the payload.
  [[nodiscard]] static SharedMismatch damage() { return GetParam().sealed ? SharedMismatch::seal : SharedMismatch::checksum; }

  std::unique_ptr<SharedStoreHarness> harness_ = GetParam().make(GetParam().sealed);

 private:
  std::uint64_t token_ = 0;
  std::map<std::uint64_t, std::vector<std::byte>> memory_;
  std::map<std::uint64_t, SharedEvent> events_;
};
}  // namespace terrace::contract
