#include "tools/replay/workload/workloads.hpp"

#include "base/check.hpp"
#include "base/random.hpp"

#include <boost/random/discrete_distribution.hpp>
#include <boost/random/exponential_distribution.hpp>
#include <boost/random/lognormal_distribution.hpp>
#include <boost/random/uniform_real_distribution.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

// The distributions of the built-in workloads. They are Boost's, which give the same values on every platform.

/// Draws a length in tokens from 1 to `max`. It is log-normal: mostly short, sometimes very long. `sigma` is that of the
/// logarithm.
std::uint32_t draw_length(Random& random, double median, double sigma, std::uint32_t max) {
  const double drawn = boost::random::lognormal_distribution<double>{std::log(median), sigma}(random.engine());
  // exp(log(median)) may be slightly less than the median on some platforms. Without this correction a whole number could lose a
  // token.
  constexpr double rounding = 1e-9;
  return static_cast<std::uint32_t>(std::clamp(drawn + rounding, 1.0, static_cast<double>(max)));
}

/// Draws a time in milliseconds. It is exponentially distributed, like the gaps of a Poisson process.
double draw_time(Random& random, double mean) {
  return boost::random::exponential_distribution<double>{1.0 / mean}(random.engine());
}

/// Draws by Zipf's law: the k-th of `n` in proportion to 1/k. A few are drawn most of the time, and some hardly ever.
class ZipfDraw {
 public:
  explicit ZipfDraw(std::uint32_t n) {
    double sum = 0;
    for (std::uint32_t k = 1; k <= n; ++k) cumulative_.push_back(sum += 1.0 / k);
  }
  /// Returns a number from 0 to n - 1.
  [[nodiscard]] std::uint32_t operator()(Random& random) const {
    const double drawn = boost::random::uniform_real_distribution<double>{0.0, cumulative_.back()}(random.engine());
    return static_cast<std::uint32_t>(std::ranges::upper_bound(cumulative_, drawn) - cumulative_.begin());
  }

 private:
  std::vector<double> cumulative_;  ///< sums of the weights, so that a draw is a binary search
};

/// The context that a request sends: the number of its tokens, and the ids of its full blocks. A block gets its id when it
/// becomes full. So two contexts that differ within a block have different ids from this block on.
struct WorkloadContext {
  std::uint32_t tokens = 0;
  std::vector<std::uint64_t> ids;

  /// Adds tokens that no other context has. Each block that becomes full gets the next id.
  void grow(std::uint32_t more, std::uint32_t block_tokens, std::uint64_t& next_id) {
    tokens += more;
    while (ids.size() < tokens / block_tokens) ids.push_back(next_id++);
  }
  /// The ids of the full blocks but the first `blocks`.
  [[nodiscard]] std::vector<std::uint64_t> ids_after(std::size_t blocks) const {
    return {ids.begin() + static_cast<std::ptrdiff_t>(blocks), ids.end()};
  }
  /// A request that sends this context.
  [[nodiscard]] TraceRequest request(double time_ms, std::uint32_t output_tokens) const {
    return {.timestamp_ms = std::floor(time_ms),
            .input_tokens = tokens,
            .output_tokens = output_tokens,
            .hash_ids = ids,
            .output_ids = {}};
  }
};

/// A chat session or an agent, which sends one request after the other.
struct Sender {
  double due = 0;  ///< the time of its next request
  std::uint64_t number = 0;
  WorkloadContext context;
  std::optional<std::uint64_t> parent{};  ///< of a sub-agent

  /// The one with the earliest time is on top of a queue; of two with the same time, the older one.
  friend bool operator<(const Sender& a, const Sender& b) { return a.due != b.due ? a.due > b.due : a.number > b.number; }
};

