#include "tools/replay/workload/workload_agent.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace terrace::tools {
namespace {

constexpr double call_ms_per_token = 25;

}  // namespace

AgentWorkload::AgentWorkload(std::uint64_t seed, std::uint32_t block_tokens, const AgentModel& model)
    : model_{model}, block_tokens_{block_tokens}, random_{seed}, next_id_{first_id(seed)}, draw_kind_{model.kinds} {
  WorkloadContext preamble;
  preamble.grow(model_.preamble, block_tokens_, next_id_);
  for (std::uint32_t i = 0; i < model_.kinds; ++i) {
    WorkloadContext kind = preamble;
    const auto tools = static_cast<std::uint32_t>(random_.between(model_.tools_min, model_.tools_max));
    kind.grow(tools, block_tokens_, next_id_);
    kinds_.push_back(std::move(kind));
  }
}

std::optional<TraceRequest> AgentWorkload::next() {
  while (at_work_.empty() || next_arrival_ <= at_work_.top().due) {
    at_work_.push(new_agent());
    next_arrival_ += draw_time(random_, model_.task_gap_mean);
  }
  Agent agent = at_work_.top();
  at_work_.pop();

  TraceRequest request;
  request.timestamp_ms = std::floor(agent.due);
  request.input_tokens = agent.context.tokens;
  request.output_tokens = draw_length(random_, model_.call_median, model_.call_sigma, model_.text_max);
  request.hash_ids = agent.context.ids;
  grow(agent, request.output_tokens);
  request.output_ids.assign(agent.context.ids.begin() + static_cast<std::ptrdiff_t>(request.hash_ids.size()),
                            agent.context.ids.end());
  agent.due += request.output_tokens * call_ms_per_token;
  step_on(std::move(agent));
  return request;
}

AgentWorkload::Agent AgentWorkload::new_agent() {
  Agent agent;
  agent.number = agent_count_++;
  agent.due = next_arrival_;
  agent.context = kinds_[draw_kind_(random_)];
  grow(agent, draw_length(random_, model_.task_median, model_.task_sigma, model_.text_max));
  return agent;
}

/// Decides what follows a step. The call of this step is already part of the context.
void AgentWorkload::step_on(Agent agent) {
  const double steps_mean = agent.parent ? model_.sub_steps_mean : model_.steps_mean;
  const bool ends = random_.chance(1.0 / steps_mean) || !has_room(agent);
  if (ends) {
    end(agent);
  } else if (!agent.parent && random_.chance(model_.fork_chance)) {
    fork(std::move(agent));
  } else {
    grow(agent, draw_length(random_, model_.observation_median, model_.observation_sigma, model_.text_max));
    agent.due += draw_time(random_, model_.tool_time_mean);
    at_work_.push(std::move(agent));
  }
}

void AgentWorkload::fork(Agent agent) {
  const std::uint64_t sub_agents = random_.between(1, model_.forks_max);
  for (std::uint64_t i = 0; i < sub_agents; ++i) {
    Agent sub_agent = agent;
    sub_agent.number = agent_count_++;
    sub_agent.parent = agent.number;
    grow(sub_agent, draw_length(random_, model_.task_median, model_.task_sigma, model_.text_max));
    at_work_.push(std::move(sub_agent));
  }
  const AgentNumber number = agent.number;
  waiting_.emplace(number, Waiting{std::move(agent), sub_agents});
}

/// Ends an agent. A sub-agent adds a report to its parent's context; the parent continues after its last sub-agent.
void AgentWorkload::end(const Agent& agent) {
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

bool AgentWorkload::has_room(const Agent& agent) const {
  return agent.context.tokens + 2 * model_.text_max <= model_.context_max;
}

}  // namespace terrace::tools
