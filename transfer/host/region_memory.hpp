#pragma once

#include "terrace/host_memory.hpp"
#include "terrace/types.hpp"

#include <cstdint>

namespace terrace {

/// Rows of a region that Terrace makes begin at multiples of this, unless the caller gives a stride.
inline constexpr std::uint64_t region_alignment = 4096;
/// Larger than the memory that any process can address. No sum of sizes below it overflows.
inline constexpr std::uint64_t region_bytes_max = std::uint64_t{1} << 57;

/// Returns the stride of a region's rows: `row_stride`, or, if that is 0, row_bytes rounded up to region_alignment. Throws
/// std::invalid_argument if the region is empty or too large, or if rows would overlap.
[[nodiscard]] Bytes region_stride(std::uint32_t rows, Bytes row_bytes, Bytes row_stride);

/// Throws std::runtime_error, with the size that fits, if the limits of this process do not allow the memory.
void check_memory(Bytes bytes, MemoryCheck check);

}  // namespace terrace
