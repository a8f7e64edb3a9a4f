#include "tools/bench/transfer/compute_work.hpp"

#include <stdexcept>

namespace terrace::tools {

std::unique_ptr<ComputeWork> make_cuda_work(int) { throw std::runtime_error{"this program was built without CUDA"}; }

}  // namespace terrace::tools
