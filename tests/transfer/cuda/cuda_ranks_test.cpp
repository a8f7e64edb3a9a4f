// Several CUDA devices on one arena. Each moves its share of every host slot. Memory is pinned once for all of them, whatever the
// order in which they start, end and fail.
#include "tests/simulated/simulated_arena_worker.hpp"
#include "tests/transfer/cuda/cuda_support.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

using enum Direction;

/// Three ranks with a third of every slot each, on two GPUs: ranks 0 and 2 use the first. The worker of the arena works when
/// told.
class CudaRanks : public testing::Test {
 protected:
  static constexpr std::uint32_t ranks = 3;
  static constexpr std::array<int, ranks> ordinals{0, 1, 0};
  static constexpr Bytes share{4096 + 64};
  static constexpr std::uint32_t slots = 16;
  static constexpr std::uint32_t chunk_slots = 4;

  CudaRanks() {
    HostArenaOptions options;
    options.slots = options.ready_slots = 8;
    options.block_bytes = share * ranks;
    options.chunk_bytes = share * ranks * chunk_slots;
    auto own = std::make_unique<SimulatedArenaWorker>();
    worker_ = own.get();
    options.worker = std::move(own);
    arena_ = std::make_unique<HostArena>(std::move(options));
  }
  ~CudaRanks() override {
    for (auto& device : devices_) device.reset();
    EXPECT_EQ(cuda_.complaints(), "");
  }

  void open(std::uint32_t rank, std::optional<CopyMethod> method = {}) {
    CudaOptions options;
    options.ordinal = ordinals.at(rank);
    options.only_method = method;
    options.pins = pins_;
    const PoolMemory pool{.slots = slots, .host = arena_.get(), .share = {share * rank, share}};
    devices_.at(rank) = std::make_unique<DriverDevice>(cuda_.driver(), std::array{pool}, options);
    devices_.at(rank)->set_waker(waker_);
  }
  void open_all(std::optional<CopyMethod> method = {}) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) open(rank, method);
  }
  void close(std::uint32_t rank) { devices_.at(rank).reset(); }
  DriverDevice& device(std::uint32_t rank) { return *devices_.at(rank); }

  std::span<std::byte> part(std::uint32_t slot, std::uint32_t rank) {
    return arena_->block(SlotId{slot}).subspan(count(share) * rank, count(share));
  }
  ErrorCode copy(std::uint32_t rank, Direction direction, SlotRun run) {
    device(rank).submit({1, direction, {}, {run}});
    return await<CopyDone>(waker_, 1, [&](auto& done) { return device(rank).poll(done); }).at(0).error;
  }
  /// Moves the rank's part of two slots through its device and back. The parts of other ranks do not change.
  bool moves_there_and_back(std::uint32_t rank, std::uint32_t slot, std::uint64_t seed) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      for (std::uint32_t each = 0; each < ranks; ++each) fill(part(slot + i, each), seed + 10 * i + each);
    }
    const bool in = !copy(rank, swap_in, run(slot, 7, 2));
    for (std::uint32_t i = 0; i < 2; ++i) fill(part(slot + i, rank), 0);
    const bool out = !copy(rank, swap_out, run(7, slot, 2));
    bool same = true;
    for (std::uint32_t i = 0; i < 2; ++i) {
      for (std::uint32_t each = 0; each < ranks; ++each) same &= holds(part(slot + i, each), seed + 10 * i + each);
    }
    return in && out && same;
  }
  /// Lets the worker finish its work, on a thread without a driver context.
  std::vector<ArenaEvent> settle() {
    std::thread{[this] {
      while (worker_->step()) {
      }
    }}.join();
    std::vector<ArenaEvent> events;
    arena_->poll(events);
    return events;
  }

  FakeCuda cuda_{FakeCuda::Machine{.devices = 2}};
  EventFdWaker waker_;
  SimulatedArenaWorker* worker_ = nullptr;
  std::unique_ptr<HostArena> arena_;
  std::shared_ptr<HostPins> pins_ = CudaDevice::shared_pins();
  std::array<std::unique_ptr<DriverDevice>, ranks> devices_;
};

class CudaRanksMethods : public CudaRanks, public testing::WithParamInterface<CopyMethod> {};

