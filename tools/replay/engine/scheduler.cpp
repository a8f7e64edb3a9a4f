#include "tools/replay/engine/scheduler.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace::tools {

void Scheduler::add(const ScheduledRequest& request) {
  TERRACE_CHECK(requests_.empty() || request.number > requests_.rbegin()->first);
  Request& added = requests_[request.number];
  added.wanted = request;
  added.known = request.prompt_tokens;
}

Action Scheduler::begin_step() {
  TERRACE_CHECK(phase_ == Phase::idle);
  phase_ = Phase::aborting;
  served_ = 0;
  tokens_left_ = limits_.step_tokens;
  computing_ = 0;
  preempted_ = false;
  return advance();
}

Action Scheduler::resume(Answer answer) {
  using Outcome = Answer::Outcome;
  TERRACE_CHECK(phase_ != Phase::idle);
  if (asked_.kind == Action::Kind::abort || asked_.kind == Action::Kind::compute) return advance();

  Request& request = requests_.at(asked_.request);
  switch (asked_.kind) {
    case Action::Kind::extend:
      if (answer.outcome == Outcome::no_room) return make_room(request);
      request.blocks += asked_.blocks;
      return compute(request);
    case Action::Kind::preempt:
      wait_again(request);
      return asked_.request == extending_ ? advance() : serve(requests_.at(extending_));
    case Action::Kind::acquire:
      switch (answer.outcome) {
        case Outcome::done:
          ++in_flight_;
          became_ready(asked_.request, answer.hit_blocks);
          return compute(request);
        case Outcome::pending:
          ++in_flight_;
          request.state = State::pending;
          return advance();
        case Outcome::never_fits: forget(request); return advance();
        case Outcome::no_room:
          phase_ = Phase::idle;  // the requests behind it wait, too
          return advance();
      }
      break;
    default: break;
  }
  TERRACE_CHECK(false);
  return {};
}

/// Returns the next action of this step.
Action Scheduler::advance() {
  if (phase_ == Phase::aborting) {
    if (Request* const request = next_aborted()) {
      const RequestNumber number = request->wanted.number;
      ++counts_.aborted;
      forget(*request);
      return ask(Action::Kind::abort, number);
    }
    phase_ = Phase::running;
    served_ = 0;
  }
  if (phase_ == Phase::running) {
    if (Request* const request = next_running()) {
      served_ = request->wanted.number;
      return serve(*request);
    }
    phase_ = Phase::admitting;
  }
  if (phase_ == Phase::admitting) {
    if (Request* const request = next_waiting()) {
      request->blocks = blocks_to_acquire(request->known, request->end(), limits_.block_tokens);
      return ask(Action::Kind::acquire, request->wanted.number, request->blocks, {0, request->known});
    }
  }
  phase_ = Phase::idle;
  counts_.steps += computing_ > 0 ? 1 : 0;
  counts_.requests_in_steps += computing_;
  return ask(Action::Kind::end, 0);
}

/// A running request computes as many tokens as the step has left, after it has got the blocks for them.
Action Scheduler::serve(Request& request) {
  const std::uint32_t needed = blocks_for(request.computed + std::min(request.known - request.computed, tokens_left_));
  if (needed <= request.blocks) return compute(request);
  return ask(Action::Kind::extend, request.wanted.number, needed - request.blocks);
}

Action Scheduler::compute(Request& request) {
  const std::uint64_t from = request.computed;
  const std::uint64_t to = from + std::min(request.known - from, tokens_left_);
  tokens_left_ -= to - from;
  ++computing_;
  counts_.add({from, to}, request.furthest, request.wanted.prompt_tokens);
  request.computed = to;
  request.furthest = std::max(request.furthest, to);
  if (to == request.known) {
    if (to == request.end()) {
      request.state = State::ending;
    } else {
      ++request.known;
    }
  }
  return ask(Action::Kind::compute, request.wanted.number, 0, {from, to}, request.state == State::ending);
}

/// Handles a running request that could not be extended.
Action Scheduler::make_room(Request& request) {
  Request* oldest = nullptr;
  Request* youngest = nullptr;
  for (auto& [number, other] : requests_) {
    if (other.state != State::running && other.state != State::pending) continue;
    if (oldest == nullptr) oldest = &other;
    youngest = &other;
  }
  // No request can be preempted. Requests that end, and copies that are under way, will free blocks soon.
  if (youngest == oldest) return advance();
  ++counts_.preemptions;
  preempted_ = true;
  extending_ = request.wanted.number;
  return ask(Action::Kind::preempt, youngest->wanted.number);
}

Scheduler::Request* Scheduler::next_aborted() {
  for (auto& [number, request] : requests_) {
    if (!request.wanted.abort) continue;
    const AbortPoint& point = *request.wanted.abort;
    // A pending request has computed nothing yet.
    const bool is_admitted = request.state == State::pending || request.state == State::running;
    if (point.waiting ? request.state == State::waiting : is_admitted && point.tokens <= request.computed) return &request;
  }
  return nullptr;
}

Scheduler::Request* Scheduler::next_running() {
  if (tokens_left_ == 0) return nullptr;
  for (auto at = requests_.upper_bound(served_); at != requests_.end(); ++at) {
    if (at->second.state == State::running) return &at->second;
  }
  return nullptr;
}

Scheduler::Request* Scheduler::next_waiting() {
  if (tokens_left_ == 0 || preempted_ || in_flight_ >= limits_.in_flight_max) return nullptr;
  for (auto& [number, request] : requests_) {
    if (request.state == State::waiting) return &request;
  }
  return nullptr;
}

void Scheduler::became_ready(RequestNumber number, std::uint32_t hit_blocks) {
  Request& request = requests_.at(number);
  request.state = State::running;
  request.computed = std::uint64_t{hit_blocks} * limits_.block_tokens;
  TERRACE_CHECK(request.computed <= request.known);
}

void Scheduler::lost(RequestNumber number) {
  Request& request = requests_.at(number);
  TERRACE_CHECK(request.state == State::pending);
  wait_again(request);
}

void Scheduler::ended(RequestNumber number) {
  Request& request = requests_.at(number);
  TERRACE_CHECK(request.state == State::ending);
  forget(request);
}

void Scheduler::wait_again(Request& request) {
  TERRACE_CHECK(request.state == State::running || request.state == State::pending);
  --in_flight_;
  request.state = State::waiting;
  request.computed = 0;
  request.blocks = 0;
}

void Scheduler::forget(Request& request) {
  if (request.state != State::waiting) --in_flight_;
  requests_.erase(request.wanted.number);
}

void Scheduler::check_invariants() const {
  std::uint32_t in_flight = 0;
  for (const auto& [number, request] : requests_) {
    TERRACE_CHECK(number == request.wanted.number);
    TERRACE_CHECK(request.computed <= request.known);
    TERRACE_CHECK(request.known <= request.end());
    if (request.state == State::waiting) continue;
    ++in_flight;
    TERRACE_CHECK(request.computed <= std::uint64_t{request.blocks} * limits_.block_tokens);
  }
  TERRACE_CHECK(in_flight == in_flight_);
  TERRACE_CHECK(in_flight <= limits_.in_flight_max);
}

}  // namespace terrace::tools
