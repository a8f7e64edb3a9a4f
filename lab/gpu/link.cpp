#include "lab/gpu/link.hpp"

#include "tools/device_name.hpp"
#include "tools/output.hpp"
#include "tools/report_file.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

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

void print_facts(const LinkFacts& facts) {
  print("{}, driver {}, {} copy engines, NUMA node {}, host addresses in batches: {}\n", facts.device, facts.driver,
        facts.copy_engines, facts.numa_node, facts.takes_host_addresses ? "yes" : "no");
  print("\nlarge copies, GB/s: swap in {:.1f}, swap out {:.1f}, both at once {:.1f}\n", facts.swap_in, facts.swap_out,
        facts.both);
  print("\nfrom the end of a copy of 1 MiB until a thread knows it, us\n");
  for (const LinkFacts::End& end : facts.ends) print("  {:<24} p50 {:>7.1f}  p99 {:>7.1f}\n", end.way, end.p50_us, end.p99_us);
  print("\npieces on a stream, GB/s, by how many are under way\n");
  print("{:<9} {:>7}", "way", "piece");
  for (const unsigned under_way : link_pieces_under_way) print(" {:>7}", under_way);
  for (const LinkFacts::Queue& queue : facts.queues) {
    if (queue.under_way == link_pieces_under_way.front()) {
      print("\n{:<9} {:>7}", queue.direction == Direction::swap_in ? "swap in" : "swap out", to_string(queue.piece_bytes));
    }
    print(" {:>7.1f}", queue.gb_per_s);
  }
  print("\n\nmemory is pinned and given back, ms\n");
  for (const LinkFacts::Pin& pin : facts.pins) {
    print("  {:<24} pinned {:>7.1f}  given back {:>7.1f}{}\n", pin.beside_kernel ? "beside a kernel" : "alone", pin.pin_ms,
          pin.unpin_ms,
          !pin.beside_kernel ? ""
          : pin.still_runs   ? "  (the kernel still runs)"
                             : "  (the kernel has ended)");
  }
}

boost::json::object to_json(const LinkFacts& facts) {
  boost::json::array ends;
  for (const LinkFacts::End& end : facts.ends) {
    ends.push_back(boost::json::object{{"way", end.way}, {"p50_us", end.p50_us}, {"p99_us", end.p99_us}});
  }
  boost::json::array queues;
  for (const LinkFacts::Queue& queue : facts.queues) {
    queues.push_back(boost::json::object{{"direction", queue.direction == Direction::swap_in ? "swap_in" : "swap_out"},
                                         {"piece_bytes", count(queue.piece_bytes)},
                                         {"under_way", queue.under_way},
                                         {"gb_per_s", queue.gb_per_s}});
  }
  boost::json::array pins;
  for (const LinkFacts::Pin& pin : facts.pins) {
    pins.push_back(boost::json::object{{"beside_kernel", pin.beside_kernel},
                                       {"pin_ms", pin.pin_ms},
                                       {"unpin_ms", pin.unpin_ms},
                                       {"kernel_still_runs", pin.still_runs}});
  }
  return {{"device", facts.device},
          {"driver", facts.driver},
          {"copy_engines", facts.copy_engines},
          {"numa_node", facts.numa_node},
          {"takes_host_addresses", facts.takes_host_addresses},
          {"swap_in_gb_per_s", facts.swap_in},
          {"swap_out_gb_per_s", facts.swap_out},
          {"both_gb_per_s", facts.both},
          {"ends", std::move(ends)},
          {"queues", std::move(queues)},
          {"pins", std::move(pins)}};
}

}  // namespace

void bench_link(const LinkBenchOptions& options) {
  check(options);
  const LinkFacts facts = measure_link(*options.cuda, options.size);
  print_facts(facts);
  if (!options.report.empty()) write_report(options.report, json_text(to_json(facts)));
}

}  // namespace terrace::tools
