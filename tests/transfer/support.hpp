#pragma once

#include "base/waker.hpp"
#include "terrace/device.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_port.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

/// Helpers for the tests in this folder.
namespace terrace::test {

/// How long a test waits for another thread before it fails. This says nothing about speed; it only ends a test that would hang.
inline constexpr int patience_ms = 60'000;

inline SlotRun run(std::uint32_t source, std::uint32_t destination, std::uint32_t count) {
  return {SlotId{source}, SlotId{destination}, count};
}

inline Transfer transfer(std::uint64_t id, Direction direction, Urgency urgency, std::vector<SlotRun> runs) {
  Transfer made;
  made.id = TransferId{id};
  made.direction = direction;
  made.urgency = urgency;
  made.runs = std::move(runs);
  return made;
}

/// A pattern of bytes that depends on the place and on the seed.
inline std::byte pattern(std::uint64_t seed, std::size_t at) {
  std::uint64_t mixed = (seed + 1) * 0x9E37'79B9'7F4A'7C15U + at * 0xBF58'476D'1CE4'E5B9U;
  mixed ^= mixed >> 29;
  return static_cast<std::byte>(mixed >> 7);
}
inline void fill(std::span<std::byte> block, std::uint64_t seed) {
  for (std::size_t at = 0; at < block.size(); ++at) block[at] = pattern(seed, at);
}
inline bool holds(std::span<const std::byte> block, std::uint64_t seed) {
  for (std::size_t at = 0; at < block.size(); ++at) {
    if (block[at] != pattern(seed, at)) return false;
  }
  return true;
}

/// The largest block of these tests.
inline constexpr std::size_t scratch_bytes = 64 << 10;

/// Compute work that writes the pattern of the seed into a device slot.
inline ComputeWork writes(std::uint32_t slot, std::uint64_t seed) {
  return [=](BlockAccess& access) {
    std::vector<std::byte> scratch(scratch_bytes);
    fill(access.write_target(SlotId{slot}, scratch), seed);
    access.written(SlotId{slot}, scratch);
  };
}

/// A gate that blocks until it is opened. Copies share one gate, so that a waiter may outlive the body of the test.
class Gate {
 public:
  void open() const {
    {
      const std::lock_guard lock{state_->mutex};
      state_->open = true;
    }
    state_->changed.notify_all();
  }
  void wait() const {
    std::unique_lock lock{state_->mutex};
    state_->changed.wait(lock, [this] { return state_->open; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Counts how often it was woken.
class CountingWaker final : public Waker {
 public:
  void wake() noexcept override { woken_.fetch_add(1); }
  [[nodiscard]] std::uint64_t woken() const { return woken_.load(); }

 private:
  std::atomic<std::uint64_t> woken_{0};
};

/// Collects from `poll` until `wanted` items have come, and sleeps in between. A wake-up may bring nothing, because its item may
/// have been collected just before.
template <class Item, class Poll>
std::vector<Item> await(EventFdWaker& waker, std::size_t wanted, Poll poll) {
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::milliseconds{patience_ms};
  std::vector<Item> items;
  for (;;) {
    waker.acknowledge();
    poll(items);
    if (items.size() >= wanted) return items;
    if (std::chrono::steady_clock::now() >= give_up_at) {
      ADD_FAILURE() << "waited in vain: " << items.size() << " of " << wanted << " have come";
      return items;
    }
    waker.wait(patience_ms);
  }
}

/// Waits until compute has reached `point`.
inline void await_compute(const Device& device, Fence point) {
  while (device.reached() < point) std::this_thread::yield();
}

}  // namespace terrace::test
