// The driver's functions. Each forwards to the FakeCuda object.
#include "tests/transfer/cuda/fake_cuda.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace terrace::test {
namespace {

FakeCuda* fake = nullptr;
thread_local std::vector<CUcontext> contexts;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr std::uintptr_t page = 4096;

using Memory = FakeCuda::Memory;

/// The device whose context is current on this thread.
int current() { return contexts.empty() ? FakeCuda::nobody : fake->device_of(contexts.back()); }

/// Success if the call may continue.
CUresult begin(const char* call) {
  const int device = current();
  if (const CUresult result = fake->begin(call, device); result != CUDA_SUCCESS) return result;
  if (device != FakeCuda::nobody) return fake->broken(device);
  fake->complain(std::string{call} + ": without a context");
  return CUDA_ERROR_INVALID_CONTEXT;
}

/// The same for a call that puts something on a stream, or waits for it.
CUresult begin_on(const char* call, CUstream stream) {
  if (const CUresult result = begin(call); result != CUDA_SUCCESS) return result;
  if (fake->device_of(stream) == current()) return CUDA_SUCCESS;
  fake->complain(std::string{call} + ": a stream of another context");
  return CUDA_ERROR_INVALID_HANDLE;
}

/// A call that needs no context.
CUresult begin_outside(const char* call, int device = FakeCuda::nobody) { return fake->begin(call, device); }

void take_back(const char* call) { static_cast<void>(fake->begin(call, FakeCuda::nobody, true)); }

/// A call that frees something of a context.
CUresult take_back_inside(const char* call) {
  const CUresult result = fake->begin(call, current(), true);
  if (current() == FakeCuda::nobody) fake->complain(std::string{call} + ": without a context");
  return result;
}

/// Success if the call does not disturb a graph capture, or if this thread may make it anyway.
CUresult beside_captures() {
  const bool disturbs = capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && fake->any_capturing();
  return disturbs ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

#define FAKE_BEGIN(call) \
  if (const CUresult begun = begin(call); begun != CUDA_SUCCESS) return begun
#define FAKE_BEGIN_ON(call, stream) \
  if (const CUresult begun = begin_on(call, stream); begun != CUDA_SUCCESS) return begun
#define FAKE_BEGIN_OUTSIDE(call) \
  if (const CUresult begun = begin_outside(call); begun != CUDA_SUCCESS) return begun

void add_machine_calls(CudaDriver& driver) {
  driver.cuGetErrorName = [](CUresult result, const char** name) {
    *name = result == CUDA_ERROR_ILLEGAL_ADDRESS  ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == CUDA_ERROR_OUT_OF_MEMORY  ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == CUDA_ERROR_INVALID_HANDLE ? "CUDA_ERROR_INVALID_HANDLE"
                                                  : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
  };
  driver.cuGetErrorString = [](CUresult, const char** text) {
    *text = "as the test has it";
    return CUDA_SUCCESS;
  };
  driver.cuInit = [](unsigned) { return begin_outside("cuInit"); };
  driver.cuDriverGetVersion = [](int* version) {
    *version = fake->machine.driver_version;
    return begin_outside("cuDriverGetVersion");
  };
  driver.cuDeviceGetCount = [](int* count) {
    *count = fake->machine.devices;
    return begin_outside("cuDeviceGetCount");
  };
  driver.cuDeviceGet = [](CUdevice* device, int ordinal) {
    *device = ordinal;
    return begin_outside("cuDeviceGet");
  };
  driver.cuDeviceGetName = [](char* name, int size, CUdevice) {
    std::strncpy(name, "Fake GPU", static_cast<std::size_t>(size));
    return begin_outside("cuDeviceGetName");
  };
  driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? fake->machine.capability_major
             : attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID             ? 0x1a
             : attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID           ? fake->machine.numa_node
             : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT   ? 4
             : attribute == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
                 ? static_cast<int>(fake->machine.host_addresses)
                 : 0;
    return begin_outside("cuDeviceGetAttribute");
  };
  driver.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) -> CUresult {
    if (const CUresult begun = begin_outside("cuDevicePrimaryCtxRetain", device); begun != CUDA_SUCCESS) return begun;
    return fake->retain(device, *context);
  };
  driver.cuDevicePrimaryCtxRelease = [](CUdevice device) {
    take_back("cuDevicePrimaryCtxRelease");
    fake->release(device);
    return CUDA_SUCCESS;
  };
  driver.cuCtxPushCurrent = [](CUcontext context) -> CUresult {
    if (const CUresult begun = begin_outside("cuCtxPushCurrent", fake->device_of(context)); begun != CUDA_SUCCESS) return begun;
    contexts.push_back(context);
    return CUDA_SUCCESS;
  };
  driver.cuCtxPopCurrent = [](CUcontext* context) -> CUresult {
    take_back("cuCtxPopCurrent");
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = contexts.back();
    contexts.pop_back();
    return CUDA_SUCCESS;
  };
  driver.cuCtxSetCurrent = [](CUcontext context) -> CUresult {
    // If a thread cannot set its context, every later call fails. The fake machine does not simulate that.
    take_back("cuCtxSetCurrent");
    contexts = {context};
    return CUDA_SUCCESS;
  };
  driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) -> CUresult {
    FAKE_BEGIN_OUTSIDE("cuThreadExchangeStreamCaptureMode");
    std::swap(*mode, capture_mode);
    return CUDA_SUCCESS;
  };
}

