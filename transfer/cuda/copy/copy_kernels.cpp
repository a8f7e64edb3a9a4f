#include "transfer/cuda/copy/copy_kernels.hpp"

#include <algorithm>

/// The compiled form of kernels.cu, for several kinds of devices. The build makes the file that contains it.
extern "C" const unsigned char terrace_cuda_kernels[];

namespace terrace {

CopyKernels::CopyKernels(const CudaDriver& driver, CUdevice device, CUstream stream) : driver_{driver} {
  CUmodule module = nullptr;
  driver.check(driver.cuModuleLoadData(&module, terrace_cuda_kernels), "cuModuleLoadData");
  module_ = {module, driver.cuModuleUnload};
  driver.check(driver.cuModuleGetFunction(&tiles_, module, "terrace_copy_tiles"), "cuModuleGetFunction");
  driver.check(copy(false, stream, 0, 0, 1), "cuLaunchKernel");
  driver.check(await_stream(driver, stream), "cuStreamSynchronize");
  if (cuda_attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= 9) {
    driver.check(driver.cuModuleGetFunction(&bulk_, module, "terrace_copy_bulk"), "cuModuleGetFunction");
    driver.check(driver.cuFuncSetAttribute(bulk_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bulk_shared_bytes),
                 "cuFuncSetAttribute");
    driver.check(copy(true, stream, 0, 0, 1), "cuLaunchKernel");
    driver.check(await_stream(driver, stream), "cuStreamSynchronize");
  }
}

std::optional<CopyKernels> CopyKernels::load(const CudaDriver& driver, CUdevice device, CUstream stream, std::string& why) {
  try {
    return CopyKernels{driver, device, stream};
  } catch (const CudaError& error) {
    why = error.what();
    return std::nullopt;
  }
}

CUresult CopyKernels::copy(bool bulk, CUstream stream, CUdeviceptr tiles, std::uint32_t count, unsigned blocks_max) const {
  // Each warp copies one tile at a time; in the bulk kernel, each block does. Launch no more blocks than have work.
  const unsigned at_once = bulk ? 1 : kernel_threads / 32;
  const unsigned blocks = std::clamp((count + at_once - 1) / at_once, 1U, blocks_max);
  void* parameters[] = {&tiles, &count};
  return driver_.cuLaunchKernel(bulk ? bulk_ : tiles_, blocks, 1, 1, bulk ? bulk_threads : kernel_threads, 1, 1,
                                bulk ? bulk_shared_bytes : 0, stream, parameters, nullptr);
}

TileRing::TileRing(const CudaDriver& driver)
    : driver_{driver}, memory_{driver, Bytes{pages * page_tiles * sizeof(CopyTile)}, "descriptors of copy kernels"} {
  for (std::size_t i = 0; i < pages; ++i) read_.push_back(make_event(driver, EventTiming::no));
}

CUresult TileRing::next_page(std::span<CopyTile>& tiles, CUdeviceptr& address) {
  page_ = (page_ + 1) % pages;
  // An event that was never recorded counts as happened.
  const CUresult result = await_event(driver_, read_[page_].get());
  const std::size_t begin = page_ * page_tiles;
  tiles = {reinterpret_cast<CopyTile*>(memory_.bytes().data()) + begin, page_tiles};
  address = memory_.device_address() + begin * sizeof(CopyTile);
  return result;
}

}  // namespace terrace
