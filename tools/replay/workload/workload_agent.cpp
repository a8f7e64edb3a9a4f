#include "tools/replay/workload/workload_draws.hpp"
#include "tools/replay/workload/workloads.hpp"

#include <cmath>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

constexpr double call_ms_per_token = 25;

class AgentWorkload final : public RequestSource {
 public:
  AgentWorkload(std::uint64_t seed, std::uint32_t block_tokens, const AgentModel& model)
      : model_{model}, block_tokens_{block_tokens}, random_{seed}, next_id_{first_id(seed)}, draw_kind_{model.kinds} {
    WorkloadContext preamble;
    preamble.grow(model_.preamble, block_tokens_, next_id_);
    for (std::uint32_t i = 0; i < model_.kinds; ++i) {
      const auto tools = static_cast<std::uint32_t>(random_.between(model_.tools_min, model_.tools_max));
      kinds_.emplace_back(preamble).grow(tools, block_tokens_, next_id_);
    }
  }

  [[nodiscard]] std::optional<TraceRequest> next() override {
    while (at_work_.empty() || next_arrival_ <= at_work_.top().due) {
      at_work_.push(new_agent());
      next_arrival_ += draw_time(random_, model_.task_gap_mean);
    }
    Agent agent = at_work_.top();
    at_work_.pop();

    TraceRequest request;
    request.timestamp_ms = std::floor(agent.due);
    request.input_tokens = agent.context.tokens;
    request.output_tokens = draw_text(model_.call_median, model_.call_sigma);
    request.hash_ids = agent.context.ids;
    grow(agent, request.output_tokens);
    request.output_ids = agent.context.ids_after(request.hash_ids.size());
    agent.due += request.output_tokens * call_ms_per_token;
    step_on(std::move(agent));
    return request;
  }

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

  [[nodiscard]] Agent new_agent() {
    Agent agent{agent_count_++, next_arrival_, kinds_[draw_kind_(random_)], std::nullopt};
    grow(agent, draw_task());
    return agent;
  }

  /// Decides what follows a step. The call of this step is already part of the context.
  void step_on(Agent agent) {
    const double steps_mean = agent.parent ? model_.sub_steps_mean : model_.steps_mean;
    // Two more texts of any length must fit.
    const bool has_room = agent.context.tokens + 2 * model_.text_max <= model_.context_max;
    if (random_.chance(1.0 / steps_mean) || !has_room) {
      end(agent);
    } else if (!agent.parent && random_.chance(model_.fork_chance)) {
      fork(std::move(agent));
    } else {
      grow(agent, draw_text(model_.observation_median, model_.observation_sigma));
      agent.due += draw_time(random_, model_.tool_time_mean);
      at_work_.push(std::move(agent));
    }
  }

  void fork(Agent agent) {
    const std::uint64_t sub_agents = random_.between(1, model_.forks_max);
    for (std::uint64_t i = 0; i < sub_agents; ++i) {
      Agent sub_agent = agent;
      sub_agent.number = agent_count_++;
      sub_agent.parent = agent.number;
      grow(sub_agent, draw_task());
      at_work_.push(std::move(sub_agent));
    }
    const AgentNumber number = agent.number;
    waiting_.emplace(number, Waiting{std::move(agent), sub_agents});
  }

  /// Ends an agent. A sub-agent adds a report to its parent's context; the parent continues after its last sub-agent.
  void end(const Agent& agent) {
    if (!agent.parent) return;
    const auto found = waiting_.find(*agent.parent);
    Waiting& parent = found->second;
    // all reports together are one text
    const std::uint32_t longest = model_.text_max / static_cast<std::uint32_t>(model_.forks_max);
    grow(parent.agent, draw_length(random_, model_.task_median, model_.task_sigma, longest));
    if (--parent.sub_agents > 0) return;
    parent.agent.due = agent.due;
    at_work_.push(std::move(parent.agent));
    waiting_.erase(found);
  }

  void grow(Agent& agent, std::uint32_t tokens) { agent.context.grow(tokens, block_tokens_, next_id_); }
  [[nodiscard]] std::uint32_t draw_task() { return draw_text(model_.task_median, model_.task_sigma); }
  [[nodiscard]] std::uint32_t draw_text(double median, double sigma) {
    return draw_length(random_, median, sigma, model_.text_max);
  }

  const AgentModel model_;
  const std::uint32_t block_tokens_;
  Random random_;
  std::uint64_t next_id_;
  ZipfDraw draw_kind_;
  std::vector<WorkloadContext> kinds_;  ///< preamble and tools of each kind
  std::priority_queue<Agent> at_work_;
  std::map<AgentNumber, Waiting> waiting_;
  double next_arrival_ = 0;
  AgentNumber agent_count_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> agent_workload(std::uint64_t seed, std::uint32_t block_tokens, const AgentModel& model) {
  return std::make_unique<AgentWorkload>(seed, block_tokens, model);
}

}  // namespace terrace::tools
