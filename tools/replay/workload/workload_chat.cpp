#include "tools/replay/workload/workload_chat.hpp"

#include "tools/replay/workload/workload_draws.hpp"

#include <boost/random/discrete_distribution.hpp>
#include <cmath>

namespace terrace::tools {
namespace {

constexpr double reply_ms_per_token = 25;
constexpr std::uint32_t text_max = 8192;

}  // namespace

ChatWorkload::ChatWorkload(std::uint64_t seed, std::uint32_t block_tokens, const ChatModel& model)
    : model_{model}, block_tokens_{block_tokens}, random_{seed}, next_id_{first_id(seed)} {
  for (std::uint32_t i = 0; i < model_.system_prompts; ++i) {
    const auto tokens = static_cast<std::uint32_t>(random_.between(model_.system_prompt_min, model_.system_prompt_max));
    std::vector<std::uint64_t> ids(tokens / block_tokens_);
    for (std::uint64_t& id : ids) id = next_id_++;
    system_tokens_.push_back(tokens);
    system_ids_.push_back(std::move(ids));
    popularity_.push_back(1.0 / (i + 1));
  }
}

std::optional<TraceRequest> ChatWorkload::next() {
  while (sessions_.empty() || next_arrival_ <= sessions_.top().due) {
    sessions_.push(new_session());
    next_arrival_ += draw_time(random_, model_.session_gap_mean);
  }
  Session session = sessions_.top();
  sessions_.pop();

  grow(session, draw_text(model_.user_text_median));
  TraceRequest request;
  request.timestamp_ms = std::floor(session.due);
  request.input_tokens = session.context;
  request.output_tokens = draw_text(model_.reply_median);
  request.hash_ids = session.ids;

  const bool goes_on = random_.chance(1.0 - 1.0 / model_.turns_mean);
  const double next_due = session.due + request.output_tokens * reply_ms_per_token + draw_time(random_, model_.think_time_mean);
  if (goes_on && session.context + request.output_tokens + text_max <= model_.context_max) {
    grow(session, request.output_tokens);
    request.output_ids.assign(session.ids.begin() + static_cast<std::ptrdiff_t>(request.hash_ids.size()), session.ids.end());
    session.due = next_due;
    sessions_.push(std::move(session));
  }
  return request;
}

ChatWorkload::Session ChatWorkload::new_session() {
  Session session;
  session.due = next_arrival_;
  session.number = session_count_++;
  session.system_prompt = boost::random::discrete_distribution<std::uint32_t>{popularity_}(random_.engine());
  session.context = system_tokens_[session.system_prompt];
  session.ids = system_ids_[session.system_prompt];
  return session;
}

/// Appends tokens to the context. Blocks that become full get ids that only this session has.
void ChatWorkload::grow(Session& session, std::uint32_t tokens) {
  session.context += tokens;
  while (session.ids.size() < session.context / block_tokens_) session.ids.push_back(next_id_++);
}

std::uint32_t ChatWorkload::draw_text(double median) { return draw_length(random_, median, model_.length_sigma, text_max); }

}  // namespace terrace::tools
