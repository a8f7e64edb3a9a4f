#include "transfer/cuda/driver_device.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"
#include "base/thread.hpp"
#include "terrace/clock.hpp"
#include "transfer/cuda/copy/calibration.hpp"
#include "transfer/device/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ratio>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace terrace {
namespace {

/// Larger than the number of commands that a transfer scheduler keeps under way. The queue grows if there are more.
constexpr std::size_t dones_in_flight = 64;

}  // namespace

DriverDevice::Stream::Stream(DriverDevice& device, CompletionQueue<CopyDone>& done_queue)
    : handle{make_first_stream(device.driver_)},
      copier{device.driver_, device.device_, device.kernels_ ? &*device.kernels_ : nullptr, device.pools_.host(),
             device.options_.kernel_blocks},
      done{done_queue} {}

DriverDevice::DriverDevice(const CudaDriver& driver, std::span<const PoolMemory> pools, CudaOptions options)
    : driver_{driver},
      options_{std::move(options)},
      device_{cuda_device_at(driver, options_.ordinal)},
      context_{driver, device_},
      failures_{driver},
      compute_stream_{make_stream(driver)},
      pins_{options_.pins ? options_.pins : std::make_shared<HostPins>()},
      pools_{{driver, device_, context_.get()}, *pins_, pools, compute_stream_.get(), failures_},
      info_{cuda_device_name(driver, device_), pools_.info()},
      kernels_{CopyKernels::load(driver, device_, compute_stream_.get(), no_kernels_)},
      access_{driver, device_, pools_, compute_stream_.get(), failures_},
      events_{driver},
      timed_events_{driver, EventTiming::yes},
      done_{dones_in_flight, direction_count, relay_},
      streams_{Stream{*this, done_}, Stream{*this, done_}} {
  facts_ = {.device = info_.name,
            .driver = cuda_driver_name(driver),
            .compute_capability_major = cuda_attribute(driver, device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            .compute_capability_minor = cuda_attribute(driver, device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            .pci = fmt::format("{:04x}:{:02x}:{:02x}.0", cuda_attribute(driver, device_, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                               cuda_attribute(driver, device_, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                               cuda_attribute(driver, device_, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)),
            .methods = streams_.front().copier.available(),
            .no_kernels = no_kernels_,
            .failed = 0,
            .first_failure = {}};
  check_only_method();
  try {
    compute_thread_ = start_thread("terrace-compute", [this] { compute(); });
    for (Stream& each : streams_) {
      each.issuing = start_thread("terrace-issue", [this, &each] { issue(each); });
      each.ending = start_thread("terrace-end", [this, &each] { end(each); });
    }
  } catch (...) {
    stop();
    throw;
  }
  context_.leave();
}

DriverDevice::~DriverDevice() {
  context_.enter();
  stop();
}

void DriverDevice::check_only_method() const {
  if (!options_.only_method || facts_.methods.test(static_cast<std::size_t>(*options_.only_method))) return;
  throw std::invalid_argument{fmt::format("CUDA device: copy method {} is not available on {} with CUDA {}{}{}",
                                          to_string(*options_.only_method), facts_.device, facts_.driver,
                                          no_kernels_.empty() ? "" : ": ", no_kernels_)};
}

void DriverDevice::stop() noexcept {
  points_.stop();
  for (Stream& each : streams_) each.commands.stop();
  if (compute_thread_.joinable()) compute_thread_.join();
  for (Stream& each : streams_) {
    if (each.issuing.joinable()) each.issuing.join();
  }
  // No thread adds work to the streams any more. Wait for the work that is on them.
  for (Stream& each : streams_) {
    static_cast<void>(await_stream(driver_, each.handle.get()));
    each.ends.stop();
    if (each.ending.joinable()) each.ending.join();
  }
}

void DriverDevice::submit(CopyCommand command) {
  const PinnedPools::Pool& pool = pools_.of(command.pool);
  check_slots(command, info_.pool(command.pool), *pool.host.slots);
  // The stream would wait forever for a point that was never given out.
  TERRACE_CHECK(points_.exists(command.after));
  Stream& stream = streams_[static_cast<std::size_t>(command.direction)];
  const std::uint64_t token = command.token;
  copies_.add({.token = token, .ended = nullptr, .error = {}, .after = {}});
  try {
    stream.commands.push(std::move(command));
  } catch (...) {
    copies_.remove(std::array{CopyDone{token, {}, {}}});
    throw;
  }
}

std::size_t DriverDevice::poll(std::vector<CopyDone>& done) {
  const std::size_t ended = done_.drain(done);
  copies_.remove(std::span{done}.last(ended));
  return ended;
}

Result<void> DriverDevice::relocate(std::span<const RelocatedPool> pools) {
  // The device's threads read a pool only for a command or for launched work. There is none now, so they will see only the new
  // regions.
  if (!copies_.empty() || !points_.work_done()) return Errc::in_use;
  const CurrentContext current{driver_, context_.get()};
  if (note(current.result(), "cuCtxPushCurrent")) return Errc::io_failed;
  pools_.relocate(driver_, device_, pools);
  return {};
}

Result<void> DriverDevice::check_relocation(std::span<const RelocatedPool> pools) {
  if (!copies_.empty() || !points_.work_done()) return Errc::in_use;
  const CurrentContext current{driver_, context_.get()};
  if (note(current.result(), "cuCtxPushCurrent")) return Errc::io_failed;
  (void)pools_.check_relocation(driver_, device_, pools);
  return {};
}

Result<void> DriverDevice::check_not_captured(CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = driver_.cuStreamIsCapturing(stream, &capture);
  if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
    return failure<Errc::invalid_argument, "the stream is the default one, which cannot be used while another is captured">;
  }
  if (note(asked, "cuStreamIsCapturing")) return Errc::io_failed;
  // The call would become a part of the graph, and would happen only when the graph runs.
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return failure<Errc::invalid_argument, "the stream is being captured into a graph: signal and await before or after that">;
  }
  return {};
}

Result<Fence> DriverDevice::signal(StreamRef of) {
  auto* const stream = static_cast<CUstream>(of.handle);
  const CurrentContext current{driver_, context_.get()};
  if (note(current.result(), "cuCtxPushCurrent")) return Errc::io_failed;
  if (const Result<void> usable = check_not_captured(stream); !usable) return usable.error();
  CUresult made = CUDA_SUCCESS;
  EventPool::Event event = events_.take(made);
  if (note(made, "cuEventCreate")) return Errc::io_failed;
  if (note(driver_.cuEventRecord(*event, stream), "cuEventRecord")) return Errc::io_failed;
  return points_.add_event(std::move(event));
}

Result<void> DriverDevice::await(StreamRef stream, std::span<const std::uint64_t> tokens) {
  std::vector<OpenCopies<EventPool::Event>::Copy> copies;
  if (const Result<void> found = copies_.find(tokens, copies); !found) return found.error();
  std::vector<EventPool::Event> events;
  events.reserve(copies.size());
  for (auto& copy : copies) events.push_back(std::move(copy.ended));
  return wait_for(static_cast<CUstream>(stream.handle), events);
}

Result<void> DriverDevice::await(StreamRef stream, Fence point) {
  if (!points_.exists(point)) return no_such_fence;
  std::vector<EventPool::Event> events;
  if (!points_.try_wait_for(point, events)) return Errc::not_ready;
  return wait_for(static_cast<CUstream>(stream.handle), events);
}

Result<void> DriverDevice::wait_for(CUstream stream, std::span<const EventPool::Event> events) {
  const CurrentContext current{driver_, context_.get()};
  if (note(current.result(), "cuCtxPushCurrent")) return Errc::io_failed;
  if (const Result<void> usable = check_not_captured(stream); !usable) return usable.error();
  for (const EventPool::Event& event : events) {
    // The stream waits for the current state of the event, which may be recorded again later.
    if (note(driver_.cuStreamWaitEvent(stream, *event, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent")) return Errc::io_failed;
  }
  return {};
}

CudaFacts DriverDevice::facts() const {
  CudaFacts facts = facts_;
  std::tie(facts.failed, facts.first_failure) = failures_.read();
  return facts;
}

void DriverDevice::join_context() {
  note(driver_.cuCtxSetCurrent(context_.get()), "cuCtxSetCurrent");
  // While an engine captures a graph, the driver refuses calls of other threads that could disturb the capture. The calls of this
  // thread do not affect the engine's streams, so they are allowed.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  note(driver_.cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
}

void DriverDevice::compute() {
  join_context();
  points_.run([this](ComputeWork& work) { return work(access_), true; },
              [this](const EventPool::Event& event) { note(await_event(driver_, *event), "cuEventSynchronize"); });
}

void DriverDevice::issue(Stream& stream) {
  join_context();
  while (const std::optional<CopyCommand> command = stream.commands.pop()) {
    if (!points_.wait_for(command->after, stream.open)) return;
    Issued issued = issue(stream, *command);
    copies_.put(issued.token, issued.event, issued.error);
    stream.ends.push(std::move(issued));
  }
}

DriverDevice::Issued DriverDevice::issue(Stream& stream, const CopyCommand& command) {
  Issued issued{.token = command.token, .begin = nullptr, .event = nullptr, .error = {}};
  const CudaOutcome enqueued = enqueue(stream, command, issued);
  if (failures_.note(enqueued)) issued.error = Errc::io_failed;
  // If a command failed in the middle, some of its copies may be under way. So it ends only after these copies.
  issued.event = record_time(stream);
  if (!issued.event) {
    note(await_stream(driver_, stream.handle.get()), "cuStreamSynchronize");
    issued.error = Errc::io_failed;
  }
  return issued;
}

EventPool::Event DriverDevice::record_time(Stream& stream) {
  CUresult result = CUDA_SUCCESS;
  EventPool::Event event = timed_events_.take(result);
  if (note(result, "cuEventCreate")) return nullptr;
  if (note(driver_.cuEventRecord(*event, stream.handle.get()), "cuEventRecord")) return nullptr;
  return event;
}

Duration DriverDevice::time_of(const Issued& issued) {
  if (!issued.begin || issued.error) return {};
  float milliseconds = 0;
  if (note(driver_.cuEventElapsedTime(&milliseconds, *issued.begin, *issued.event), "cuEventElapsedTime")) return {};
  // A time of 0 means that it is unknown. A copy may take less than the events can measure.
  return std::max(std::chrono::round<Duration>(std::chrono::duration<float, std::milli>{milliseconds}), Duration{1});
}

CudaOutcome DriverDevice::enqueue(Stream& stream, const CopyCommand& command, Issued& issued) {
  CudaOutcome outcome;
  for (const EventPool::Event& event : stream.open) {
    outcome = {driver_.cuStreamWaitEvent(stream.handle.get(), *event, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent"};
    if (outcome.failed()) break;
  }
  // The stream waits for the current state of the events. They may be recorded again later.
  stream.open.clear();
  if (outcome.failed()) return outcome;
  stream.pieces.clear();
  const PinnedPools::Pool& pool = pools_.of(command.pool);
  plan_pieces(command, pool.geometry, pool.host, stream.pieces);
  const CopyMethod method = options_.only_method
                                ? *options_.only_method
                                : options_.methods.choose(command.direction, shape_of(stream.pieces), stream.copier.available());
  // Record the start after the waits and directly before the copies: on an idle stream, the time counts from this call.
  issued.begin = record_time(stream);
  return stream.copier.enqueue(method, command.direction, stream.pieces, stream.handle.get());
}

void DriverDevice::end(Stream& stream) {
  join_context();
  while (std::optional<Issued> issued = stream.ends.pop()) {
    if (issued->event && note(await_event_soon(driver_, *issued->event), "cuEventSynchronize")) issued->error = Errc::io_failed;
    const Duration took = time_of(*issued);
    issued->begin = nullptr;
    issued->event = nullptr;
    stream.done.push({issued->token, issued->error, took});
  }
}

// ---- opening a device -------------------------------------------------------------------------------------------------------

std::unique_ptr<CudaDevice> CudaDevice::open(std::span<const PoolMemory> pools, CudaOptions options) {
  return std::make_unique<DriverDevice>(cuda_driver(), pools, std::move(options));
}

std::shared_ptr<HostPins> CudaDevice::shared_pins() { return std::make_shared<HostPins>(); }

std::optional<std::string> CudaDevice::unavailable(int ordinal) {
  try {
    static_cast<void>(cuda_device_at(cuda_driver(), ordinal));
    return std::nullopt;
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::optional<unsigned> CudaDevice::numa_node(int ordinal) { return cuda_numa_node(cuda_driver(), ordinal); }

CopyMethodTable CudaDevice::calibrated(int ordinal, const std::filesystem::path& file) {
  return kept_or_measured(cuda_driver(), ordinal, file, SteadyClock{});
}

}  // namespace terrace
