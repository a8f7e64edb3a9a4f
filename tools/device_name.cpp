#include "tools/device_name.hpp"

#include "runtime/config/table/values.hpp"
#include "tools/usage_error.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace terrace::tools {

std::optional<int> parse_cuda(const std::string& option, const std::string& word) {
  const std::string device = as_usage([&] { return config::read_device(option, word); });
  constexpr std::string_view prefix = "cuda:";
  if (!device.starts_with(prefix)) return std::nullopt;
  int ordinal = 0;
  std::from_chars(device.data() + prefix.size(), device.data() + device.size(), ordinal);
  if (const auto why = CudaDevice::unavailable(ordinal)) throw UsageError{unusable_device(option, ordinal, *why)};
  return ordinal;
}

std::string unusable_device(const std::string& option, int cuda, const std::string& why) {
  return fmt::format("{} {}: {}; emulated works everywhere", option, device_name(cuda), why);
}

std::string device_name(std::optional<int> cuda) { return cuda ? fmt::format("cuda:{}", *cuda) : "emulated"; }

std::string device_names(std::span<const std::optional<int>> devices) {
  const bool all_emulated = std::ranges::none_of(devices, [](const auto& cuda) { return cuda.has_value(); });
  std::string names;
  for (const std::optional<int> device : all_emulated ? devices.first(1) : devices) {
    if (!names.empty()) names += ',';
    names += device_name(device);
  }
  return names;
}

}  // namespace terrace::tools