void add_memory_calls(CudaDriver& driver) {
  driver.cuMemAlloc = [](CUdeviceptr* memory, std::size_t size) -> CUresult {
    FAKE_BEGIN("cuMemAlloc");
    std::byte* made = nullptr;
    const CUresult result = fake->allocate(Memory::device, size, current(), made);
    *memory = address(made) + device_side;
    return result;
  };
  driver.cuMemFree = [](CUdeviceptr memory) {
    static_cast<void>(take_back_inside("cuMemFree"));
    return fake->free(Memory::device, fake->at(memory), current());
  };
  driver.cuMemHostAlloc = [](void** memory, std::size_t size, unsigned) -> CUresult {
    FAKE_BEGIN("cuMemHostAlloc");
    std::byte* made = nullptr;
    const CUresult result = fake->allocate(Memory::pinned, size, current(), made);
    *memory = made;
    return result;
  };
  driver.cuMemFreeHost = [](void* memory) {
    static_cast<void>(take_back_inside("cuMemFreeHost"));
    return fake->free(Memory::pinned, static_cast<std::byte*>(memory), current());
  };
  driver.cuMemHostRegister = [](void* memory, std::size_t size, unsigned flags) -> CUresult {
    FAKE_BEGIN("cuMemHostRegister");
    if (flags != (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) || (address(memory) | size) % page != 0) {
      fake->complain("cuMemHostRegister: not of whole pages, for every context and mapped");
    }
    if (const CUresult result = beside_captures(); result != CUDA_SUCCESS) return result;
    return fake->pin(static_cast<std::byte*>(memory), size, current());
  };
  driver.cuMemHostUnregister = [](void* memory) {
    if (const CUresult failed = take_back_inside("cuMemHostUnregister"); failed != CUDA_SUCCESS) return failed;
    if (current() == FakeCuda::nobody) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult broken = fake->broken(current()); broken != CUDA_SUCCESS) return broken;
    if (const CUresult result = beside_captures(); result != CUDA_SUCCESS) return result;
    return fake->free(Memory::registered, static_cast<std::byte*>(memory), current());
  };
  driver.cuMemHostGetDevicePointer = [](CUdeviceptr* device, void* memory, unsigned) -> CUresult {
    FAKE_BEGIN("cuMemHostGetDevicePointer");
    return fake->is_pinned(static_cast<std::byte*>(memory), current(), *device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  driver.cuPointerGetAttribute = [](void* value, CUpointer_attribute attribute, CUdeviceptr where) -> CUresult {
    FAKE_BEGIN("cuPointerGetAttribute");
    const int owner = fake->owner(where);
    if (owner == FakeCuda::nobody) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *static_cast<unsigned*>(value) = CU_MEMORYTYPE_DEVICE;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(value) = owner;
    return CUDA_SUCCESS;
  };
  driver.cuMemsetD8Async = [](CUdeviceptr where, unsigned char value, std::size_t size, CUstream stream) -> CUresult {
    FAKE_BEGIN_ON("cuMemsetD8Async", stream);
    fake->run_on(stream, [=] { std::memset(fake->at(where), value, size); });
    return CUDA_SUCCESS;
  };
  driver.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void* from, std::size_t size, CUstream stream) -> CUresult {
    FAKE_BEGIN_ON("cuMemcpyHtoDAsync", stream);
    return fake->copy(to, address(from), size, stream, "cuMemcpyHtoDAsync");
  };
  driver.cuMemcpyDtoHAsync = [](void* to, CUdeviceptr from, std::size_t size, CUstream stream) -> CUresult {
    FAKE_BEGIN_ON("cuMemcpyDtoHAsync", stream);
    return fake->copy(address(to), from, size, stream, "cuMemcpyDtoHAsync");
  };
}

