#pragma once

#include "transfer/cuda/driver/driver.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// The CUDA driver of an imaginary machine. "Device" memory is host memory, a stream is a thread that executes in order, and a
/// kernel is a function. It is stricter than a real driver:
/// - A copy must stay within one allocation of the stream's device and one registration of the host, both when it is launched and
///   when it runs.
/// - Addresses of device and host cannot be exchanged, and neither can the addresses that two devices have for the same host
///   memory.
/// - Registered memory cannot be registered again.
/// - Every call needs a current context, and the right one for its object.
/// - Everything that was not given back is reported at the end.
namespace terrace::test {

/// The offset between the device address and the real address of device memory. If code uses the address of one side on the
/// other, the fake driver notices it.
inline constexpr CUdeviceptr device_side = CUdeviceptr{1} << 61;

[[nodiscard]] inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

class FakeCuda {
 public:
  /// The properties of the machine. Set them before use.
  struct Machine {
    int driver_version = 13000;
    int devices = 1;
    int capability_major = 9;
    int numa_node = -1;
    bool loads_kernels = true;
    bool wrong_kernels = false;  ///< the last byte of each tile is wrong
    bool batch_12080 = true;
    bool batch_13000 = true;
    /// The device knows registered memory by the host's addresses. Otherwise batches need the device's addresses.
    bool host_addresses = true;
    /// The largest possible registration of host memory.
    std::size_t registration_max = std::numeric_limits<std::size_t>::max();
  };

  /// One at a time in a process, because the driver's functions have no state of their own.
  explicit FakeCuda(Machine machine);
  FakeCuda() : FakeCuda(Machine{}) {}
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  [[nodiscard]] const CudaDriver& driver() const { return driver_; }

  static constexpr int any_device = -1;

  /// After `after` successful calls of this function in this device's context (or in any), one call fails. (Of the functions that
  /// only free something, only cuMemHostUnregister can fail.)
  void fail(std::string_view call, CUresult result, int after = 0, int device = any_device);
  /// Fails the call after `after` more calls of any function that can fail, except those that only free something.
  void fail_any(CUresult result, int after);
  [[nodiscard]] bool failed_any() const;
  /// Makes the context of the device fail, as after an illegal address: nothing moves in it any more, and every call in it
  /// returns the error. When the context ends, its registrations end too.
  void break_context(CUresult result, int device = 0);

  /// Advances the machine's own time, which timing events report. Copying a byte takes one nanosecond; nothing else takes time.
  void pass_time(std::uint64_t nanoseconds) { now_ += nanoseconds; }

  /// Runs work on the stream, in order with other work there.
  void run_on(CUstream stream, std::function<void()> work);
  void set_capturing(CUstream stream, bool capturing);
  /// From now on, the stream belongs to a different context than everything else.
  void set_foreign(CUstream stream);
  /// The host address of what the device has at this address.
  [[nodiscard]] std::byte* at(CUdeviceptr device) const;

  [[nodiscard]] int calls(std::string_view call) const;
  /// Number of registered ranges of host memory.
  [[nodiscard]] std::size_t registered() const;
  /// A text about everything that was not given back or was done wrong; empty if there is nothing.
  [[nodiscard]] std::string complaints() const;

  // ---- used by the driver's functions

  struct Mark;
  struct Event {
    std::shared_ptr<Mark> mark;
    bool timed = false;
    int device = 0;
  };
  struct Stream;
  enum class Memory { device, pinned, registered };
  static constexpr int nobody = -2;  ///< no device

  /// The error that the call must return for this device, or success if it may continue.
  [[nodiscard]] CUresult begin(const char* call, int device, bool takes_back = false);
  void complain(const std::string& what);
  /// Retains the primary context of the device.
  [[nodiscard]] CUresult retain(int device, CUcontext& context);
  void release(int device);
  /// The device of the context while it is retained; otherwise `nobody`.
  [[nodiscard]] int device_of(CUcontext context) const;
  [[nodiscard]] int device_of(CUstream stream) const;
  [[nodiscard]] CUresult allocate(Memory kind, std::size_t size, int device, std::byte*& memory);
  [[nodiscard]] CUresult free(Memory kind, std::byte* memory, int device);
  [[nodiscard]] CUresult pin(std::byte* memory, std::size_t size, int device);
  /// Finds the registration or pinned allocation that begins there, and its address for the device.
  [[nodiscard]] bool is_pinned(std::byte* begin, int device, CUdeviceptr& address) const;
  /// The device that owns the memory, or `nobody`.
  [[nodiscard]] int owner(CUdeviceptr address) const;
  [[nodiscard]] CUresult copy(CUdeviceptr destination, CUdeviceptr source, std::size_t size, CUstream stream, const char* call,
                              bool mapped = false);
  [[nodiscard]] CUresult copy_tiles(CUdeviceptr tiles, unsigned count, bool bulk, CUstream stream);
  [[nodiscard]] CUstream make_stream(int device);
  [[nodiscard]] CUresult destroy_stream(CUstream stream, int device);
  void synchronize(CUstream stream);
  [[nodiscard]] bool capturing(CUstream stream) const;
  [[nodiscard]] bool any_capturing() const;
  [[nodiscard]] bool foreign(CUstream stream) const;
  [[nodiscard]] CUevent make_event(bool timed, int device);
  void destroy_event(CUevent event, int device);
  [[nodiscard]] CUresult record(CUevent event, CUstream stream);
  void wait(CUstream stream, CUevent event);
  void synchronize(CUevent event);
  [[nodiscard]] bool happened(CUevent event) const;
  [[nodiscard]] CUresult elapsed(CUevent from, CUevent to, float& milliseconds);
  [[nodiscard]] CUresult broken(int device) const;
  void count_module(int by);
  const Machine machine;

 private:
  [[nodiscard]] std::shared_ptr<Mark> mark_of(CUevent event) const;
  struct Context {
    int retained = 0;
    CUresult broken = CUDA_SUCCESS;
  };
  struct Range {
    Memory kind;
    std::size_t size;
    int device;  ///< the device in whose context it was made
  };
  struct Failure {
    int after;
    CUresult result;
    int device;
  };
  /// The host address of the bytes, if they are within one range that is valid on this side.
  [[nodiscard]] std::byte* device_bytes(CUdeviceptr address, std::size_t size, int device) const;
  [[nodiscard]] std::byte* mapped_bytes(CUdeviceptr address, std::size_t size, int device) const;
  [[nodiscard]] std::byte* host_bytes(CUdeviceptr address, std::size_t size) const;
  [[nodiscard]] const Range* range_around(const std::byte* begin, std::size_t size) const;
  void run_tiles(CUdeviceptr tiles, unsigned count, bool bulk, int device);

  CudaDriver driver_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;
  std::map<std::string, std::vector<Failure>, std::less<>> failures_;
  std::map<std::string, int, std::less<>> calls_;
  int any_after_ = -1;
  CUresult any_result_ = CUDA_SUCCESS;
  bool any_failed_ = false;
  std::atomic<std::uint64_t> now_{0};
  std::set<std::shared_ptr<Stream>> streams_;
  std::set<CUevent> events_;
  std::vector<Context> contexts_;  ///< the primary contexts, by device
  int modules_ = 0;
  std::vector<std::string> complaints_;
};

}  // namespace terrace::test
