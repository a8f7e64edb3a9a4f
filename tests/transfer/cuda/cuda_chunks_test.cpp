// The CUDA device with an arena whose chunks come and go: what is registered when, and what happens if a registration fails.
#include "tests/simulated/simulated_arena_worker.hpp"
#include "tests/transfer/cuda/cuda_fixture.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

using enum Direction;

/// An arena with four slots per chunk, whose worker works when the test says so.
class CudaChunks : public CudaOnFake {
 protected:
  static constexpr std::uint32_t chunk_slots = 4;

  ~CudaChunks() override {
    close();
    coming_.reset();
  }
  void make_arena(std::uint32_t slots_now, std::uint32_t ready) {
    HostArenaOptions options;
    options.slots = slots_now;
    options.ready_slots = ready;
    options.block_bytes = block_bytes;
    options.chunk_bytes = block_bytes * chunk_slots;
    auto own = std::make_unique<SimulatedArenaWorker>();
    worker_ = own.get();
    options.worker = std::move(own);
    coming_ = std::make_unique<HostArena>(std::move(options));
  }
  void open_over_arena(std::optional<CopyMethod> only_method = {}) {
    if (!cuda_) make_machine();
    CudaOptions options;
    options.only_method = only_method;
    device_ =
        std::make_unique<DriverDevice>(cuda_->driver(), std::array{PoolMemory{.slots = slots, .host = coming_.get()}}, options);
    device_->set_waker(waker_);
  }
  /// Lets the worker finish its work, on a thread without a driver context.
  std::vector<ArenaEvent> settle() {
    std::thread{[this] {
      while (worker_->step()) {
      }
    }}.join();
    std::vector<ArenaEvent> events;
    coming_->poll(events);
    return events;
  }
  bool moves_there_and_back(std::uint32_t host_slot, std::uint64_t seed) {
    fill(coming_->block(SlotId{host_slot}), seed);
    submit(1, swap_in, {run(host_slot, 7, 1)});
    const bool in = !await_done(1).at(0).error;
    fill(coming_->block(SlotId{host_slot}), 0);
    submit(2, swap_out, {run(7, host_slot, 1)});
    return in && !await_done(1).at(0).error && holds(coming_->block(SlotId{host_slot}), seed);
  }

  SimulatedArenaWorker* worker_ = nullptr;
  std::unique_ptr<HostArena> coming_;
};

TEST_F(CudaChunks, are_registered_as_they_come_and_no_longer_when_they_go_on_every_method) {
  for (const CopyMethod method : {CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel, CopyMethod::bulk_kernel}) {
    make_arena(8, 4);
    open_over_arena(method);
    EXPECT_EQ(cuda_->registered(), 1U) << "what was warm when it was opened";
    EXPECT_TRUE(moves_there_and_back(3, 33));
    EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::warm);
    EXPECT_EQ(cuda_->registered(), 2U);
    EXPECT_TRUE(moves_there_and_back(6, 66));
    ASSERT_TRUE(coming_->grow(6));
    EXPECT_EQ(settle().size(), 2U);
    EXPECT_EQ(cuda_->registered(), 4U);
    EXPECT_TRUE(moves_there_and_back(13, 13)) << "the last chunk has two slots";
    coming_->give_back(1);
    coming_->give_back(3);
    EXPECT_EQ(cuda_->registered(), 4U) << "the worker has not begun";
    EXPECT_EQ(settle().size(), 2U);
    EXPECT_EQ(cuda_->registered(), 2U);
    EXPECT_TRUE(moves_there_and_back(9, 99));
    ASSERT_TRUE(coming_->grow(4));
    EXPECT_EQ(settle().at(0).slots.first, SlotId{4}) << "where a chunk was before";
    EXPECT_TRUE(moves_there_and_back(4, 44));
    EXPECT_EQ(device_->facts().failed, 0U) << device_->facts().first_failure;
    device_.reset();
    EXPECT_EQ(cuda_->registered(), 0U);
    EXPECT_EQ(settle().size(), 0U);
    close();
  }
}