TEST_P(CudaRanksMethods, move_their_own_shares_of_random_runs_and_no_byte_of_another) {
  open_all(GetParam());
  std::mt19937 random{5};
  std::array<std::vector<std::uint64_t>, ranks> in_host;
  std::array<std::vector<std::uint64_t>, ranks> on_device;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t slot = 0; slot < 8; ++slot) {
      in_host[rank].push_back(100 * rank + slot);
      fill(part(slot, rank), 100 * rank + slot);
    }
    on_device[rank] = in_host[rank];
    ASSERT_FALSE(copy(rank, swap_in, run(0, 0, 8)));
  }
  for (std::uint64_t round = 0; round < 200; ++round) {
    const auto rank = static_cast<std::uint32_t>(random() % ranks);
    const Direction direction = random() % 2 == 0 ? swap_out : swap_in;
    std::vector<std::uint64_t>& from = direction == swap_out ? on_device[rank] : in_host[rank];
    std::vector<std::uint64_t>& to = direction == swap_out ? in_host[rank] : on_device[rank];
    const std::uint32_t number = 1 + static_cast<std::uint32_t>(random()) % 5;
    const std::uint32_t source = static_cast<std::uint32_t>(random()) % (8 - number);
    const std::uint32_t destination = static_cast<std::uint32_t>(random()) % (8 - number);
    ASSERT_FALSE(copy(rank, direction, run(source, destination, number)));
    for (std::uint32_t i = 0; i < number; ++i) to[destination + i] = from[source + i];
    const std::uint32_t changed = static_cast<std::uint32_t>(random()) % 8;
    in_host[rank][changed] = 1000 + round;
    fill(part(changed, rank), 1000 + round);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t slot = 0; slot < 8; ++slot) {
      EXPECT_TRUE(holds(part(slot, rank), in_host[rank][slot])) << rank << ", " << slot;
      bool same = false;
      await_compute(device(rank), device(rank).launch([&](BlockAccess& access) {
        std::vector<std::byte> scratch(count(share));
        same = holds(access.read(SlotId{slot}, scratch), on_device[rank][slot]);
      }));
      EXPECT_TRUE(same) << rank << ", " << slot;
    }
    EXPECT_EQ(device(rank).facts().failed, 0U) << device(rank).facts().first_failure;
  }
}

TEST_P(CudaRanksMethods, have_chunks_that_come_and_go_registered_once_for_all) {
  open_all(GetParam());
  EXPECT_EQ(cuda_.registered(), 2U);
  ASSERT_TRUE(arena_->grow(chunk_slots + 2));
  EXPECT_EQ(settle().size(), 2U);
  EXPECT_EQ(cuda_.registered(), 4U);
  EXPECT_EQ(cuda_.calls("cuMemHostRegister"), 4);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_TRUE(moves_there_and_back(rank, 12, 50 + rank)) << rank;
  arena_->give_back(1);
  arena_->give_back(3);
  EXPECT_EQ(settle().size(), 2U);
  EXPECT_EQ(cuda_.registered(), 2U);
  EXPECT_EQ(cuda_.calls("cuMemHostUnregister"), 2);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_TRUE(moves_there_and_back(rank, 9, 60 + rank)) << rank;
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, CudaRanksMethods,
                         testing::Values(CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel, CopyMethod::bulk_kernel),
                         [](const auto& name) { return std::string{to_string(name.param)}; });

TEST_F(CudaRanks, may_be_closed_in_any_order_and_what_is_left_goes_on) {
  std::array<std::uint32_t, ranks> order{0, 1, 2};
  do {
    open_all(CopyMethod::kernel);
    for (const std::uint32_t rank : order) {
      EXPECT_TRUE(moves_there_and_back(rank, 2, rank));
      EXPECT_EQ(cuda_.registered(), 2U);
      close(rank);
    }
    EXPECT_EQ(cuda_.registered(), 0U) << "with the last";
    EXPECT_EQ(cuda_.complaints(), "") << "among them a context that ends before what was registered in it";
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(CudaRanks, that_come_later_find_what_is_pinned_and_follow_what_comes) {
  open(1);
  ASSERT_TRUE(arena_->grow(chunk_slots));
  (void)settle();
  open(0);
  EXPECT_EQ(cuda_.calls("cuMemHostRegister"), 3);
  EXPECT_TRUE(moves_there_and_back(0, 9, 1));
  close(1);
  EXPECT_EQ(cuda_.registered(), 3U);
  EXPECT_TRUE(moves_there_and_back(0, 9, 2));
  arena_->give_back(0);
  (void)settle();
  EXPECT_EQ(cuda_.registered(), 2U) << "in the context that registered it, though its device is gone";
  open(1);
  EXPECT_TRUE(moves_there_and_back(1, 5, 3));
}

TEST_F(CudaRanks, have_a_chunk_all_or_none) {
  struct Failing {
    const char* call;
    std::uint32_t rank;
  };
  for (const Failing failing :
       {Failing{"cuMemHostRegister", 0}, Failing{"cuDevicePrimaryCtxRetain", 0}, Failing{"cuMemHostGetDevicePointer", 0},
        Failing{"cuMemHostGetDevicePointer", 1}, Failing{"cuCtxPushCurrent", 1}}) {
    open_all(CopyMethod::kernel);
    cuda_.fail(failing.call, CUDA_ERROR_OUT_OF_MEMORY, 0, ordinals.at(failing.rank));
    ASSERT_TRUE(arena_->grow(chunk_slots));
    const std::vector<ArenaEvent> events = settle();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].kind, ArenaEvent::Kind::failed) << failing.call;
    EXPECT_TRUE(says(events[0].why, std::string{failing.call} + ": CUDA_ERROR_OUT_OF_MEMORY")) << events[0].why;
    EXPECT_TRUE(says(events[0].why, "for device " + std::to_string(failing.rank))) << events[0].why;
    EXPECT_EQ(cuda_.registered(), 2U) << failing.call;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(device(rank).facts().failed, rank == failing.rank ? 1U : 0U) << failing.call;
      EXPECT_TRUE(moves_there_and_back(rank, 3, 70 + rank)) << rank;
    }
    ASSERT_TRUE(arena_->grow(chunk_slots));
    EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::warm) << "it failed once";
    for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_TRUE(moves_there_and_back(rank, 10, 80 + rank)) << rank;
    arena_->give_back(2);
    (void)settle();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) close(rank);
    EXPECT_EQ(cuda_.registered(), 0U);
  }
}

