#include "capi/open.hpp"

#include <stdexcept>

namespace terrace::capi {

Config read_config(const terrace_open_options& options) {
  if (options.config == nullptr) throw std::invalid_argument{"terrace_open_options: config is null"};
  if (options.regions == nullptr && options.region_count > 0) {
    throw std::invalid_argument{"terrace_open_options: regions is null, and region_count is not 0"};
  }
  Config config;
  config.read_text(options.config, options.config_name == nullptr ? "configuration" : options.config_name);
  return config;
}

}  // namespace terrace::capi
