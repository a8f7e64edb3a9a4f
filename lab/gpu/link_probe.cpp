#include "lab/gpu/bench_kernels.hpp"
#include "lab/gpu/link.hpp"
#include "lab/rounds.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/host/host_arena.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

using enum Direction;

double gigabytes_per_second(std::uint64_t bytes, double seconds) { return static_cast<double>(bytes) / 1e9 / seconds; }

class LinkProbe {
 public:
  LinkProbe(const CudaDriver& driver, int ordinal, const LinkProbeSize& size)
      : driver_{driver},
        device_{cuda_device_at(driver, ordinal)},
        context_{driver, device_},
        size_{size},
        host_{driver, size.area, "the area on the host"},
        memory_{allocate_device(driver, size.area, "the area on the device")},
        stream_{make_stream(driver)},
        other_{make_stream(driver)},
        kernels_{driver, device_} {}

  LinkFacts measure() {
    LinkFacts facts;
    facts.device = cuda_device_name(driver_, device_);
    facts.driver = cuda_driver_name(driver_);
    facts.copy_engines = cuda_attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    facts.numa_node = cuda_attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
    facts.takes_host_addresses =
        cuda_attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0;
    for (const Direction direction : {swap_in, swap_out}) {
      (direction == swap_in ? facts.swap_in : facts.swap_out) = area_speed([&] { copy(direction, 0, area(), stream_); });
    }
    facts.both = area_speed([&] {
      copy(swap_in, 0, area() / 2, stream_);
      copy(swap_out, area() / 2, area() / 2, other_);
    });
    facts.ends = {end_of_copy("sleeping thread", await_event), end_of_copy("asking for 30 us first", await_event_soon)};
    for (const Direction direction : {swap_in, swap_out}) {
      for (const Bytes piece : {MiB, MiB * 2, MiB * 4, MiB * 8}) {
        for (const unsigned under_way : link_pieces_under_way) {
          facts.queues.push_back({direction, piece, under_way, queue_speed(direction, count(piece), under_way)});
        }
      }
    }
    for (const bool beside_kernel : {false, true}) facts.pins.push_back(pin(beside_kernel));
    return facts;
  }

 private:
  using Await = CUresult (*)(const CudaDriver&, CUevent);

  [[nodiscard]] std::uint64_t area() const { return count(size_.area); }

  void copy(Direction direction, std::uint64_t at, std::uint64_t bytes, const StreamHandle& stream) {
    std::byte* const host = host_.bytes().data() + at;
    const CUdeviceptr device = memory_.get() + at;
    if (direction == swap_in) driver_.check(driver_.cuMemcpyHtoDAsync(device, host, bytes, stream.get()), "cuMemcpyHtoDAsync");
    else driver_.check(driver_.cuMemcpyDtoHAsync(host, device, bytes, stream.get()), "cuMemcpyDtoHAsync");
  }
  void record(const EventHandle& event) { driver_.check(driver_.cuEventRecord(event.get(), stream_.get()), "cuEventRecord"); }
  void await_streams() {
    for (const StreamHandle* stream : {&stream_, &other_}) {
      driver_.check(await_stream(driver_, stream->get()), "cuStreamSynchronize");
    }
  }

  /// The median speed at which `start` moves the area. A first round only warms up.
  template <class Start>
  double area_speed(Start&& start) {
    std::vector<double> speeds;
    for (unsigned round = 0; round <= size_.rounds; ++round) {
      const double seconds = seconds_of([&] {
        start();
        await_streams();
      });
      if (round > 0) speeds.push_back(gigabytes_per_second(area(), seconds));
    }
    return median(std::move(speeds));
  }

  LinkFacts::End end_of_copy(const char* way, Await await) {
    const EventHandle begin = make_timed_event(driver_);
    const EventHandle end = make_timed_event(driver_);
    Latencies beyond;
    for (unsigned i = 0; i < size_.ends; ++i) {
      const auto from = std::chrono::steady_clock::now();
      record(begin);
      copy(swap_in, 0, count(MiB), stream_);
      record(end);
      driver_.check(await(driver_, end.get()), "cuEventSynchronize");
      const Duration whole = std::chrono::steady_clock::now() - from;
      float milliseconds = 0;
      driver_.check(driver_.cuEventElapsedTime(&milliseconds, begin.get(), end.get()), "cuEventElapsedTime");
      const auto own = std::chrono::round<Duration>(std::chrono::duration<float, std::milli>{milliseconds});
      beyond.add(std::max(whole - own, Duration::zero()));
    }
    const Percentiles us = beyond.microseconds();
    return {way, us.p50, us.p99};
  }

  double queue_speed(Direction direction, std::uint64_t piece, unsigned under_way) {
    std::vector<EventHandle> ends;
    for (unsigned i = 0; i < under_way; ++i) ends.push_back(make_timed_event(driver_));
    const std::uint64_t pieces = 4 * area() / piece;
    const double seconds = seconds_of([&] {
      for (std::uint64_t i = 0; i < pieces; ++i) {
        const EventHandle& end = ends[i % under_way];
        if (i >= under_way) driver_.check(await_event_soon(driver_, end.get()), "cuEventSynchronize");
        copy(direction, i * piece % area(), piece, stream_);
        record(end);
      }
      await_streams();
    });
    return gigabytes_per_second(pieces * piece, seconds);
  }

  LinkFacts::Pin pin(bool beside_kernel) {
    const HostArena arena{static_cast<std::uint32_t>(size_.area / MiB), MiB};
    LinkFacts::Pin pin{.beside_kernel = beside_kernel};
    const EventHandle end_of_kernel = make_timed_event(driver_);
    if (beside_kernel) {
      kernels_.wait(other_.get(), memory_.get(), size_.kernel_milliseconds);
      driver_.check(driver_.cuEventRecord(end_of_kernel.get(), other_.get()), "cuEventRecord");
    }
    Owned<void*> pinned;
    pin.pin_ms =
        1e3 * seconds_of([&] {
          void* const memory = arena.block(SlotId{0}).data();
          driver_.check(driver_.cuMemHostRegister(memory, area(), CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                        "cuMemHostRegister");
          pinned = {memory, driver_.cuMemHostUnregister};
        });
    pin.unpin_ms = 1e3 * seconds_of([&] { pinned = {}; });
    if (beside_kernel) {
      const CUresult state = driver_.cuEventQuery(end_of_kernel.get());
      if (state != CUDA_ERROR_NOT_READY) driver_.check(state, "cuEventQuery");
      pin.still_runs = state == CUDA_ERROR_NOT_READY;
    }
    await_streams();
    return pin;
  }

  const CudaDriver& driver_;
  CUdevice device_;
  PrimaryContext context_;
  LinkProbeSize size_;
  PinnedBuffer host_;
  DeviceMemory memory_;
  StreamHandle stream_;
  StreamHandle other_;
  BenchKernels kernels_;
};

}  // namespace

LinkFacts measure_link(int ordinal, const LinkProbeSize& size) { return probe_link(cuda_driver(), ordinal, size); }

LinkFacts probe_link(const CudaDriver& driver, int ordinal, const LinkProbeSize& size) {
  return LinkProbe{driver, ordinal, size}.measure();
}

}  // namespace terrace::tools
