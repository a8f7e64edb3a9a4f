#include "tools/device_name.hpp"

#include "tools/replay/usage_error.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace terrace::tools {

std::optional<int> parse_cuda(const std::string& option, const std::string& word) {
  if (word == "emulated") return std::nullopt;
  int ordinal = 0;
  bool understood = word == "cuda";
  constexpr std::string_view prefix = "cuda:";
  if (word.starts_with(prefix)) {
    const char* const end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data() + prefix.size(), end, ordinal);
    understood = error == std::errc{} && rest == end && ordinal >= 0;
  }
  if (!understood) throw UsageError{fmt::format("{}: there is no \"{}\"; there is: emulated, cuda, cuda:N", option, word)};
  if (const auto why = CudaDevice::unavailable(ordinal)) {
    throw UsageError{fmt::format("{} {}: {}; emulated works everywhere", option, word, *why)};
  }
  return ordinal;
}

std::string device_name(std::optional<int> cuda) { return cuda ? fmt::format("cuda:{}", *cuda) : "emulated"; }

}  // namespace terrace::tools
