#pragma once

#include "base/random.hpp"
#include "tools/replay/engine/tokens.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace terrace::tools {

/// A request's number in the trace, from 1. It decides the order everywhere.
using RequestNumber = std::uint64_t;

/// The point in its life at which a client aborts a request.
struct AbortPoint {
  /// True: before the request is admitted. False: after that, when `tokens` of its tokens are computed. With 0 tokens it is
  /// aborted as soon as it is admitted, and its blocks may still be loading.
  bool waiting = false;
  std::uint64_t tokens = 0;

  friend bool operator==(const AbortPoint&, const AbortPoint&) = default;
};

/// Draws which requests are aborted, and when: with equal chances while they wait, as soon as they are admitted, while their
/// prompt is computed, or while their output is written. A request that ends before its abort point is not aborted. The same seed
/// and the same requests give the same result. Threads: one.
class Aborts {
 public:
  /// `rate` is the share of requests that are aborted, from 0 to 1.
  Aborts(std::uint64_t seed, double rate) : random_{seed}, rate_{rate} {}

  [[nodiscard]] std::optional<AbortPoint> draw(std::uint64_t prompt_tokens, std::uint64_t output_tokens) {
    if (!random_.chance(rate_)) return std::nullopt;
    constexpr std::uint64_t one = 1;
    AbortPoint point;
    switch (random_.below(4)) {
      case 0: point.waiting = true; break;
      case 1: break;
      case 2: point.tokens = random_.between(1, std::max(prompt_tokens, one)); break;
      case 3: point.tokens = prompt_tokens + random_.between(1, std::max(output_tokens, one)); break;
    }
    return point;
  }

 private:
  Random random_;
  double rate_;
};

struct SchedulerLimits {
  std::uint64_t step_tokens = 1;    ///< the most tokens computed in a step, for all requests together
  std::uint32_t in_flight_max = 1;  ///< the most requests that may hold blocks
  std::uint32_t block_tokens = 1;
};

/// A request as the scheduler sees it.
struct ScheduledRequest {
  RequestNumber number = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;  ///< n output tokens take n - 1 steps after the prompt
  std::optional<AbortPoint> abort;
};

/// A thing that the driver of the scheduler must do at once.
struct Action {
  enum class Kind : std::uint8_t {
    abort,    ///< the request is aborted: release its lease, if it has one
    extend,   ///< extend its block table by `blocks`; answers: done, no_room
    preempt,  ///< release its lease; it will be acquired again later
    /// acquire `blocks` for its first `tokens.to` tokens; answers: done (with hit_blocks), pending, no_room, never_fits
    acquire,
    compute,  ///< add `tokens` to this step; after the request's `last` part the driver must call ended() when it is computed
  };
  Kind kind = Kind::compute;
  RequestNumber request = 0;
  std::uint32_t blocks = 0;
  TokenRange tokens{};
  bool last = false;
};

/// The result of an action.
struct Answer {
  enum class Outcome : std::uint8_t { done, pending, no_room, never_fits };
  Outcome outcome = Outcome::done;
  std::uint32_t hit_blocks = 0;
};

/// Decides what a continuous-batching engine does in each step. It does no I/O and has no clock, no thread and no cache; results
/// from the cache come as answers.
///
/// In a step, requests that reached their abort point are aborted first. Then the running requests get tokens, in order: one
/// token for a request that decodes, and as many as the step has left for a request whose prompt is not complete. Then waiting
/// requests are admitted, in order, while the step has tokens left. The first request without space holds up those behind it. A
/// request whose blocks must be loaded first is pending until became_ready().
///
/// If a running request needs a block and there is none, the scheduler preempts the youngest request that holds blocks, which may
/// be the same request. The preempted request waits again, at the head of the queue, and nothing is admitted in that step. The
/// oldest request is never preempted. If it is alone and gets no block, it skips a step. So it always completes.
///
/// All queues are ordered by request number: an earlier request goes first, also after a preemption. Threads: one.
class Scheduler {
 public:
  /// The scheduler counts its decisions in `counts`, which must outlive it.
  Scheduler(const SchedulerLimits& limits, EngineCounts& counts) : limits_{limits}, counts_{counts} {}

  /// Adds a waiting request. Numbers must ascend.
  void add(const ScheduledRequest& request);
  /// Whether one more request, in addition to those that wait, could be admitted.
  [[nodiscard]] bool wants_more() const { return requests_.size() < limits_.in_flight_max; }

  using CarryOut = std::function<Answer(const Action&)>;
  /// Decides one step. Has each action carried out before it decides the next one. After that the driver launches the step.
  void step(const CarryOut& carry_out);

  // Only between steps:

  /// A pending request has got its blocks; `hit_blocks` of them came from the cache.
  void became_ready(RequestNumber number, std::uint32_t hit_blocks);
  /// A pending request has lost its blocks, and will be acquired again.
  void lost(RequestNumber number);
  /// The last part of the request has been computed.
  void ended(RequestNumber number);

  [[nodiscard]] bool empty() const { return requests_.empty(); }
  /// The number of requests that hold blocks.
  [[nodiscard]] std::uint32_t in_flight() const { return in_flight_; }
  void check_invariants() const;

 private:
  /// waiting --acquire--> pending --> running --compute the last--> ending
  ///    ^                    |           |
  ///    +--------------------+-----------+  preempted, or lost its blocks
  enum class State : std::uint8_t { waiting, pending, running, ending };
  struct Request {
    ScheduledRequest wanted;
    State state = State::waiting;
    std::uint64_t known = 0;     ///< tokens: those of the prompt and those written so far
    std::uint64_t computed = 0;  ///< how many of them are computed, including those from the cache
    std::uint64_t furthest = 0;  ///< the highest value that `computed` ever had; tokens below it are computed again
    std::uint32_t blocks = 0;    ///< the length of its block table

    /// The value of `known` at which the request is complete.
    [[nodiscard]] std::uint64_t end() const { return tokens_computed(wanted.prompt_tokens, wanted.output_tokens); }
  };

  void serve(Request& request, const CarryOut& carry_out);
  [[nodiscard]] bool extend(Request& request, std::uint32_t blocks, const CarryOut& carry_out);
  [[nodiscard]] bool admit(Request& request, const CarryOut& carry_out);
  void compute(Request& request, const CarryOut& carry_out);
  [[nodiscard]] Request* next_aborted();
  [[nodiscard]] Request* next_running(RequestNumber after);
  [[nodiscard]] Request* next_waiting();
  [[nodiscard]] Request* next_preempted();
  void forget(Request& request);
  void wait_again(Request& request);
  [[nodiscard]] std::uint32_t blocks_for(std::uint64_t tokens) const {
    return static_cast<std::uint32_t>((tokens + limits_.block_tokens - 1) / limits_.block_tokens);
  }

  SchedulerLimits limits_;
  std::map<RequestNumber, Request> requests_;
  std::uint32_t in_flight_ = 0;
  EngineCounts& counts_;

  // State of the current step.
  std::uint64_t tokens_left_ = 0;
  std::uint64_t computing_ = 0;  ///< requests that are part of the step
  bool preempted_ = false;
};

}  // namespace terrace::tools
