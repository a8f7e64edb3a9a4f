#include "lab/gpu/link.hpp"

#include "tools/device_name.hpp"
#include "tools/output.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace terrace::tools {
namespace {

void check(const LinkBenchOptions& options) {
  if (!options.cuda) throw std::invalid_argument{"--device emulated: has no link; `terrace-lab link` measures a GPU"};
  if (const auto why = CudaDevice::unavailable(*options.cuda)) {
    throw std::invalid_argument{
        fmt::format("--device {}: {}; `terrace-lab link` measures a GPU", device_name(options.cuda), *why)};
  }
  constexpr Bytes least = MiB * 16;
  constexpr Bytes most = GiB;
  const Bytes area = options.size.area;
  if (area < least || area > most || count(area) % count(MiB * 8) != 0) {
    throw std::invalid_argument{
        fmt::format("--area {}: must be a multiple of 8MiB from {} to {}", to_string(area), to_string(least), to_string(most))};
  }
  if (options.size.rounds == 0) throw std::invalid_argument{"--rounds 0: at least 1 is needed"};
}

constexpr Column end_columns[] = {{"way", "", -24}, {"p50_us", "p50", 10, 1}, {"p99_us", "p99", 10, 1}};
constexpr Column queue_columns[] = {
    {"direction", "", -9}, {"piece_bytes", "piece", 8}, {"under_way", "under way", 11}, {"gb_per_s", "GB/s", 9, 1}};
constexpr Column pin_columns[] = {{"beside_kernel", "beside a kernel", 15},
                                  {"pin_ms", "pinned", 10, 1},
                                  {"unpin_ms", "given back", 12, 1},
                                  {"kernel_still_runs", "it still runs", 15}};

}  // namespace

Row bench_link(const LinkBenchOptions& options) {
  check(options);
  Row facts = measure_link(*options.cuda, options.size);
  print("{}, driver {}, {} copy engines, NUMA node {}, host addresses in batches: {}\n",
        std::string{facts.at("device").as_string()}, std::string{facts.at("driver").as_string()},
        facts.at("copy_engines").as_int64(), facts.at("numa_node").as_int64(),
        facts.at("takes_host_addresses").as_bool() ? "yes" : "no");
  print("\nlarge copies, GB/s: swap in {:.1f}, swap out {:.1f}, both at once {:.1f}\n", facts.at("swap_in_gb_per_s").as_double(),
        facts.at("swap_out_gb_per_s").as_double(), facts.at("both_gb_per_s").as_double());
  print_table("from the end of a copy of 1 MiB until a thread knows it, us", end_columns, facts.at("ends").as_array());
  print_table("pieces on a stream, by how many are under way", queue_columns, facts.at("queues").as_array());
  print_table("memory is pinned and given back, ms", pin_columns, facts.at("pins").as_array());
  return facts;
}

}  // namespace terrace::tools
