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

  Row measure() {
    const auto attribute = [&](CUdevice_attribute which) { return cuda_attribute(driver_, device_, which); };
    const auto whole = [&](Direction direction) { return area_speed([&] { copy(direction, 0, area(), stream_); }); };
    const auto halves = [&] {
      copy(swap_in, 0, area() / 2, stream_);
      copy(swap_out, area() / 2, area() / 2, other_);
    };
    Row facts{{"device", cuda_device_name(driver_, device_)},
              {"driver", cuda_driver_name(driver_)},
              {"copy_engines", attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)},
              {"numa_node", attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)},
              {"takes_host_addresses", attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0}};
    facts["swap_in_gb_per_s"] = whole(swap_in);
    facts["swap_out_gb_per_s"] = whole(swap_out);
    facts["both_gb_per_s"] = area_speed(halves);
    facts["ends"] =
        boost::json::array{end_of_copy("sleeping thread", await_event), end_of_copy("asking for 30 us first", await_event_soon)};
    boost::json::array queues;
    for (const Direction direction : {swap_in, swap_out}) {
      for (const Bytes piece : {MiB, MiB * 2, MiB * 4, MiB * 8}) {
        for (const unsigned under_way : {1U, 2U, 4U, 8U}) {
          queues.push_back(Row{{"direction", direction == swap_in ? "swap_in" : "swap_out"},
                               {"piece_bytes", count(piece)},
                               {"under_way", under_way},
                               {"gb_per_s", queue_speed(direction, count(piece), under_way)}});
        }
      }
    }
    facts["queues"] = std::move(queues);
    facts["pins"] = boost::json::array{pin(false), pin(true)};
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

  Row end_of_copy(const char* way, Await await) {
    const EventHandle begin = make_event(driver_, EventTiming::yes);
    const EventHandle end = make_event(driver_, EventTiming::yes);
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
    return {{"way", way}, {"p50_us", us.p50}, {"p99_us", us.p99}};
  }

  double queue_speed(Direction direction, std::uint64_t piece, unsigned under_way) {
    std::vector<EventHandle> ends;
    for (unsigned i = 0; i < under_way; ++i) ends.push_back(make_event(driver_, EventTiming::yes));
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

  Row pin(bool beside_kernel) {
    const HostArena arena{static_cast<std::uint32_t>(size_.area / MiB), MiB};
    const EventHandle end_of_kernel = make_event(driver_, EventTiming::yes);
    if (beside_kernel) {
      kernels_.wait(other_.get(), memory_.get(), size_.kernel_milliseconds);
      driver_.check(driver_.cuEventRecord(end_of_kernel.get(), other_.get()), "cuEventRecord");
    }
    Owned<void*> pinned;
    const double pin_ms =
        1e3 * seconds_of([&] {
          void* const memory = arena.block(SlotId{0}).data();
          driver_.check(driver_.cuMemHostRegister(memory, area(), CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                        "cuMemHostRegister");
          pinned = {memory, driver_.cuMemHostUnregister};
        });
    const double unpin_ms = 1e3 * seconds_of([&] { pinned = {}; });
    bool still_runs = false;
    if (beside_kernel) {
      const CUresult state = driver_.cuEventQuery(end_of_kernel.get());
      if (state != CUDA_ERROR_NOT_READY) driver_.check(state, "cuEventQuery");
      still_runs = state == CUDA_ERROR_NOT_READY;
    }
    await_streams();
    return {{"beside_kernel", beside_kernel}, {"pin_ms", pin_ms}, {"unpin_ms", unpin_ms}, {"kernel_still_runs", still_runs}};
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

Row measure_link(int ordinal, const LinkProbeSize& size) { return probe_link(cuda_driver(), ordinal, size); }

Row probe_link(const CudaDriver& driver, int ordinal, const LinkProbeSize& size) {
  return LinkProbe{driver, ordinal, size}.measure();
}

}  // namespace terrace::tools
