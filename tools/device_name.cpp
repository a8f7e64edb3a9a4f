#include "tools/device_name.hpp"

#include "runtime/config/table/values.hpp"
#include "tools/usage_error.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace terrace::tools {
namespace {

const char* environment(const char* variable) {
  return std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): no thread changes the environment
}

std::filesystem::path cache_folder() {
  // An empty variable counts as not set.
  if (const char* const set = environment("XDG_CACHE_HOME"); set != nullptr && *set == '/') return set;
  const char* const home = environment("HOME");
  return home != nullptr && *home == '/' ? std::filesystem::path{home} / ".cache" : std::filesystem::path{};
}

}  // namespace

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

std::filesystem::path calibration_file() {
  const std::filesystem::path root = cache_folder();
  if (root.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(root / "terrace", error);
  return error ? std::filesystem::path{} : root / "terrace" / "copy-paths.json";
}

}  // namespace terrace::tools
