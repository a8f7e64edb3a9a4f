// The Device contract, for the CUDA device with the fake driver.
#include "tests/transfer/cuda/cuda_support.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "tests/transfer/device_contract.hpp"

namespace terrace::contract {
namespace {

class FakeMachine {
 public:
  static std::optional<std::string> unavailable() { return std::nullopt; }
  ~FakeMachine() { EXPECT_EQ(cuda_.complaints(), ""); }
  const CudaDriver& driver() { return cuda_.driver(); }

 private:
  test::FakeCuda cuda_;
};

using Drivers = test::CudaContracts<FakeMachine>;
INSTANTIATE_TYPED_TEST_SUITE_P(FakeCuda, DeviceContract, Drivers);
INSTANTIATE_TYPED_TEST_SUITE_P(FakeCuda, DeviceContractDeathTest, Drivers);

}  // namespace
}  // namespace terrace::contract
