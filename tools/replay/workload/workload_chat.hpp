#pragma once

#include "base/random.hpp"
#include "tools/replay/workload/request_source.hpp"

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace terrace::tools {

/// Sizes are tokens, times milliseconds.
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

/// A chat service, made from a seed: an endless stream of requests, the same for the same seed on every platform.
///
/// - There are a few system prompts. Their lengths are uniform; which one a session uses follows Zipf's law (the k-th is
///   chosen in proportion to 1/k), so that a few are shared by most sessions and some by hardly any.
/// - Sessions begin as a Poisson process. One has a geometrically distributed number of turns.
/// - A turn's prompt is everything before it (system prompt, texts, replies) and a new text. Texts' and replies' lengths are
///   log-normal: mostly short, at times very long.
/// - Between a request and the session's next one lie the time to write the reply (25 ms a token) and an exponentially
///   distributed time to think, so that many sessions are interleaved and a session's blocks have time to leave the device.
/// - A session also ends where its context would pass the longest one.
///
/// A full block has an id: within the system prompt that of the prompt's block, shared by all sessions that use it; behind it
/// the session's own. So every id has one predecessor, and ids of different seeds differ. Threads: one.
class ChatWorkload final : public RequestSource {
 public:
  ChatWorkload(std::uint64_t seed, std::uint32_t block_tokens, const ChatModel& model = {});

  [[nodiscard]] std::optional<TraceRequest> next() override;

 private:
  struct Session {
    double due = 0;  ///< when its next request comes
    std::uint64_t number = 0;
    std::uint32_t system_prompt = 0;
    std::uint32_t context = 0;  ///< tokens so far
    std::vector<std::uint64_t> ids;

    /// The earliest on top of the queue; the older session where two are due at once.
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
