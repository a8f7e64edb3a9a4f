#include "lab/transfer/transfer_device.hpp"

#include "base/check.hpp"
#include "base/waker.hpp"
#include "tools/device_name.hpp"
#include "transfer/cuda/cuda_device.hpp"
#include "transfer/device/slot_memory.hpp"
#include "transfer/emulated/emulated_device.hpp"

#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

/// Copies with memcpy on the calling thread.
class MemoryCopies final : public PlainCopies {
 public:
  MemoryCopies(std::uint32_t slots, HostArena& host) : memory_{PoolMemory{slots, &host}} {}

  void copy(Direction direction, std::span<const SlotRun> runs) override { memory_.copy(direction, runs); }

 private:
  SlotMemory memory_;
};

std::unique_ptr<CudaDevice> open_cuda(int ordinal, std::uint32_t slots, HostArena& host, std::uint32_t layers,
                                      std::optional<CopyMethod> only_method) {
  CudaOptions options;
  options.ordinal = ordinal;
  options.only_method = only_method;
  const std::filesystem::path file = calibration_file();
  if (!only_method && !file.empty()) options.methods = CudaDevice::calibrated(ordinal, file);
  const PoolMemory pool{.slots = slots, .host = &host, .layers = layers};
  return CudaDevice::open(std::span{&pool, 1}, options);
}

/// Copies with one call of the driver for each run. It has memory of its own on both sides, because pinned memory cannot be
/// pinned again.
class CudaCopies final : public PlainCopies {
 public:
  CudaCopies(int ordinal, std::uint32_t slots, HostArena& host)
      : host_{host.slots(), host.block_bytes()}, device_{open_cuda(ordinal, slots, host_, 1, CopyMethod::plain)} {
    device_->set_waker(waker_);
  }

  void copy(Direction direction, std::span<const SlotRun> runs) override {
    // Only one thread at a time may use a device. The copies of the two directions still run at the same time.
    std::unique_lock lock{mutex_};
    const std::uint64_t mine = ++token_;
    device_->submit({mine, direction, Fence{}, {runs.begin(), runs.end()}, PoolId{}});
    while (!is_done(mine)) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }

 private:
  [[nodiscard]] bool is_done(std::uint64_t token) {
    ended_.clear();
    device_->poll(ended_);
    for (const CopyDone& done : ended_) {
      TERRACE_CHECK(!done.error);
      done_.push_back(done.token);
    }
    return std::erase(done_, token) > 0;
  }

  HostArena host_;
  EventFdWaker waker_;
  std::unique_ptr<CudaDevice> device_;
  std::mutex mutex_;
  std::uint64_t token_ = 0;
  std::vector<std::uint64_t> done_;
  std::vector<CopyDone> ended_;
};

}  // namespace

TransferDevice make_transfer_device(const TransferDeviceOptions& options, std::uint32_t slots, HostArena& host) {
  if (options.cuda) {
    return {open_cuda(*options.cuda, slots, host, options.layers, std::nullopt),
            std::make_unique<CudaCopies>(*options.cuda, slots, host), make_cuda_work(*options.cuda)};
  }
  EmulatedOptions emulated;
  for (LinkDirection& each : emulated.link.directions) each.bytes_per_second = options.link_bytes_per_second;
  const PoolMemory pool{.slots = slots, .host = &host, .layers = options.layers};
  auto device = std::make_unique<EmulatedDevice>(std::span{&pool, 1}, emulated);
  auto compute = make_emulated_work(*device, slots / 2, host.block_bytes());
  return {std::move(device), std::make_unique<MemoryCopies>(slots, host), std::move(compute)};
}

}  // namespace terrace::tools
