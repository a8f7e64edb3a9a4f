#include "lab/gpu/link.hpp"
#include "lab/transfer/transfer_device.hpp"

#include <stdexcept>

namespace terrace::tools {
namespace {

constexpr const char* not_built = "this program was built without CUDA";

}  // namespace

std::unique_ptr<ComputeWork> make_cuda_work(int) { throw std::runtime_error{not_built}; }

Row measure_link(int, const LinkProbeSize&) { throw std::runtime_error{not_built}; }

}  // namespace terrace::tools
