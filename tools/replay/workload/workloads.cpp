#include "tools/replay/workload/workloads.hpp"

#include "base/check.hpp"
#include "tools/replay/workload/workload_agent.hpp"
#include "tools/replay/workload/workload_chat.hpp"
#include "tools/replay/workload/workload_rag.hpp"

namespace terrace::tools {

Workload make_workload(std::string_view name, std::uint64_t seed, std::uint32_t block_tokens) {
  if (name == "agent") return {std::make_unique<AgentWorkload>(seed, block_tokens), AgentModel{}.context_max};
  if (name == "rag") return {std::make_unique<RagWorkload>(seed, block_tokens), RagModel{}.context_max()};
  TERRACE_CHECK(name == "chat");
  return {std::make_unique<ChatWorkload>(seed, block_tokens), ChatModel{}.context_max};
}

}  // namespace terrace::tools
