#include "tools/calibration_file.hpp"

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

std::filesystem::path calibration_file() {
  const std::filesystem::path root = cache_folder();
  if (root.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(root / "terrace", error);
  return error ? std::filesystem::path{} : root / "terrace" / "copy-paths.json";
}

}  // namespace terrace::tools