constexpr int greatest_priority = -5;

CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count, CUmemcpyAttributes* attributes,
                    std::size_t* first, std::size_t attribute_count, CUstream stream) {
  constexpr std::size_t descriptors_max = 512;
  if (count == 0 || count > descriptors_max || attribute_count != 1 || *first != 0) {
    fake->complain("cuMemcpyBatchAsync: not a batch that every driver takes");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool out = (*from & device_side) != 0;
  if (attributes->srcAccessOrder != (out ? CU_MEMCPY_SRC_ACCESS_ORDER_STREAM : CU_MEMCPY_SRC_ACCESS_ORDER_ANY)) {
    fake->complain("cuMemcpyBatchAsync: an order of access that is not right for the direction");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result = fake->copy(to[i], from[i], sizes[i], stream, "cuMemcpyBatchAsync", !fake->machine.host_addresses);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

void add_batch_calls(CudaDriver& driver, const FakeCuda::Machine& machine) {
  if (machine.batch_12080) {
    driver.memcpy_batch_12080 = [](CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                                   CUmemcpyAttributes* attributes, std::size_t* first, std::size_t attribute_count,
                                   std::size_t* fail_index, CUstream stream) -> CUresult {
      FAKE_BEGIN_ON("memcpy_batch_12080", stream);
      *fail_index = SIZE_MAX;
      return copy_batch(to, from, sizes, count, attributes, first, attribute_count, stream);
    };
  }
  if (machine.batch_13000) {
    driver.memcpy_batch_13000 = [](CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                                   CUmemcpyAttributes* attributes, std::size_t* first, std::size_t attribute_count,
                                   CUstream stream) -> CUresult {
      FAKE_BEGIN_ON("memcpy_batch_13000", stream);
      return copy_batch(to, from, sizes, count, attributes, first, attribute_count, stream);
    };
  }
}

void add_stream_calls(CudaDriver& driver) {
  driver.cuStreamCreate = [](CUstream* stream, unsigned flags) -> CUresult {
    FAKE_BEGIN("cuStreamCreate");
    if (flags != CU_STREAM_NON_BLOCKING) fake->complain("a stream that waits for the default one");
    *stream = fake->make_stream(current());
    return CUDA_SUCCESS;
  };
  driver.cuCtxGetStreamPriorityRange = [](int* least, int* greatest) -> CUresult {
    FAKE_BEGIN("cuCtxGetStreamPriorityRange");
    *least = 0;
    *greatest = greatest_priority;
    return CUDA_SUCCESS;
  };
  driver.cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int priority) -> CUresult {
    FAKE_BEGIN("cuStreamCreateWithPriority");
    if (flags != CU_STREAM_NON_BLOCKING) fake->complain("a stream that waits for the default one");
    if (priority != greatest_priority) fake->complain("a copy stream that compute can hold up");
    *stream = fake->make_stream(current());
    return CUDA_SUCCESS;
  };
  driver.cuStreamDestroy = [](CUstream stream) {
    static_cast<void>(take_back_inside("cuStreamDestroy"));
    return fake->destroy_stream(stream, current());
  };
  driver.cuStreamSynchronize = [](CUstream stream) -> CUresult {
    FAKE_BEGIN_ON("cuStreamSynchronize", stream);
    fake->synchronize(stream);
    return fake->broken(current());
  };
  driver.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) -> CUresult {
    FAKE_BEGIN_ON("cuStreamWaitEvent", stream);
    fake->wait(stream, event);
    return CUDA_SUCCESS;
  };
  driver.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) -> CUresult {
    FAKE_BEGIN("cuStreamIsCapturing");
    if (stream == nullptr) return fake->any_capturing() ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_ERROR_UNKNOWN;
    *status = fake->capturing(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  driver.cuEventCreate = [](CUevent* event, unsigned flags) -> CUresult {
    FAKE_BEGIN("cuEventCreate");
    if ((flags & CU_EVENT_BLOCKING_SYNC) == 0) fake->complain("an event whose waiters spin");
    *event = fake->make_event((flags & CU_EVENT_DISABLE_TIMING) == 0, current());
    return CUDA_SUCCESS;
  };
  driver.cuEventDestroy = [](CUevent event) {
    static_cast<void>(take_back_inside("cuEventDestroy"));
    fake->destroy_event(event, current());
    return CUDA_SUCCESS;
  };
  driver.cuEventRecord = [](CUevent event, CUstream stream) -> CUresult {
    FAKE_BEGIN("cuEventRecord");
    if (fake->foreign(stream)) return CUDA_ERROR_INVALID_HANDLE;
    return fake->record(event, stream);
  };
  driver.cuEventSynchronize = [](CUevent event) -> CUresult {
    FAKE_BEGIN("cuEventSynchronize");
    fake->synchronize(event);
    return fake->broken(current());
  };
  driver.cuEventQuery = [](CUevent event) -> CUresult {
    FAKE_BEGIN("cuEventQuery");
    if (const CUresult broken = fake->broken(current()); broken != CUDA_SUCCESS) return broken;
    return fake->happened(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  driver.cuEventElapsedTime = [](float* milliseconds, CUevent from, CUevent to) -> CUresult {
    FAKE_BEGIN("cuEventElapsedTime");
    return fake->elapsed(from, to, *milliseconds);
  };
}

/// The copy kernels, and those of steps, which do nothing here.
constexpr std::array<std::string_view, 4> kernels{"terrace_copy_tiles", "terrace_copy_bulk", "terrace_bench_memory",
                                                  "terrace_bench_arithmetic"};
constexpr std::uintptr_t copy_kernels = 2;

void add_kernel_calls(CudaDriver& driver) {
  driver.cuModuleLoadData = [](CUmodule* module, const void*) -> CUresult {
    FAKE_BEGIN("cuModuleLoadData");
    if (!fake->machine.loads_kernels) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *module = reinterpret_cast<CUmodule>(static_cast<std::uintptr_t>(current()) + 1);
    fake->count_module(1);
    return CUDA_SUCCESS;
  };
  driver.cuModuleUnload = [](CUmodule module) {
    static_cast<void>(take_back_inside("cuModuleUnload"));
    const bool is_its = reinterpret_cast<std::uintptr_t>(module) == static_cast<std::uintptr_t>(current()) + 1;
    if (!is_its) fake->complain("cuModuleUnload: in another context");
    fake->count_module(-1);
    return CUDA_SUCCESS;
  };
  driver.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char* name) -> CUresult {
    FAKE_BEGIN("cuModuleGetFunction");
    const auto kernel = std::ranges::find(kernels, std::string_view{name});
    if (kernel == kernels.end()) return CUDA_ERROR_NOT_FOUND;
    const auto number = static_cast<std::uintptr_t>(kernel - kernels.begin());
    *function = reinterpret_cast<CUfunction>(reinterpret_cast<std::uintptr_t>(module) * kernels.size() + number);
    return CUDA_SUCCESS;
  };
  driver.cuFuncSetAttribute = [](CUfunction, CUfunction_attribute, int) { return begin("cuFuncSetAttribute"); };
  driver.cuLaunchKernel = [](CUfunction function, unsigned grid, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                             unsigned, CUstream stream, void** parameters, void**) -> CUresult {
    FAKE_BEGIN_ON("cuLaunchKernel", stream);
    if (grid == 0 || threads == 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
    const auto number = reinterpret_cast<std::uintptr_t>(function);
    if (number / kernels.size() != static_cast<std::uintptr_t>(current()) + 1) {
      fake->complain("cuLaunchKernel: a kernel of another context");
      return CUDA_ERROR_INVALID_HANDLE;
    }
    const std::uintptr_t kernel = number % kernels.size();
    if (kernel >= copy_kernels) return CUDA_SUCCESS;
    return fake->copy_tiles(*static_cast<CUdeviceptr*>(parameters[0]), *static_cast<unsigned*>(parameters[1]), kernel == 1,
                            stream);
  };
}

}  // namespace

FakeCuda::FakeCuda(Machine made) : machine{made}, contexts_(static_cast<std::size_t>(made.devices)) {
  fake = this;
  contexts.clear();
  capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  add_machine_calls(driver_);
  add_memory_calls(driver_);
  add_batch_calls(driver_, machine);
  add_stream_calls(driver_);
  add_kernel_calls(driver_);
}

}  // namespace terrace::test
