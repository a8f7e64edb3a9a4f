#include "lab/index/trace_prompts.hpp"

#include "terrace/keys.hpp"
#include "tools/replay/engine/key_maker.hpp"
#include "tools/replay/workload/trace_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>

namespace terrace::tools {

TracePrompts read_prompts(const std::filesystem::path& trace_file, std::uint32_t trace_block_tokens, std::uint32_t block_tokens,
                          std::uint32_t blocks_max) {
  if (trace_block_tokens % block_tokens != 0) {
    throw std::invalid_argument{fmt::format("--block-tokens {}: must divide the trace's {}", block_tokens, trace_block_tokens)};
  }
  const std::uint32_t parts = trace_block_tokens / block_tokens;
  KeyMaker keys{root_key({})};
  TraceReader trace{TraceFile{trace_file}, trace_block_tokens};
  TracePrompts prompts;
  std::vector<std::uint64_t> ids;
  while (const auto request = trace.next()) {
    ids.clear();
    for (std::uint32_t i = 0; i < request->input_tokens / block_tokens && i / parts < request->hash_ids.size(); ++i) {
      ids.push_back(request->hash_ids[i / parts] * parts + i % parts);
    }
    ids.resize(std::min<std::size_t>(ids.size(), blocks_max));
    if (!ids.empty()) prompts.push_back(keys.keys(ids));
  }
  if (prompts.empty()) throw std::runtime_error{fmt::format("{}: no request has a full block", trace_file.string())};
  return prompts;
}

std::uint64_t block_count(const TracePrompts& prompts) {
  std::uint64_t blocks = 0;
  for (const auto& prompt : prompts) blocks += prompt.size();
  return blocks;
}

}  // namespace terrace::tools
