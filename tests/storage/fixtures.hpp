#pragma once

#include "tests/storage/harness.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

namespace terrace::test {

/// A test of every kind of store.
class EveryStore : public testing::TestWithParam<StoreKind> {
 protected:
  StoreHarness& make(std::uint32_t capacity) {
    harness_ = make_harness(GetParam(), capacity);
    return *harness_;
  }

  std::unique_ptr<StoreHarness> harness_;
};

/// A test of a file store on a disk in memory.
class OnSimulatedDisk : public testing::Test {
 protected:
  std::unique_ptr<SimulatedHarness> open(std::uint32_t blocks = 40) { return open(config_for("/store", blocks)); }
  std::unique_ptr<SimulatedHarness> open(const FileStoreConfig& config) {
    return std::make_unique<SimulatedHarness>(io_, config);
  }

  SimulatedIo io_;
};

/// A test of a file store in a real directory, with each engine.
class OnRealDisk : public testing::TestWithParam<StoreKind> {
 protected:
  [[nodiscard]] std::unique_ptr<DiskHarness> open(const FileStoreConfig& config) {
    if (GetParam() == StoreKind::file_uring) return std::make_unique<UringHarness>(config, calls_, uring_);
    return std::make_unique<ThreadsHarness>(config, calls_);
  }

  FaultyCalls calls_;
  FaultyUring uring_{calls_};
};

/// Why the call was refused with a std::system_error; empty if it was not.
template <class Call>
[[nodiscard]] std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (const std::system_error& error) {
    return error.what();
  }
  return {};
}

/// Expects the call to throw a std::system_error, and returns it.
template <class Call>
[[nodiscard]] std::system_error thrown_by(Call&& call) {
  try {
    call();
  } catch (const std::system_error& error) {
    return error;
  }
  ADD_FAILURE() << "it was not refused";
  return std::system_error{0, std::generic_category()};
}

}  // namespace terrace::test
