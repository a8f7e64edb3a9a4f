#pragma once

#include "terrace/types.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace terrace::tools {

using TracePrompts = std::vector<std::vector<BlockKey>>;

/// The keys of the full blocks of each request of a trace, the first `blocks_max` of a request. Requests without a full block are
/// left out. `block_tokens` divides `trace_block_tokens`: each hash id of the trace becomes several blocks.
///
/// Throws std::invalid_argument for sizes that do not divide, std::runtime_error for a trace without a block, and UsageError for
/// one that cannot be read.
[[nodiscard]] TracePrompts read_prompts(const std::filesystem::path& trace, std::uint32_t trace_block_tokens,
                                        std::uint32_t block_tokens, std::uint32_t blocks_max);
[[nodiscard]] std::uint64_t block_count(const TracePrompts& prompts);

}  // namespace terrace::tools
