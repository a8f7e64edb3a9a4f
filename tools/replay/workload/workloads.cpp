#include "tools/replay/workload/workloads.hpp"

#include "base/check.hpp"

namespace terrace::tools {

Workload make_workload(std::string_view name, std::uint64_t seed, std::uint32_t block_tokens) {
  if (name == "agent") return {agent_workload(seed, block_tokens), AgentModel{}.context_max};
  if (name == "rag") return {rag_workload(seed, block_tokens), RagModel{}.context_max()};
  TERRACE_CHECK(name == "chat");
  return {chat_workload(seed, block_tokens), ChatModel{}.context_max};
}

}  // namespace terrace::tools