TEST_F(CudaRanks, one_that_cannot_be_opened_leaves_the_others_as_they_were) {
  open(0);
  bool opened = false;
  int failures = 0;
  for (int after = 0; !opened; ++after) {
    cuda_.fail_any(CUDA_ERROR_OUT_OF_MEMORY, after);
    try {
      open(1, CopyMethod::kernel);
      opened = !cuda_.failed_any();
    } catch (const std::exception&) {
      ++failures;
    }
    cuda_.fail_any(CUDA_SUCCESS, -1);
    close(1);
    EXPECT_EQ(cuda_.registered(), 2U) << after;
    ASSERT_TRUE(moves_there_and_back(0, 4, 5)) << after;
    ASSERT_LT(after, 1000);
  }
  EXPECT_GT(failures, 20);
  open(1);
  EXPECT_TRUE(moves_there_and_back(1, 5, 6));
}

/// The lost rank has registered all memory.
TEST_F(CudaRanks, one_whose_context_is_lost_fails_what_it_is_asked_for_and_takes_nothing_from_the_others) {
  open(0, CopyMethod::kernel);
  open(1, CopyMethod::kernel);
  cuda_.break_context(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  EXPECT_EQ(copy(0, swap_out, run(1, 1, 1)), Errc::io_failed);
  EXPECT_TRUE(moves_there_and_back(1, 4, 1));
  ASSERT_TRUE(arena_->grow(chunk_slots));
  const std::vector<ArenaEvent> refused = settle();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].kind, ArenaEvent::Kind::failed) << "one rank cannot have it";
  EXPECT_TRUE(says(refused[0].why, "CUDA_ERROR_ILLEGAL_ADDRESS")) << refused[0].why;
  EXPECT_TRUE(says(refused[0].why, "for device 0")) << refused[0].why;
  arena_->give_back(1);
  EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::gone);
  EXPECT_EQ(cuda_.registered(), 1U) << "taken back in the context that is well";
  EXPECT_EQ(device(1).facts().failed, 0U) << device(1).facts().first_failure;
  EXPECT_TRUE(moves_there_and_back(1, 2, 2));
  close(0);
  EXPECT_TRUE(moves_there_and_back(1, 2, 3)) << "its context is kept for what was registered in it";
  ASSERT_TRUE(arena_->grow(chunk_slots));
  EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::warm) << "nobody is in the way any more";
  EXPECT_TRUE(moves_there_and_back(1, 5, 4));
  close(1);
  EXPECT_EQ(cuda_.registered(), 0U);
}

TEST_F(CudaRanks, a_registration_that_no_context_takes_back_is_said) {
  open(0);
  open(1);
  cuda_.break_context(CUDA_ERROR_ILLEGAL_ADDRESS, 0);
  cuda_.break_context(CUDA_ERROR_ILLEGAL_ADDRESS, 1);
  arena_->give_back(1);
  EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::gone);
  EXPECT_TRUE(says(device(1).facts().first_failure, "cuMemHostUnregister: CUDA_ERROR_ILLEGAL_ADDRESS"))
      << device(1).facts().first_failure;
}

TEST_F(CudaRanks, a_share_that_is_not_in_the_slots_is_refused) {
  CudaOptions options;
  const auto refusal = [&](HostShare wanted, std::vector<DeviceRegion> regions = {}) -> std::string {
    const PoolMemory pool{.slots = slots, .host = arena_.get(), .share = wanted, .regions = std::move(regions)};
    try {
      const DriverDevice refused{cuda_.driver(), std::array{pool}, options};
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  EXPECT_TRUE(says(refusal({share * 2, share * 2}), "is not within host slots"));
  EXPECT_TRUE(says(refusal({share * 3, {}}), "is not within host slots"));
  EXPECT_EQ(refusal({share, {}}), "") << "all from there on";
  const PrimaryContext context{cuda_.driver(), 0};
  const EngineMemory memory{cuda_.driver(), slots, 4096, 32, 32};
  EXPECT_EQ(refusal({share, share}, memory.regions()), "");
  EXPECT_TRUE(says(refusal({share, share * 2}, memory.regions()), "add up to")) << refusal({share, share * 2}, memory.regions());
}

TEST_F(CudaRanks, memory_of_another_gpu_is_refused) {
  const PrimaryContext context{cuda_.driver(), 1};
  const EngineMemory memory{cuda_.driver(), slots, 4096, 32, 32};
  const PoolMemory pool{.slots = slots, .host = arena_.get(), .share = {{}, share}, .regions = memory.regions()};
  EXPECT_THROW((DriverDevice{cuda_.driver(), std::array{pool}, {}}), std::invalid_argument);
}

}  // namespace
}  // namespace terrace::test
