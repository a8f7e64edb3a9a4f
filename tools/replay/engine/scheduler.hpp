#pragma once

#include "tools/replay/engine/aborts.hpp"
#include "tools/replay/engine/compute_batch.hpp"
#include "tools/replay/engine/engine_counts.hpp"

#include <cstdint>
#include <map>
#include <optional>

namespace terrace::tools {

/// A request's number in the trace, from 1: its place in every line.
using RequestNumber = std::uint64_t;

struct SchedulerLimits {
  std::uint64_t step_tokens = 1;    ///< computed in a step at most, all requests together
  std::uint32_t in_flight_max = 1;  ///< requests that hold blocks
  std::uint32_t block_tokens = 1;
};

/// A request as the scheduler sees it.
struct ScheduledRequest {
  RequestNumber number = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;  ///< n of them take n - 1 steps more than the prompt
  std::optional<AbortPoint> abort;
};

/// What whoever drives a scheduler does next, before it answers.
struct Action {
  enum class Kind : std::uint8_t {
    abort,    ///< the request is over: give back what it holds, if anything
    extend,   ///< its block table, by `blocks`: done, or no_room
    preempt,  ///< give back what it holds; it will be acquired again
    acquire,  ///< `blocks`, for its first `tokens.to` tokens: done (and how many blocks hit), pending, no_room, never_fits
    compute,  ///< `tokens` of it are part of this step; `last`: then it is through, and wants ended() once they are computed
    end,      ///< of the step: launch it
  };
  Kind kind = Kind::end;
  RequestNumber request = 0;
  std::uint32_t blocks = 0;
  TokenRange tokens;
  bool last = false;
};

/// How an action went.
struct Answer {
  enum class Outcome : std::uint8_t { done, pending, no_room, never_fits };
  Outcome outcome = Outcome::done;
  std::uint32_t hit_blocks = 0;
};

/// The decisions of a continuous-batching engine, step by step; no I/O, no clock, no thread, and no cache: what the cache says
/// comes back as answers.
///
///     for (Action action = scheduler.begin_step(); action.kind != Action::Kind::end; action = scheduler.resume(answer)) …
///
/// A step goes like this. First whoever is to be aborted goes. Then the running requests get tokens, in order: a decoding one a
/// single token, one whose prompt is not all computed as many as the step has left. At last waiting requests are admitted, in
/// order, while the step has tokens left; the first that finds no room holds up those behind it, and one whose blocks have to
/// come up first is pending until became_ready().
///
/// A running request that needs a block where there is none preempts the youngest request that holds any, which may be itself:
/// that one waits again, at the head of the line, and nobody is admitted in that step. The oldest is never preempted: alone, it
/// leaves out a step. So it always gets to its end.
///
/// All lines are ordered by number: whoever came first goes first, whatever happened to him meanwhile. Threads: one.
class Scheduler {
 public:
  /// `counts` outlives the scheduler, which counts there what it decides.
  Scheduler(const SchedulerLimits& limits, EngineCounts& counts) : limits_{limits}, counts_{counts} {}

  /// It waits. Numbers ascend.
  void add(const ScheduledRequest& request);
  /// Whether another request could be admitted beside those that wait.
  [[nodiscard]] bool wants_more() const { return requests_.size() < limits_.in_flight_max; }

  [[nodiscard]] Action begin_step();
  /// Not after `end`.
  [[nodiscard]] Action resume(Answer answer);

  // Between steps.

  /// A pending request has its blocks, so many of them from the cache.
  void became_ready(RequestNumber number, std::uint32_t hit_blocks);
  /// A pending request holds nothing any more, and will be acquired again.
  void lost(RequestNumber number);
  /// What was computed last of it is there.
  void ended(RequestNumber number);

  [[nodiscard]] bool empty() const { return requests_.empty(); }
  /// Requests that hold blocks.
  [[nodiscard]] std::uint32_t in_flight() const { return in_flight_; }
  void check_invariants() const;

 private:
  /// waiting --acquire--> pending --> running --compute the last--> ending
  ///    ^                    |           |
  ///    +--------------------+-----------+  preempted, or lost what it counted on
  enum class State : std::uint8_t { waiting, pending, running, ending };
  struct Request {
    ScheduledRequest wanted;
    State state = State::waiting;
    std::uint64_t known = 0;     ///< tokens: the prompt's, and those written so far
    std::uint64_t computed = 0;  ///< of them, cached ones included
    std::uint64_t furthest = 0;  ///< that `computed` ever was: what is computed below it is computed again
    std::uint32_t blocks = 0;    ///< of its table

    /// Known when it is through.
    [[nodiscard]] std::uint64_t end() const;
  };
  using Requests = std::map<RequestNumber, Request>;
  enum class Phase : std::uint8_t { aborting, running, admitting, idle };

  Action advance();
  Action serve(Request& request);
  Action compute(Request& request);
  Action make_room(Request& request);
  [[nodiscard]] Request* next_aborted();
  [[nodiscard]] Request* next_running();
  [[nodiscard]] Request* next_waiting();
  void forget(Request& request);
  void wait_again(Request& request);
  Action ask(Action::Kind kind, RequestNumber request, std::uint32_t blocks = 0, TokenRange tokens = {}, bool last = false) {
    return asked_ = Action{kind, request, blocks, tokens, last};
  }
  [[nodiscard]] std::uint32_t blocks_for(std::uint64_t tokens) const {
    return static_cast<std::uint32_t>((tokens + limits_.block_tokens - 1) / limits_.block_tokens);
  }

  SchedulerLimits limits_;
  Requests requests_;
  std::uint32_t in_flight_ = 0;
  EngineCounts& counts_;

  // Of the step.
  Phase phase_ = Phase::idle;
  Action asked_;
  RequestNumber served_ = 0;     ///< the last that was looked at in this phase
  RequestNumber extending_ = 0;  ///< who preempts
  std::uint64_t tokens_left_ = 0;
  std::uint64_t computing_ = 0;  ///< requests that are part of it
  bool preempted_ = false;
};

}  // namespace terrace::tools
