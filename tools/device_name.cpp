#include "tools/device_name.hpp"

#include "tools/usage_error.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <algorithm>
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

std::vector<std::optional<int>> parse_devices(const std::string& option, const std::string& words,
                                              std::optional<std::uint32_t> ranks) {
  std::vector<std::optional<int>> devices;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    devices.push_back(parse_cuda(option, words.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (!ranks || *ranks == devices.size()) return devices;
  if (devices.size() > 1) {
    throw UsageError{fmt::format("{} names {} devices, for {} rank{}", option, devices.size(), *ranks, *ranks == 1 ? "" : "s")};
  }
  const std::optional<int> first = devices.front();
  for (std::uint32_t rank = 1; rank < *ranks; ++rank) {
    devices.push_back(first ? std::optional{*first + static_cast<int>(rank)} : std::nullopt);
    if (!first) continue;
    if (const auto why = CudaDevice::unavailable(*devices.back())) {
      throw UsageError{fmt::format("{} {} for {} ranks: {}; several may be on one GPU: {} {},{}", option, words, *ranks, *why,
                                   option, device_name(first), device_name(first))};
    }
  }
  return devices;
}

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
