#pragma once

#include "tools/replay/workload/request_source.hpp"
#include "tools/replay/workload/workload_draws.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <vector>

namespace terrace::tools {

/// Sizes are tokens, times milliseconds.
struct AgentModel {
  std::uint32_t preamble = 1500;  ///< shared by all
  std::uint32_t kinds = 6;        ///< of agents: each has tools of its own
  std::uint64_t tools_min = 1000;
  std::uint64_t tools_max = 8000;
  double task_median = 300;
  double task_sigma = 0.8;
  double call_median = 120;  ///< what the model writes at a step: thought and tool call
  double call_sigma = 0.7;
  double observation_median = 450;  ///< what comes back: a listing, a file, a test's output
  double observation_sigma = 1.3;
  std::uint32_t text_max = 12'000;
  double steps_mean = 22;
  double tool_time_mean = 3000;
  double task_gap_mean = 4000;
  double fork_chance = 0.04;  ///< at a step of an agent that is not itself a sub-agent
  std::uint64_t forks_max = 3;
  double sub_steps_mean = 6;
  std::uint32_t context_max = 65'536;
};

/// Agents at work, made from a seed: an endless stream of requests, the same for the same seed on every platform.
///
/// - A context begins with a preamble that all agents share, and the tools of the agent's kind. Which kind follows Zipf's law.
/// - Tasks begin as a Poisson process, so that several agents are interleaved. An agent has a geometrically distributed number
///   of steps. Each step sends the whole context: what the step before sent, the tool call that the model wrote, and the
///   observation that came back. So a context is read again at each step, and grows at its end alone.
/// - Tool calls and observations are log-normal: most observations are short, some are whole files.
/// - Between two steps lie the time to write the call (25 ms a token) and the time that the tool takes, exponentially
///   distributed: seconds, where a person takes minutes.
/// - At some steps an agent hands over to 1 to 3 sub-agents. They begin with its context as it is, each with a task of its own
///   behind it, and run at the same time. When the last has ended, the agent goes on, with a report of each as its observation.
///   Sub-agents have none of their own.
/// - An agent also ends where its context might pass the longest one.
///
/// A full block has an id, and every id one predecessor; ids of different seeds differ. Threads: one.
class AgentWorkload final : public RequestSource {
 public:
  AgentWorkload(std::uint64_t seed, std::uint32_t block_tokens, const AgentModel& model = {});

  [[nodiscard]] std::optional<TraceRequest> next() override;

 private:
  using AgentNumber = std::uint64_t;

  struct Agent {
    AgentNumber number = 0;
    double due = 0;  ///< when its next request comes
    WorkloadContext context;
    std::optional<AgentNumber> parent;

    /// The earliest on top of the queue; the older agent where two are due at once.
    friend bool operator<(const Agent& a, const Agent& b) { return a.due != b.due ? a.due > b.due : a.number > b.number; }
  };

  /// An agent that waits for its sub-agents.
  struct Waiting {
    Agent agent;
    std::uint64_t sub_agents = 0;  ///< still at work
  };

  [[nodiscard]] Agent new_agent();
  void step_on(Agent agent);
  void fork(Agent agent);
  void end(const Agent& agent);
  void grow(Agent& agent, std::uint32_t tokens) { agent.context.grow(tokens, block_tokens_, next_id_); }
  /// Whether two more texts fit for certain.
  [[nodiscard]] bool has_room(const Agent& agent) const;

  AgentModel model_;
  std::uint32_t block_tokens_;
  Random random_;
  std::uint64_t next_id_;
  ZipfDraw draw_kind_;
  std::vector<WorkloadContext> kinds_;  ///< preamble and tools
  std::priority_queue<Agent> at_work_;
  std::map<AgentNumber, Waiting> waiting_;
  double next_arrival_ = 0;
  AgentNumber agent_count_ = 0;
};

}  // namespace terrace::tools
