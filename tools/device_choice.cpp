#include "tools/device_choice.hpp"

#include "tools/replay/usage_error.hpp"

#include <fmt/format.h>

namespace terrace::tools {

DeviceChoice parse_device(const std::string& text) {
  if (text == "emulated") return {DeviceChoice::Kind::emulated};
  if (text == "cuda" || text.starts_with("cuda:")) {
    throw UsageError{fmt::format("--device {}: this build has no CUDA device; there is: emulated", text)};
  }
  throw UsageError{fmt::format("--device: there is no \"{}\"; there is: emulated", text)};
}

}  // namespace terrace::tools
