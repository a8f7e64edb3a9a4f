#include "tools/replay/workload/workload_draws.hpp"
#include "tools/replay/workload/workloads.hpp"

#include <boost/random/discrete_distribution.hpp>

#include <cmath>
#include <queue>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

constexpr double reply_ms_per_token = 25;
constexpr std::uint32_t text_max = 8192;

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
    Session session = sessions_.top();
    sessions_.pop();

    grow(session, draw_text(model_.user_text_median));
    TraceRequest request;
    request.timestamp_ms = std::floor(session.due);
    request.input_tokens = session.context.tokens;
    request.output_tokens = draw_text(model_.reply_median);
    request.hash_ids = session.context.ids;

    const bool goes_on = random_.chance(1.0 - 1.0 / model_.turns_mean);
    const double next_due = session.due + request.output_tokens * reply_ms_per_token + draw_time(random_, model_.think_time_mean);
    if (goes_on && session.context.tokens + request.output_tokens + text_max <= model_.context_max) {
      grow(session, request.output_tokens);
      request.output_ids = session.context.ids_after(request.hash_ids.size());
      session.due = next_due;
      sessions_.push(std::move(session));
    }
    return request;
  }

 private:
  struct Session {
    double due = 0;  ///< the time of its next request
    std::uint64_t number = 0;
    WorkloadContext context;

    /// The session with the earliest time is on top of the queue; of two with the same time, the older session.
    friend bool operator<(const Session& a, const Session& b) { return a.due != b.due ? a.due > b.due : a.number > b.number; }
  };

  [[nodiscard]] Session new_session() {
    const auto system_prompt = boost::random::discrete_distribution<std::uint32_t>{popularity_}(random_.engine());
    return {next_arrival_, session_count_++, system_prompts_[system_prompt]};
  }
  void grow(Session& session, std::uint32_t tokens) { session.context.grow(tokens, block_tokens_, next_id_); }
  [[nodiscard]] std::uint32_t draw_text(double median) { return draw_length(random_, median, model_.length_sigma, text_max); }

  const ChatModel model_;
  const std::uint32_t block_tokens_;
  Random random_;
  std::uint64_t next_id_;
  std::vector<WorkloadContext> system_prompts_;
  std::vector<double> popularity_;  ///< of each system prompt
  std::priority_queue<Session> sessions_;
  double next_arrival_ = 0;
  std::uint64_t session_count_ = 0;
};

}  // namespace

std::unique_ptr<RequestSource> chat_workload(std::uint64_t seed, std::uint32_t block_tokens, const ChatModel& model) {
  return std::make_unique<ChatWorkload>(seed, block_tokens, model);
}

}  // namespace terrace::tools
