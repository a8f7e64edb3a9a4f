#pragma once

#include "tools/replay/workload/request_source.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace terrace::tools {

/// A built-in workload: an endless stream of requests, made from a seed.
struct Workload {
  std::unique_ptr<RequestSource> requests;
  std::uint32_t context_max = 0;  ///< tokens of the longest possible prompt
};

/// The names that --workload accepts. The first is the default.
inline constexpr std::array<std::string_view, 3> workload_names{"chat", "agent", "rag"};

/// The sizes where the user gives none. Traces with ids of blocks have 512 tokens in each.
inline constexpr std::uint32_t default_trace_block_tokens = 512;
inline constexpr std::uint32_t default_workload_block_tokens = 64;
inline constexpr std::uint64_t default_workload_requests = 2000;

/// `name` must be one of workload_names.
[[nodiscard]] Workload make_workload(std::string_view name, std::uint64_t seed, std::uint32_t block_tokens);

}  // namespace terrace::tools
