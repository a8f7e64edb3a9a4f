#pragma once

#include "transfer/cuda/cuda_device.hpp"
#include "transfer/cuda/driver.hpp"

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

  void read(CudaFacts& facts) const {
    const std::lock_guard lock{mutex_};
    facts.failed = failed_;
    facts.first_failure = first_;
  }

 private:
  const CudaDriver& driver_;
  mutable std::mutex mutex_;
  std::uint64_t failed_ = 0;
  std::string first_;
};

}  // namespace terrace
