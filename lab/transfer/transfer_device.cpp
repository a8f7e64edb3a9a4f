#include "lab/transfer/transfer_device.hpp"

#include "base/check.hpp"
#include "base/waker.hpp"
#include "tools/device_name.hpp"
#include "transfer/cuda/cuda_device.hpp"
#include "transfer/device/slot_memory.hpp"
#include "transfer/emulated/emulated_device.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
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

std::uint64_t sum(std::span<const std::byte> bytes) {
  std::uint64_t all = 0;
  for (std::size_t at = 0; at + sizeof all <= bytes.size(); at += sizeof all) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    all += word;
  }
  return all;
}

/// Reads the first blocks of the emulated device on the thread that computes. The device must outlive it.
class EmulatedWork final : public ComputeWork {
 public:
  EmulatedWork(Device& device, std::uint32_t blocks, Bytes block_bytes)
      : device_{device}, block_bytes_{block_bytes}, blocks_{blocks_of_a_step(blocks, block_bytes)} {}

  [[nodiscard]] std::span<const ComputeKind> kinds() const override { return kinds_; }

  void start(ComputeKind) override {
    done_ = device_.launch([this](BlockAccess& access) {
      std::vector<std::byte> scratch(count(block_bytes_));
      const auto begin = std::chrono::steady_clock::now();
      std::uint64_t all = 0;
      for (std::uint32_t block = 0; block < blocks_; ++block) all += sum(access.read(SlotId{block}, scratch));
      took_ = std::chrono::steady_clock::now() - begin;
      static volatile std::uint64_t kept = 0;  // prevents the compiler from removing the reads
      kept = kept + all;
    });
  }

  [[nodiscard]] std::optional<Duration> ended() override {
    if (device_.reached() < done_) return std::nullopt;
    return took_;
  }

 private:
  static constexpr ComputeKind kinds_[] = {ComputeKind::memory};

  /// So many that a step takes a few milliseconds, and reads more than fits into a cache.
  static std::uint32_t blocks_of_a_step(std::uint32_t blocks, Bytes block_bytes) {
    constexpr Bytes wanted = MiB * 32;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted / block_bytes, 1, blocks));
  }

  Device& device_;
  Bytes block_bytes_;
  std::uint32_t blocks_;
  Fence done_;
  Duration took_{};  ///< written by the thread that computes, before `done_`
};

}  // namespace

std::string_view to_string(ComputeKind kind) {
  constexpr std::array names{"memory", "arithmetic", "input"};
  return names.at(static_cast<std::size_t>(kind));
}

TransferDevice make_transfer_device(const TransferBenchOptions& options, std::uint32_t slots, HostArena& host) {
  if (options.cuda) {
    return {open_cuda(*options.cuda, slots, host, options.layers, std::nullopt),
            std::make_unique<CudaCopies>(*options.cuda, slots, host), make_cuda_work(*options.cuda)};
  }
  EmulatedOptions emulated;
  for (LinkDirection& each : emulated.link.directions) each.bytes_per_second = options.link_bytes_per_second;
  const PoolMemory pool{.slots = slots, .host = &host, .layers = options.layers};
  auto device = std::make_unique<EmulatedDevice>(std::span{&pool, 1}, emulated);
  auto compute = std::make_unique<EmulatedWork>(*device, slots / 2, host.block_bytes());
  return {std::move(device), std::make_unique<MemoryCopies>(slots, host), std::move(compute)};
}

}  // namespace terrace::tools
