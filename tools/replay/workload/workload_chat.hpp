#pragma once

#include "base/random.hpp"
#include "tools/replay/workload/request_source.hpp"

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace terrace::tools {

/// Sizes are in tokens, times in milliseconds.
struct ChatModel {
  std::uint32_t system_prompts = 24;
  std::uint64_t system_prompt_min = 256;
  std::uint64_t system_prompt_max = 3072;
  double user_text_median = 60;
  double reply_median = 220;
  double length_sigma = 0.9;  ///< of the logarithm
  double turns_mean = 6;
  double think_time_mean = 25'000;
  double session_gap_mean = 250;
  std::uint32_t context_max = 32'768;
};

/// A workload of a chat service, made from a seed: an endless stream of requests, the same for the same seed on every platform.
///
/// - There are a few system prompts with uniformly distributed lengths. Which one a session uses follows Zipf's law (the k-th is
///   chosen in proportion to 1/k). So a few are shared by most sessions, and some are hardly ever used.
/// - Sessions start as a Poisson process. The number of their turns is geometrically distributed.
/// - The prompt of a turn is everything before it (system prompt, texts, replies) and a new text. The lengths of texts and
///   replies are log-normal: mostly short, sometimes very long.
/// - Between a request and the next one of its session there is the time to write the reply (25 ms for each token) and an
///   exponentially distributed time to think. So many sessions run at the same time, and a session's blocks have time to leave
///   the device.
/// - A session also ends if its context would exceed the maximum.
///
/// Each full block has an id. Blocks of a system prompt have the same ids in all sessions that use it; later blocks have ids that
/// only their session has. So each id always follows the same id. Ids of different seeds differ. Threads: one.
class ChatWorkload final : public RequestSource {
 public:
  ChatWorkload(std::uint64_t seed, std::uint32_t block_tokens, const ChatModel& model = {});

  [[nodiscard]] std::optional<TraceRequest> next() override;

 private:
  struct Session {
    double due = 0;  ///< the time of its next request
    std::uint64_t number = 0;
    std::uint32_t system_prompt = 0;
    std::uint32_t context = 0;  ///< tokens so far
    std::vector<std::uint64_t> ids;

    /// The session with the earliest time is on top of the queue; of two with the same time, the older session.
    friend bool operator<(const Session& a, const Session& b) { return a.due != b.due ? a.due > b.due : a.number > b.number; }
  };

  [[nodiscard]] Session new_session();
  [[nodiscard]] std::uint32_t draw_text(double median);
  void grow(Session& session, std::uint32_t tokens);

  ChatModel model_;
  std::uint32_t block_tokens_;
  Random random_;
  std::vector<std::vector<std::uint64_t>> system_ids_;
  std::vector<std::uint32_t> system_tokens_;
  std::vector<double> popularity_;
  std::priority_queue<Session> sessions_;
  double next_arrival_ = 0;
  std::uint64_t session_count_ = 0;
  std::uint64_t next_id_;
};

}  // namespace terrace::tools
