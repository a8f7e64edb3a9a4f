#pragma once

#include "base/bytes.hpp"
#include "tools/replay/report/verdict.hpp"

#include <filesystem>

namespace terrace::tools {

struct VerifyOptions {
  unsigned threads = 4;
  Bytes bandwidth{};  ///< a second; 0: any
  bool json = false;
};

/// `terrace store verify`: all data, with a progress line; SIGINT and SIGTERM end it in good order. Throws UsageError where
/// there is no store to look into.
[[nodiscard]] ExitStatus verify_store(const std::filesystem::path& directory, const VerifyOptions& options);

}  // namespace terrace::tools
