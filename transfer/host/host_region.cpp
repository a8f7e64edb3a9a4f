#include "terrace/host_memory.hpp"

#include "base/failure.hpp"
#include "transfer/host/first_touch.hpp"
#include "transfer/host/mapping.hpp"
#include "transfer/host/memory_limits.hpp"
#include "transfer/host/region_memory.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <system_error>

namespace terrace {

Result<void> check_rows(const HostRows& rows) {
  if (rows.address == nullptr) return failure<Errc::invalid_argument, "the address of the rows is null">;
  if (rows.count == 0 || count(rows.row_bytes) == 0)
    return failure<Errc::invalid_argument, "there are no rows, or they are empty">;
  if (rows.stride() < rows.row_bytes) {
    return failure<Errc::invalid_argument, "the stride is less than a row: 0 puts the rows side by side">;
  }
  const std::uint64_t end = std::numeric_limits<std::uint64_t>::max() - reinterpret_cast<std::uintptr_t>(rows.address);
  // The product is computed only if it fits.
  const std::uint64_t between = rows.count - 1;
  const bool fits =
      count(rows.row_bytes) <= end && (between == 0 || count(rows.stride()) <= (end - count(rows.row_bytes)) / between);
  if (!fits) return failure<Errc::invalid_argument, "the rows end beyond what an address can name">;
  return {};
}

Bytes region_stride(std::uint32_t rows, Bytes row_bytes, Bytes row_stride) {
  const std::uint64_t bytes = count(row_bytes);
  if (rows == 0 || bytes == 0) throw std::invalid_argument{"a region needs at least one row of at least one byte"};
  std::uint64_t stride = count(row_stride);
  if (stride == 0 && bytes <= region_bytes_max) stride = (bytes + region_alignment - 1) / region_alignment * region_alignment;
  if (bytes > region_bytes_max || stride > region_bytes_max / rows) {
    throw std::invalid_argument{
        fmt::format("a region of {} rows of {} is more than a process can address", rows, to_string(row_bytes))};
  }
  if (stride < bytes) {
    throw std::invalid_argument{
        fmt::format("a region's row stride of {} is less than its rows of {}", to_string(Bytes{stride}), to_string(row_bytes))};
  }
  return Bytes{stride};
}

void check_memory(Bytes bytes, MemoryCheck check) {
  if (check == MemoryCheck::no) return;
  const MemoryRequest request{.bytes = bytes, .unit = Bytes{region_alignment}, .spare = MiB * 64};
  if (const auto refusal = preflight(request, read_memory_limits())) {
    throw std::runtime_error{fmt::format("a region of {}: {}", to_string(bytes), refusal->sentence)};
  }
}

struct PrivateRegion::State {
  Mapping mapping;
  HostRows rows;
};

PrivateRegion::PrivateRegion(std::uint32_t rows, Bytes row_bytes, MemoryCheck check) : state_{std::make_unique<State>()} {
  const Bytes stride = region_stride(rows, row_bytes, {});
  check_memory(stride * rows, check);
  state_->mapping = Mapping::reserve(stride * rows, "a private region");
  const FirstTouch touched = first_touch(state_->mapping.bytes(), {});
  if (touched.error != 0) {
    throw std::system_error{touched.error, std::generic_category(),
                            fmt::format("a private region: cannot touch {}", to_string(stride * rows))};
  }
  state_->rows = {state_->mapping.bytes().data(), rows, row_bytes, stride};
}

PrivateRegion::~PrivateRegion() = default;

const HostRows& PrivateRegion::rows() const { return state_->rows; }

}  // namespace terrace
