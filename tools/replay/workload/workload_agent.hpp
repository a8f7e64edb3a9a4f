#pragma once

#include "tools/replay/workload/request_source.hpp"
#include "tools/replay/workload/workload_draws.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <vector>

namespace terrace::tools {

/// Sizes are in tokens, times in milliseconds.
struct AgentModel {
  std::uint32_t preamble = 1500;  ///< shared by all agents
  std::uint32_t kinds = 6;        ///< kinds of agents; each kind has its own tools
  std::uint64_t tools_min = 1000;
  std::uint64_t tools_max = 8000;
  double task_median = 300;
  double task_sigma = 0.8;
  double call_median = 120;  ///< what the model writes in a step: thought and tool call
  double call_sigma = 0.7;
  double observation_median = 450;  ///< what a tool returns: a listing, a file, a test's output
  double observation_sigma = 1.3;
  std::uint32_t text_max = 12'000;
  double steps_mean = 22;
  double tool_time_mean = 3000;
  double task_gap_mean = 4000;
  double fork_chance = 0.04;  ///< in each step of an agent that is no sub-agent
  std::uint64_t forks_max = 3;
  double sub_steps_mean = 6;
  std::uint32_t context_max = 65'536;
};

/// A workload of agents that use tools, made from a seed: an endless stream of requests, the same for the same seed on every
/// platform.
///
/// - A context begins with a preamble that all agents share, and the tools of the agent's kind. The kind follows Zipf's law.
/// - Tasks start as a Poisson process, so several agents run at the same time. The number of an agent's steps is geometrically
///   distributed. Each step sends the whole context: what the step before sent, the tool call that the model wrote, and the
///   observation that came back. So each step reads the context again, and the context grows only at its end.
/// - The lengths of tool calls and observations are log-normal: most observations are short, and some are whole files.
/// - Between two steps there is the time to write the call (25 ms for each token) and the time that the tool takes. The latter is
///   exponentially distributed: seconds, where a person would take minutes.
/// - In some steps an agent starts 1 to 3 sub-agents. Each begins with the agent's present context and a task of its own. They
///   run at the same time. When the last one has ended, the agent continues, with a report of each as its observation. A
///   sub-agent starts no sub-agents.
/// - An agent also ends if its context might exceed the maximum.
///
/// Each full block has an id, and each id always follows the same id. Ids of different seeds differ. Threads: one.
class AgentWorkload final : public RequestSource {
 public:
  AgentWorkload(std::uint64_t seed, std::uint32_t block_tokens, const AgentModel& model = {});

  [[nodiscard]] std::optional<TraceRequest> next() override;

 private:
  using AgentNumber = std::uint64_t;

  struct Agent {
    AgentNumber number = 0;
    double due = 0;  ///< the time of its next request
    WorkloadContext context;
    std::optional<AgentNumber> parent;

    /// The agent with the earliest time is on top of the queue; of two with the same time, the older agent.
    friend bool operator<(const Agent& a, const Agent& b) { return a.due != b.due ? a.due > b.due : a.number > b.number; }
  };

  /// An agent that waits for its sub-agents.
  struct Waiting {
    Agent agent;
    std::uint64_t sub_agents = 0;  ///< number of sub-agents that have not ended
  };

  [[nodiscard]] Agent new_agent();
  void step_on(Agent agent);
  void fork(Agent agent);
  void end(const Agent& agent);
  void grow(Agent& agent, std::uint32_t tokens) { agent.context.grow(tokens, block_tokens_, next_id_); }
  /// Whether two more texts of any length fit.
  [[nodiscard]] bool has_room(const Agent& agent) const;

  AgentModel model_;
  std::uint32_t block_tokens_;
  Random random_;
  std::uint64_t next_id_;
  ZipfDraw draw_kind_;
  std::vector<WorkloadContext> kinds_;  ///< preamble and tools of each kind
  std::priority_queue<Agent> at_work_;
  std::map<AgentNumber, Waiting> waiting_;
  double next_arrival_ = 0;
  AgentNumber agent_count_ = 0;
};

}  // namespace terrace::tools
