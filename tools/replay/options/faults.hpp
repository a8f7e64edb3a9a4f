#pragma once

#include "transfer/emulated/emulated_device.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::tools {

/// A fault planted in the emulated device, to show that the verification detects it.
enum class Fault : unsigned char {
  none,
  flip,      ///< flips one bit in every 7th block that is swapped out
  late,      ///< reports every 5th swap-in as done before its bytes have moved
  no_fence,  ///< copies do not wait for the computation, which starts each work late; leases end when work is launched
};

[[nodiscard]] std::string_view to_string(Fault fault);
[[nodiscard]] EmulatedFaults emulated(Fault fault);
/// The unit of planted faults in messages: "blocks" or "copies".
[[nodiscard]] std::string_view planted_unit(Fault fault);

}  // namespace terrace::tools
