#pragma once

#include <string>

namespace terrace::tools {

/// `--device`, as far as this build has the device.
struct DeviceChoice {
  enum class Kind : unsigned char { emulated };

  Kind kind = Kind::emulated;
};

/// Reads `emulated` or `cuda[:N]`. Throws UsageError for anything else, and for what this build does not have.
[[nodiscard]] DeviceChoice parse_device(const std::string& text);

}  // namespace terrace::tools
