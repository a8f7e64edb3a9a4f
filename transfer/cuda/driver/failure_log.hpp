#pragma once

#include "transfer/cuda/driver/driver.hpp"

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace terrace {

/// How a call ended that went to the driver.
struct CudaOutcome {
  CUresult result = CUDA_SUCCESS;
  std::string_view call;  ///< the one that failed

  [[nodiscard]] bool failed() const { return result != CUDA_SUCCESS; }
};

/// The calls of the driver that have failed while a device was at work; whoever makes one reports it here. Threads: any.
class FailureLog {
 public:
  explicit FailureLog(const CudaDriver& driver) : driver_{driver} {}

  void note(const CudaOutcome& outcome) {
    const std::lock_guard lock{mutex_};
    if (failed_++ == 0) first_ = std::string{outcome.call} + ": " + driver_.describe(outcome.result);
  }

  struct Failures {
    std::uint64_t count = 0;
    std::string first;  ///< the call and the driver's reason; empty: there was none
  };
  [[nodiscard]] Failures read() const {
    const std::lock_guard lock{mutex_};
    return {failed_, first_};
  }

 private:
  const CudaDriver& driver_;
  mutable std::mutex mutex_;
  std::uint64_t failed_ = 0;
  std::string first_;
};

}  // namespace terrace
