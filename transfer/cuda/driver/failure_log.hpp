#pragma once

#include "transfer/cuda/driver/driver.hpp"

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace terrace {

/// How one or several driver calls have ended.
struct CudaOutcome {
  CUresult result = CUDA_SUCCESS;
  std::string_view call;  ///< the name of the call that failed

  [[nodiscard]] bool failed() const { return result != CUDA_SUCCESS; }
};

/// The driver calls that have failed while a device was open. All code that makes such a call reports its failure here. Threads:
/// any.
class FailureLog {
 public:
  explicit FailureLog(const CudaDriver& driver) : driver_{driver} {}

  void note(const CudaOutcome& outcome) {
    const std::lock_guard lock{mutex_};
    if (failed_++ == 0) first_ = std::string{outcome.call} + ": " + driver_.describe(outcome.result);
  }

  struct Failures {
    std::uint64_t count = 0;
    std::string first;  ///< the first call that failed and the driver's reason; empty if there was none
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
