#pragma once

#include "tests/transfer/device_contract.hpp"
#include "tests/transfer/engine_memory.hpp"
#include "transfer/cuda/copy/copy_tile.hpp"
#include "transfer/cuda/cuda_device.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Helpers for tests of the CUDA device with the real and with the fake driver.
namespace terrace::test {

[[nodiscard]] inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A driver whose swap-outs fail once: the n-th call that puts one on a stream copies a quarter of its first piece and fails.
/// Only one may exist at a time. The driver that it wraps outlives it.
class PartlyFailing {
 public:
  explicit PartlyFailing(const CudaDriver& before) : driver_{before} {
    real() = &before;
    countdown() = 0;
    driver_.cuMemcpyDtoHAsync = [](void* to, CUdeviceptr from, std::size_t size, CUstream stream) {
      if (!due()) return real()->cuMemcpyDtoHAsync(to, from, size, stream);
      return failed(real()->cuMemcpyDtoHAsync(to, from, size / 4, stream));
    };
    if (before.memcpy_batch_13000 != nullptr) {
      driver_.memcpy_batch_13000 = [](CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                                      CUmemcpyAttributes* attributes, std::size_t* first, std::size_t attribute_count,
                                      CUstream stream) {
        if (!due()) return real()->memcpy_batch_13000(to, from, sizes, count, attributes, first, attribute_count, stream);
        std::size_t quarter = *sizes / 4;
        return failed(real()->memcpy_batch_13000(to, from, &quarter, 1, attributes, first, 1, stream));
      };
    }
    driver_.cuLaunchKernel = [](CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                                unsigned threads_z, unsigned shared, CUstream stream, void** parameters, void** extra) {
      if (!due()) {
        return real()->cuLaunchKernel(function, x, y, z, threads_x, threads_y, threads_z, shared, stream, parameters, extra);
      }
      // The ring is memory that the driver has allocated, so it has one address on both sides.
      auto* const tile = reinterpret_cast<CopyTile*>(*static_cast<CUdeviceptr*>(parameters[0]));
      tile->bytes /= 4;
      unsigned one = 1;
      void* first_only[] = {parameters[0], &one};
      return failed(
          real()->cuLaunchKernel(function, x, y, z, threads_x, threads_y, threads_z, shared, stream, first_only, nullptr));
    };
  }

  [[nodiscard]] const CudaDriver& driver() const { return driver_; }
  /// Counts from now on.
  void fail_nth(int n) { countdown() = n; }

 private:
  static const CudaDriver*& real() {
    static const CudaDriver* driver = nullptr;
    return driver;
  }
  static std::atomic<int>& countdown() {
    static std::atomic<int> left = 0;
    return left;
  }
  static bool due() { return countdown().fetch_sub(1) == 1; }
  static CUresult failed(CUresult result) { return result == CUDA_SUCCESS ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : result; }

  CudaDriver driver_;
};

/// How the contract drives a CUDA device. `Machine` has the driver: driver(), unavailable().
template <class Machine, CopyMethod method, Layout layout, contract::HostLayout host_layout = contract::whole_slots>
class CudaContract : public contract::Threaded {
 public:
  static constexpr contract::HostLayout host = host_layout;
  static std::optional<std::string> unavailable() { return Machine::unavailable(); }

  CudaContract(HostArena& arena, contract::Failing failing)
      : partly_failing_{machine_.driver()}, context_{machine_.driver(), cuda_device_at(machine_.driver(), 0)} {
    PoolMemory pool{.slots = contract::slots, .host = &arena, .share = host.share(), .layers = contract::layers};
    if (layout == Layout::regions) {
      memory_.emplace(machine_.driver(), contract::slots, 400, 3, 600);
      pool.regions = memory_->regions();
    }
    CudaOptions options;
    options.only_method = method;
    open(std::make_unique<DriverDevice>(partly_failing_.driver(), std::array{pool}, options));
    // The second command of the contract has two blocks, like the first one. Its first call fails; if a block needs several
    // calls, the second call of its first block fails.
    if (failing == contract::Failing::second_command) {
      const bool is_whole = host.slot_bytes() == contract::block_bytes;
      const int where_calls_are_many = layout == Layout::regions ? 6 : is_whole ? 2 : 3;
      partly_failing_.fail_nth(method == CopyMethod::plain ? where_calls_are_many : 2);
    }
  }
  ~CudaContract() { close(); }

 private:
  Machine machine_;
  PartlyFailing partly_failing_;
  PrimaryContext context_;
  std::optional<EngineMemory> memory_;
};

template <class Machine>
using CudaContracts = testing::Types<
    CudaContract<Machine, CopyMethod::batch, Layout::packed>, CudaContract<Machine, CopyMethod::batch, Layout::regions>,
    CudaContract<Machine, CopyMethod::plain, Layout::packed>, CudaContract<Machine, CopyMethod::plain, Layout::regions>,
    CudaContract<Machine, CopyMethod::kernel, Layout::packed>, CudaContract<Machine, CopyMethod::kernel, Layout::regions>,
    CudaContract<Machine, CopyMethod::batch, Layout::packed, contract::shares_of_slots>,
    CudaContract<Machine, CopyMethod::batch, Layout::regions, contract::shares_of_slots>,
    CudaContract<Machine, CopyMethod::plain, Layout::packed, contract::shares_of_slots>,
    CudaContract<Machine, CopyMethod::plain, Layout::regions, contract::shares_of_slots>,
    CudaContract<Machine, CopyMethod::kernel, Layout::packed, contract::shares_of_slots>,
    CudaContract<Machine, CopyMethod::kernel, Layout::regions, contract::shares_of_slots>>;

}  // namespace terrace::test
