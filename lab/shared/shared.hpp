#pragma once

#include "lab/rows.hpp"
#include "terrace/options.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <vector>

namespace terrace::tools {

struct SharedBenchOptions {
  SharedStorage shared{.url = "memory:"};
  std::vector<Bytes> block_bytes{KiB * 64, KiB * 256, MiB, MiB * 4};
  Bytes area_bytes = MiB * 64;      ///< moved in each direction and round, in blocks of a size
  Bytes bytes_in_flight = MiB * 8;  ///< of blocks; one block is always allowed
  std::uint32_t rounds = 5;
};

/// Measures a shared store by the client that a cache uses: rates of writes and reads, the processor time of this process for
/// them, and the time of a probe for all blocks. Prints the medians, and returns the report. The blocks have a fingerprint
/// of their own, expire within a minute, and are removed at the end.
///
/// Throws std::invalid_argument for sizes and URLs that cannot be used, std::runtime_error if the store cannot be used or
/// operations fail, and Interrupted after a signal.
[[nodiscard]] Row bench_shared(const SharedBenchOptions& options);

}  // namespace terrace::tools
