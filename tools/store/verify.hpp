#pragma once

#include "terrace/types.hpp"
#include "tools/replay/report/verdict.hpp"

#include <filesystem>

namespace terrace::tools {

struct VerifyOptions {
  unsigned threads = 4;
  BytesPerSecond bandwidth{};  ///< 0 is no limit
  bool json = false;
};

/// Runs `terrace store verify`: reads the data of all blocks and shows a progress line. SIGINT and SIGTERM end it in an orderly
/// way. Throws UsageError if there is no store to read.
[[nodiscard]] ExitStatus verify_store(const std::filesystem::path& directory, const VerifyOptions& options);

}  // namespace terrace::tools