/// The first id of a workload. Ids of different seeds are far apart.
[[nodiscard]] constexpr std::uint64_t first_id(std::uint64_t seed) { return seed * 0x9E37'79B9'7F4A'7C15; }

constexpr double writing_ms_per_token = 25;  ///< of the model

constexpr std::uint32_t text_max = 8192;  ///< of a chat

class ChatWorkload final : public RequestSource {
 public:
  ChatWorkload(std::uint64_t seed, std::uint32_t block_tokens, const ChatModel& model)
      : model_{model}, block_tokens_{block_tokens}, random_{seed}, next_id_{first_id(seed)} {
    for (std::uint32_t i = 0; i < model_.system_prompts; ++i) {
      const auto tokens = static_cast<std::uint32_t>(random_.between(model_.system_prompt_min, model_.system_prompt_max));
      system_prompts_.emplace_back().grow(tokens, block_tokens_, next_id_);
      popularity_.push_back(1.0 / (i + 1));
    }
  }

  [[nodiscard]] std::optional<TraceRequest> next() override {
    while (sessions_.empty() || next_arrival_ <= sessions_.top().due) {
      sessions_.push(new_session());
      next_arrival_ += draw_time(random_, model_.session_gap_mean);
    }
    Sender session = sessions_.top();
    sessions_.pop();

    grow(session, draw_text(model_.user_text_median));
    TraceRequest request = session.context.request(session.due, draw_text(model_.reply_median));
    const bool goes_on = random_.chance(1.0 - 1.0 / model_.turns_mean);
    const double next_due =
        session.due + request.output_tokens * writing_ms_per_token + draw_time(random_, model_.think_time_mean);
    if (goes_on && session.context.tokens + request.output_tokens + text_max <= model_.context_max) {
      grow(session, request.output_tokens);
      request.output_ids = session.context.ids_after(request.hash_ids.size());
      session.due = next_due;
      sessions_.push(std::move(session));
    }
    return request;
  }

 private:
  [[nodiscard]] Sender new_session() {
    const auto system_prompt = boost::random::discrete_distribution<std::uint32_t>{popularity_}(random_.engine());
    return {next_arrival_, session_count_++, system_prompts_[system_prompt], {}};
  }
  void grow(Sender& session, std::uint32_t tokens) { session.context.grow(tokens, block_tokens_, next_id_); }
  [[nodiscard]] std::uint32_t draw_text(double median) { return draw_length(random_, median, model_.length_sigma, text_max); }

  const ChatModel model_;
  const std::uint32_t block_tokens_;
  Random random_;
  std::uint64_t next_id_;
  std::vector<WorkloadContext> system_prompts_;
  std::vector<double> popularity_;  ///< of each system prompt
  std::priority_queue<Sender> sessions_;
  double next_arrival_ = 0;
  std::uint64_t session_count_ = 0;
};

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
    Sender agent = at_work_.top();
    at_work_.pop();

    TraceRequest request = agent.context.request(agent.due, draw_text(model_.call_median, model_.call_sigma));
    grow(agent, request.output_tokens);
    request.output_ids = agent.context.ids_after(request.hash_ids.size());
    agent.due += request.output_tokens * writing_ms_per_token;
    step_on(std::move(agent));
    return request;
  }

 private:
  /// An agent that waits for its sub-agents.
  struct Waiting {
    Sender agent;
    std::uint64_t sub_agents = 0;  ///< number of sub-agents that have not ended
  };

  [[nodiscard]] Sender new_agent() {
    Sender agent{next_arrival_, agent_count_++, kinds_[draw_kind_(random_)], {}};
    grow(agent, draw_task());
    return agent;
  }

  /// Decides what follows a step. The call of this step is already part of the context.
  void step_on(Sender agent) {
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

  void fork(Sender agent) {
    const std::uint64_t sub_agents = random_.between(1, model_.forks_max);
    for (std::uint64_t i = 0; i < sub_agents; ++i) {
      Sender sub_agent = agent;
      sub_agent.number = agent_count_++;
      sub_agent.parent = agent.number;
      grow(sub_agent, draw_task());
      at_work_.push(std::move(sub_agent));
    }
    const std::uint64_t number = agent.number;
    waiting_.emplace(number, Waiting{std::move(agent), sub_agents});
  }

  /// Ends an agent. A sub-agent adds a report to its parent's context; the parent continues after its last sub-agent.
  void end(const Sender& agent) {
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

  void grow(Sender& agent, std::uint32_t tokens) { agent.context.grow(tokens, block_tokens_, next_id_); }
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
  std::priority_queue<Sender> at_work_;
  std::map<std::uint64_t, Waiting> waiting_;
  double next_arrival_ = 0;
  std::uint64_t agent_count_ = 0;
};

class RagWorkload final : public RequestSource {
 public:
  RagWorkload(std::uint64_t seed, std::uint32_t block_tokens, const RagModel& model)
      : model_{model}, block_tokens_{block_tokens}, random_{seed}, next_id_{first_id(seed)}, draw_document_{model.documents} {
    preamble_.grow(model_.preamble, block_tokens_, next_id_);
    for (std::uint32_t i = 0; i < model_.documents; ++i) {
      document_tokens_.push_back(draw_length(random_, model_.document_median, model_.document_sigma, model_.document_max));
    }
  }

  [[nodiscard]] std::optional<TraceRequest> next() override {
    WorkloadContext context = preamble_;
    Place place = 0;
    for (const Document document : draw_documents()) append(context, place, document);
    context.grow(draw_length(random_, model_.question_median, model_.question_sigma, model_.question_max), block_tokens_,
                 next_id_);

    TraceRequest request =
        context.request(now_, draw_length(random_, model_.answer_median, model_.answer_sigma, model_.answer_max));
    now_ += draw_time(random_, model_.gap_mean);
    return request;
  }

 private:
  using Document = std::uint32_t;
  using Place = std::uint64_t;  ///< a sequence of documents, numbered in the order in which they first appear; 0: no document yet

  /// A document after a certain sequence of documents.
  struct Placed {
    Place place = 0;
    std::uint64_t first_id = 0;  ///< the id of the first block that it fills; the following blocks have the following ids
  };

  [[nodiscard]] std::vector<Document> draw_documents() {
    const std::size_t count = std::min(draw_count(), model_.documents);
    std::vector<Document> documents;
    while (documents.size() < count) {
      const Document document = draw_document_(random_);
      if (std::ranges::find(documents, document) == documents.end()) documents.push_back(document);
    }
    // The drawn order prefers no document: the first one is simply the first that was drawn.
    if (random_.chance(model_.best_first_chance)) std::ranges::sort(documents);
    return documents;
  }

  [[nodiscard]] std::uint32_t draw_count() {
    std::uint32_t count = 1;
    double left = 1;
    for (; count < RagModel::documents_per_request_max; ++count) {
      const double chance = model_.document_counts[count - 1];
      if (random_.chance(chance / left)) break;
      left -= chance;
    }
    return count;
  }

  /// Appends the document. If it was appended at this place before, its blocks have the same ids as then.
  void append(WorkloadContext& context, Place& place, Document document) {
    const auto [at, is_new] = placed_.try_emplace({place, document}, Placed{placed_.size() + 1, next_id_});
    std::uint64_t id = at->second.first_id;
    context.grow(document_tokens_[document], block_tokens_, is_new ? next_id_ : id);
    place = at->second.place;
  }

  const RagModel model_;
  const std::uint32_t block_tokens_;
  Random random_;
  std::uint64_t next_id_;
  ZipfDraw draw_document_;
  WorkloadContext preamble_;
  std::vector<std::uint32_t> document_tokens_;
  std::map<std::pair<Place, Document>, Placed> placed_;
  double now_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> chat_workload(std::uint64_t seed, std::uint32_t block_tokens, const ChatModel& model) {
  return std::make_unique<ChatWorkload>(seed, block_tokens, model);
}

std::unique_ptr<RequestSource> agent_workload(std::uint64_t seed, std::uint32_t block_tokens, const AgentModel& model) {
  return std::make_unique<AgentWorkload>(seed, block_tokens, model);
}

std::unique_ptr<RequestSource> rag_workload(std::uint64_t seed, std::uint32_t block_tokens, const RagModel& model) {
  return std::make_unique<RagWorkload>(seed, block_tokens, model);
}

Workload make_workload(std::string_view name, std::uint64_t seed, std::uint32_t block_tokens) {
  if (name == "agent") return {agent_workload(seed, block_tokens), AgentModel{}.context_max};
  if (name == "rag") return {rag_workload(seed, block_tokens), RagModel{}.context_max()};
  TERRACE_CHECK(name == "chat");
  return {chat_workload(seed, block_tokens), ChatModel{}.context_max};
}

}  // namespace terrace::tools
