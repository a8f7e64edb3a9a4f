#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// One line of a trace, or one turn of a built-in workload.
struct TraceRequest {
  double timestamp_ms = 0;  ///< arrival, from the start of the trace
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  /// One for each block of the prompt; for a partly filled last block it is optional. An id names the block and everything before
  /// it.
  std::vector<std::uint64_t> hash_ids;
  /// Ids of the full blocks that the answer adds, if later prompts are known to begin with them.
  std::vector<std::uint64_t> output_ids;

  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

/// A source of requests, in order of arrival. Threads: one.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  /// Returns nothing at the end.
  [[nodiscard]] virtual std::optional<TraceRequest> next() = 0;
};

// The built-in workloads are made from a seed: endless streams of requests, the same for the same seed on every platform. Each
// full block has an id, and each id always follows the same id. Ids of different seeds differ. In the models, sizes are in
// tokens, and times in milliseconds.

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

/// A workload of a chat service:
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
/// Blocks of a system prompt have the same ids in all sessions that use it; later blocks have ids that only their session has.
[[nodiscard]] std::unique_ptr<RequestSource> chat_workload(std::uint64_t seed, std::uint32_t block_tokens,
                                                           const ChatModel& model = {});

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

/// A workload of agents that use tools:
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
[[nodiscard]] std::unique_ptr<RequestSource> agent_workload(std::uint64_t seed, std::uint32_t block_tokens,
                                                            const AgentModel& model = {});

struct RagModel {
  static constexpr std::uint32_t documents_per_request_max = 4;

  std::uint32_t preamble = 400;
  std::uint32_t documents = 200;
  double document_median = 1200;
  double document_sigma = 0.8;
  std::uint32_t document_max = 6000;
  /// The chances of 1, 2, 3 and 4 documents before a question.
  std::array<double, documents_per_request_max> document_counts{0.5, 0.2, 0.15, 0.15};
  double best_first_chance = 0.5;  ///< the chance that documents are ordered by popularity; otherwise their order is random
  double question_median = 130;
  double question_sigma = 0.5;
  std::uint32_t question_max = 2048;
  double answer_median = 180;
  double answer_sigma = 0.7;
  std::uint32_t answer_max = 4096;
  double gap_mean = 200;

  [[nodiscard]] constexpr std::uint32_t context_max() const {
    return preamble + documents_per_request_max * document_max + question_max;
  }
};

/// A workload of questions about a corpus of documents:
///
/// - A prompt is a preamble that all requests share, one to four different documents, and a new question.
/// - Which documents are drawn follows Zipf's law: the k-th in proportion to 1/k. So some documents are followed by hundreds of
///   different questions and documents, and most are rare.
/// - The order of several documents varies. A cached document is a hit only if everything before it is the same. So of the same
///   documents in another order only the first ones are hits.
/// - The lengths of documents are log-normal and drawn once; those of questions and answers are log-normal.
/// - Requests come as a Poisson process and are independent of each other.
///
/// An id also stands for everything before its block, so a document's blocks have different ids after each different sequence of
/// documents.
[[nodiscard]] std::unique_ptr<RequestSource> rag_workload(std::uint64_t seed, std::uint32_t block_tokens,
                                                          const RagModel& model = {});

struct Workload {
  std::unique_ptr<RequestSource> requests;
  std::uint32_t context_max = 0;  ///< tokens of the longest possible prompt
};

/// The names that --workload accepts. The first is the default.
inline constexpr std::array<std::string_view, 3> workload_names{"chat", "agent", "rag"};

/// The sizes where the user gives none. Traces with ids of blocks have 512 tokens in each.
inline constexpr std::uint32_t default_trace_block_tokens = 512;
inline constexpr std::uint32_t default_workload_block_tokens = 64;
inline constexpr std::uint64_t default_workload_requests = 2000;

/// `name` must be one of workload_names.
[[nodiscard]] Workload make_workload(std::string_view name, std::uint64_t seed, std::uint32_t block_tokens);

}  // namespace terrace::tools
