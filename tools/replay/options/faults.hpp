#pragma once

#include "transfer/emulated/emulated_device.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::tools {

/// A fault planted in the emulated device, to see that the verification catches it.
enum class Fault : unsigned char {
  none,
  flip,      ///< a bit of every 7th block that is swapped out turns over
  late,      ///< every 5th swap-in is reported done before its bytes have moved
  no_fence,  ///< copies do not wait for compute, which begins each work late; leases end as work is launched
};

[[nodiscard]] std::string_view to_string(Fault fault);
[[nodiscard]] EmulatedFaults emulated(Fault fault);
/// What counts as planted, for messages: blocks or copies.
[[nodiscard]] std::string_view planted_unit(Fault fault);

}  // namespace terrace::tools
