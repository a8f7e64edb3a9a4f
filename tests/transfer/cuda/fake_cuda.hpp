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

/// The CUDA driver of a machine that does not exist: "device" memory is the host's, a stream is a thread that does what it is
/// given in order, a kernel is a function. Stricter than a real one: a copy must stay within one allocation of its stream's
/// device and one registration of the host, when it is asked for and when it happens; addresses of the two sides are not
/// interchangeable, nor are the addresses that two devices have of the same host memory; memory that is registered is not
/// registered again; every call wants a current context, and the one of what it is about; and whatever was not given back is
/// said at the end.
namespace terrace::test {

class FakeCuda {
 public:
  /// What the machine has. Set before it is used.
  struct Machine {
    int driver_version = 13000;
    int devices = 1;
    int capability_major = 9;
    bool loads_kernels = true;
    bool batch_12080 = true;
    bool batch_13000 = true;
    /// The most that one registration of the host's memory may have.
    std::size_t registration_max = std::numeric_limits<std::size_t>::max();
  };

  /// One at a time in a process: the driver's functions have no state of their own.
  explicit FakeCuda(Machine machine);
  FakeCuda() : FakeCuda(Machine{}) {}
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  [[nodiscard]] const CudaDriver& driver() const { return driver_; }

  static constexpr int any_device = -1;

  /// The call fails once, after `after` more of it that do not, in this device's context or in any. (Of those that only take
  /// things back, cuMemHostUnregister can.)
  void fail(std::string_view call, CUresult result, int after = 0, int device = any_device);
  /// Of all calls together that can fail, those that only take things back excepted, the one after `after` more.
  void fail_any(CUresult result, int after);
  [[nodiscard]] bool failed_any() const;
  /// The device's context has failed, as after an illegal address: nothing moves in it any more, and every call in it says so.
  /// When it ends, what was registered in it is no longer.
  void break_context(CUresult result, int device = 0);

  /// The machine's own time, which events with timing tell: a byte that is copied takes a nanosecond of it, nothing else any.
  void pass_time(std::uint64_t nanoseconds) { now_ += nanoseconds; }

  /// Runs on the stream, in order with what else is put there.
  void run_on(CUstream stream, std::function<void()> work);
  void set_capturing(CUstream stream, bool capturing);
  /// The stream is of another context than all else from now on.
  void set_foreign(CUstream stream);
  /// Where the host finds what the device has at this address.
  [[nodiscard]] std::byte* at(CUdeviceptr device) const;

  [[nodiscard]] int calls(std::string_view call) const;
  /// Stretches of the host's memory that are registered.
  [[nodiscard]] std::size_t registered() const;
  /// What was taken and not given back, and what was done that must not be; empty: nothing.
  [[nodiscard]] std::string complaints() const;

  // ---- for the driver's functions

  struct Mark;
  struct Event {
    std::shared_ptr<Mark> mark;
    bool timed = false;
    int device = 0;
  };
  struct Stream;
  enum class Memory { device, pinned, registered };
  static constexpr int nobody = -2;  ///< no device

  /// What the call, about this device, is to fail with; success: it goes on.
  [[nodiscard]] CUresult begin(const char* call, int device, bool takes_back = false);
  void complain(const std::string& what);
  /// Of its primary context.
  [[nodiscard]] CUresult retain(int device, CUcontext& context);
  void release(int device);
  /// Whose context it is, as long as it is retained; or `nobody`.
  [[nodiscard]] int device_of(CUcontext context) const;
  [[nodiscard]] int device_of(CUstream stream) const;
  [[nodiscard]] CUresult allocate(Memory kind, std::size_t size, int device, std::byte*& memory);
  [[nodiscard]] CUresult free(Memory kind, std::byte* memory, int device);
  [[nodiscard]] CUresult pin(std::byte* memory, std::size_t size, int device);
  /// The registration or pinned allocation that begins there, as the device sees it.
  [[nodiscard]] bool is_pinned(std::byte* begin, int device, CUdeviceptr& address) const;
  /// Whose memory it is; or `nobody`.
  [[nodiscard]] int owner(CUdeviceptr address) const;
  [[nodiscard]] CUresult copy(CUdeviceptr destination, CUdeviceptr source, std::size_t size, CUstream stream, const char* call);
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
  [[nodiscard]] CUresult elapsed(CUevent from, CUevent to, float& milliseconds);
  [[nodiscard]] CUresult broken(int device) const;
  void count_module(int by);
  const Machine machine;

 private:
  struct Context {
    int retained = 0;
    CUresult broken = CUDA_SUCCESS;
  };
  struct Range {
    Memory kind;
    std::size_t size;
    int device;  ///< in whose context it was made
  };
  struct Failure {
    int after;
    CUresult result;
    int device;
  };
  /// Where the bytes are, if they lie within one range that may stand on this side.
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
  std::vector<Context> contexts_;  ///< the primary ones, by device
  int modules_ = 0;
  std::vector<std::string> complaints_;
};

}  // namespace terrace::test
