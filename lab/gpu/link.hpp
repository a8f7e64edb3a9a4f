#pragma once

#include "lab/rows.hpp"
#include "terrace/device.hpp"
#include "terrace/types.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace terrace {
struct CudaDriver;
}

namespace terrace::tools {

/// How large a probe is.
struct LinkProbeSize {
  Bytes area = MiB * 256;  ///< on each side; at least 16 MiB
  unsigned rounds = 5;
  unsigned ends = 1000;                ///< copies whose end is waited for
  unsigned kernel_milliseconds = 300;  ///< of the kernel beside which memory is pinned
};

/// The numbers of pieces that LinkFacts::queues has.
inline constexpr std::array<unsigned, 4> link_pieces_under_way{1, 2, 4, 8};

/// Facts about what the driver and the link of one GPU can do, without the transfers of Terrace.
struct LinkFacts {
  std::string device;
  std::string driver;
  int copy_engines = 0;
  int numa_node = -1;
  bool takes_host_addresses = false;  ///< of pinned memory, in batches of copies

  // Copies of the whole area, GB/s.
  double swap_in = 0;
  double swap_out = 0;
  double both = 0;  ///< half of the area in each direction at once

  /// How long a copy of 1 MiB takes beyond its own time on the device, until a thread knows of its end.
  struct End {
    std::string way;
    double p50_us = 0;
    double p99_us = 0;
  };
  std::vector<End> ends;

  /// The speed of pieces that are put on the stream one after the other, so many of them at a time.
  struct Queue {
    Direction direction = Direction::swap_in;
    Bytes piece_bytes{};
    unsigned under_way = 0;
    double gb_per_s = 0;
  };
  std::vector<Queue> queues;

  /// How long the driver takes to pin memory of the size of the area, and to give it back; and whether a kernel that ran at the
  /// beginning still ran at the end.
  struct Pin {
    bool beside_kernel = false;
    double pin_ms = 0;
    double unpin_ms = 0;
    bool still_runs = false;
  };
  std::vector<Pin> pins;
};

/// Measures them on the GPU with this number, in some seconds. In a build without CUDA it throws std::runtime_error. Throws as
/// probe_link().
[[nodiscard]] LinkFacts measure_link(int ordinal, const LinkProbeSize& size);
/// The same with this driver, which must outlive the call. Throws CudaUnavailable and CudaError.
[[nodiscard]] LinkFacts probe_link(const CudaDriver& driver, int ordinal, const LinkProbeSize& size);

struct LinkBenchOptions {
  std::optional<int> cuda = 0;  ///< the number of the GPU
  LinkProbeSize size{};
};

/// Prints LinkFacts, and returns them as the report. Throws std::invalid_argument (sizes; a device that is no GPU), and what
/// measure_link() throws.
[[nodiscard]] Row bench_link(const LinkBenchOptions& options);

}  // namespace terrace::tools
