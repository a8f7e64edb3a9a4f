#pragma once

#include "terrace.h"
#include "terrace/config.hpp"
#include "terrace/log.hpp"

#include <cstddef>
#include <stdexcept>
#include <string_view>

namespace terrace::capi {

/// Passes the messages of a log to a C function.
class FunctionSink final : public LogSink {
 public:
  FunctionSink(terrace_log_function function, void* context) : function_{function}, context_{context} {}

  void write(LogLevel level, std::string_view sentence) override {
    function_(context_, static_cast<int32_t>(level), sentence.data(), sentence.size());
  }

 private:
  terrace_log_function function_;
  void* context_;
};

/// Reads the configuration text of the options. Throws ConfigError.
[[nodiscard]] inline Config read_config(const terrace_open_options& options) {
  if (options.config == nullptr) throw std::invalid_argument{"terrace_open_options: config is null"};
  if (options.regions == nullptr && options.region_count > 0) {
    throw std::invalid_argument{"terrace_open_options: regions is null, and region_count is not 0"};
  }
  Config config;
  config.read_text(options.config, options.config_name == nullptr ? "configuration" : options.config_name);
  return config;
}

/// The size of terrace_open_options before host rows were added, which later libraries also accept.
inline constexpr std::size_t open_options_size = offsetof(terrace_open_options, host_rows);

}  // namespace terrace::capi