TEST_F(CudaChunks, are_registered_though_the_driver_takes_no_piece_as_large_as_the_arena) {
  FakeCuda::Machine machine;
  constexpr std::uint64_t page = 4096;
  machine.registration_max = (count(block_bytes) * chunk_slots + page - 1) / page * page;  // one chunk, rounded up to whole pages
  make_machine(machine);
  make_arena(12, 12);
  open_over_arena();
  ASSERT_TRUE(coming_->grow(8));
  for (const ArenaEvent& event : settle()) EXPECT_EQ(event.kind, ArenaEvent::Kind::warm) << event.why;
  EXPECT_EQ(cuda_->registered(), 5U);
  for (const std::uint32_t slot : {0U, 11U, 19U}) EXPECT_TRUE(moves_there_and_back(slot, slot + 1));
}

TEST_F(CudaChunks, that_are_there_may_be_fewer_than_their_numbers) {
  make_arena(12, 12);
  coming_->give_back(0);
  (void)settle();
  open_over_arena();
  EXPECT_EQ(cuda_->registered(), 2U);
  EXPECT_TRUE(moves_there_and_back(11, 5));
}

TEST_F(CudaChunks, that_cannot_be_registered_are_refused_by_name_and_none_of_it_stays) {
  struct Failing {
    const char* call;
    CUresult result;
    const char* named;
  };
  for (const Failing failing : {Failing{"cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                                Failing{"cuMemHostGetDevicePointer", CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
                                Failing{"cuCtxPushCurrent", CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"}}) {
    make_arena(4, 4);
    open_over_arena();
    ASSERT_TRUE(coming_->grow(12));
    cuda_->fail(failing.call, failing.result, 1);  // the second of three
    const std::vector<ArenaEvent> events = settle();
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[0].kind, ArenaEvent::Kind::warm);
    EXPECT_EQ(events[1].kind, ArenaEvent::Kind::failed);
    EXPECT_TRUE(says(events[1].why, "could not be registered")) << events[1].why;
    EXPECT_TRUE(says(events[1].why, std::string{failing.call} + ": " + failing.named)) << events[1].why;
    EXPECT_TRUE(says(events[1].why, "slots 8 to 11")) << events[1].why;
    EXPECT_EQ(events[2].kind, ArenaEvent::Kind::warm) << "it fails once";
    EXPECT_EQ(cuda_->registered(), 3U);
    EXPECT_FALSE(coming_->holds({SlotId{8}, 1})) << "nobody can name it";
    EXPECT_EQ(device_->facts().failed, 1U);
    EXPECT_TRUE(says(device_->facts().first_failure, failing.call)) << device_->facts().first_failure;
    EXPECT_TRUE(moves_there_and_back(5, 55));
    EXPECT_TRUE(moves_there_and_back(14, 56)) << "what failed has left no failure behind";
    ASSERT_TRUE(coming_->grow(4));
    EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::warm) << "may be tried again";
    close();
  }
}

TEST_F(CudaChunks, that_cannot_be_registered_as_it_is_opened_leave_none_registered) {
  make_machine();
  make_arena(12, 12);
  cuda_->fail("cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY, 2);
  try {
    open_over_arena();
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_TRUE(says(error.what(), "cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY")) << error.what();
    EXPECT_TRUE(says(error.what(), "slots 8 to 11")) << error.what();
  }
  EXPECT_EQ(cuda_->registered(), 0U);
  open_over_arena();
  EXPECT_EQ(cuda_->registered(), 3U);
}

TEST_F(CudaChunks, whose_registration_cannot_be_taken_back_go_all_the_same_and_it_is_said) {
  make_arena(8, 8);
  open_over_arena();
  cuda_->fail("cuMemHostUnregister", CUDA_ERROR_UNKNOWN);
  std::byte* const memory = coming_->block(SlotId{4}).data();
  coming_->give_back(1);
  EXPECT_EQ(settle().at(0).kind, ArenaEvent::Kind::gone);
  EXPECT_EQ(device_->facts().failed, 1U);
  EXPECT_TRUE(says(device_->facts().first_failure, "cuMemHostUnregister: CUDA_ERROR_UNKNOWN"));
  EXPECT_TRUE(moves_there_and_back(1, 1));
  EXPECT_EQ(cuda_->registered(), 2U);
  EXPECT_EQ(cuda_->driver().cuMemHostUnregister(memory), CUDA_SUCCESS) << "for the end of the test";
}

TEST_F(CudaChunks, that_another_device_has_pinned_are_refused_unless_they_share_their_pins) {
  make_arena(4, 4);
  open_over_arena();
  const PoolMemory pool{.slots = 1, .host = coming_.get()};
  try {
    const DriverDevice refused{cuda_->driver(), std::array{pool}, {}};
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_TRUE(says(error.what(), "another device has pinned it, and does not share its pins")) << error.what();
  }
  EXPECT_EQ(cuda_->registered(), 1U);
  EXPECT_TRUE(moves_there_and_back(1, 1));
}

/// Whether a child of a fork would have this memory.
bool goes_to_children(const std::byte* memory) {
  std::ifstream maps{"/proc/self/smaps"};
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2) {
      const auto wanted = reinterpret_cast<std::uintptr_t>(memory);
      here = begin <= wanted && wanted < end;
    } else if (here && line.starts_with("VmFlags:")) {
      return line.find(" dc") == std::string::npos;
    }
  }
  ADD_FAILURE() << "the memory is not mapped";
  return false;
}

TEST_F(CudaChunks, do_not_go_to_children_while_they_are_pinned) {
  make_arena(8, 8);
  open_over_arena();
  std::byte* const memory = coming_->block(SlotId{4}).data();
  EXPECT_FALSE(goes_to_children(memory));
  const std::vector<std::byte> ordinary(4096);
  EXPECT_TRUE(goes_to_children(ordinary.data()));
  close();
  EXPECT_TRUE(goes_to_children(memory)) << "it is pinned no more";
}

TEST_F(CudaChunks, come_and_go_while_an_engine_captures_a_graph) {
  make_arena(8, 8);
  open_over_arena();
  cuda_->set_capturing(engine_.get(), true);
  ASSERT_TRUE(coming_->grow(4));
  coming_->give_back(1);
  const std::vector<ArenaEvent> events = settle();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, ArenaEvent::Kind::warm) << events[0].why;
  EXPECT_EQ(cuda_->registered(), 2U);
  device_.reset();
  EXPECT_EQ(cuda_->registered(), 0U);
  cuda_->set_capturing(engine_.get(), false);
}

TEST_F(CudaChunks, come_and_go_while_others_are_copied_from_and_to) {
  for (const CopyMethod method : {CopyMethod::batch, CopyMethod::kernel}) {
    make_machine();
    HostArena arena{16, block_bytes, block_bytes * chunk_slots};
    CudaOptions options;
    options.only_method = method;
    {
      DriverDevice device{cuda_->driver(), std::array{PoolMemory{.slots = slots, .host = &arena}}, options};
      device.set_waker(waker_);
      for (std::uint32_t slot = 0; slot < 8; ++slot) fill(arena.block(SlotId{slot}), slot);
      const auto await = [&](std::size_t wanted) {
        for (const CopyDone& each : test::await<CopyDone>(waker_, wanted, [&](auto& out) { return device.poll(out); })) {
          EXPECT_FALSE(each.error);
        }
      };
      device.submit({0, swap_in, {}, {run(4, 12, 4)}});
      await(1);
      for (std::uint32_t slot = 4; slot < 8; ++slot) fill(arena.block(SlotId{slot}), 0);
      std::vector<ArenaEvent> events;
      std::size_t ended = 0;
      for (std::uint64_t round = 0; round < 300; ++round) {
        const std::uint32_t slot = round % 4;
        device.submit({2 * round, swap_in, {}, {run(slot, slot, 1)}});
        device.submit({2 * round + 1, swap_out, {}, {run(12 + slot, 4 + slot, 1)}});
        // Chunks from the third one on come and go all the time. No transfer uses their slots.
        if (arena.state(2) == ChunkState::warm) arena.give_back(2);
        if (arena.slots_coming() == 0) {
          ASSERT_TRUE(arena.grow(chunk_slots));
        }
        await(2);
        arena.poll(events);
        ended += events.size();
        events.clear();
      }
      EXPECT_GT(ended, 2U);
      EXPECT_EQ(device.facts().failed, 0U) << device.facts().first_failure;
      for (std::uint32_t slot = 0; slot < 8; ++slot) EXPECT_TRUE(holds(arena.block(SlotId{slot}), slot));
    }
    EXPECT_EQ(cuda_->registered(), 0U);
    close();
  }
}

}  // namespace
}  // namespace terrace::test
