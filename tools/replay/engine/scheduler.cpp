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

void Scheduler::step(const CarryOut& carry_out) {
  tokens_left_ = limits_.step_tokens;
  computing_ = 0;
  preempted_ = false;
  while (Request* const request = next_aborted()) {
    const RequestNumber number = request->wanted.number;
    ++counts_.aborted;
    forget(*request);
    carry_out({.kind = Action::Kind::abort, .request = number});
  }
  RequestNumber served = 0;
  while (Request* const request = next_running(served)) {
    served = request->wanted.number;
    serve(*request, carry_out);
  }
  while (Request* const request = next_waiting()) {
    if (!admit(*request, carry_out)) break;
  }
  counts_.steps += computing_ > 0 ? 1 : 0;
  counts_.requests_in_steps += computing_;
}

/// A running request computes as many tokens as the step has left, after it has got the blocks for them.
void Scheduler::serve(Request& request, const CarryOut& carry_out) {
  const std::uint32_t needed = blocks_for(request.computed + std::min(request.known - request.computed, tokens_left_));
  if (needed <= request.blocks || extend(request, needed - request.blocks, carry_out)) compute(request, carry_out);
}

/// Preempts others until there is room. Returns false if the request does not go on in this step.
bool Scheduler::extend(Request& request, std::uint32_t blocks, const CarryOut& carry_out) {
  const Action wanted{.kind = Action::Kind::extend, .request = request.wanted.number, .blocks = blocks};
  while (carry_out(wanted).outcome == Answer::Outcome::no_room) {
    Request* const preempted = next_preempted();
    // Requests that end, and copies that are under way, will free blocks soon.
    if (preempted == nullptr) return false;
    ++counts_.preemptions;
    preempted_ = true;
    carry_out({.kind = Action::Kind::preempt, .request = preempted->wanted.number});
    wait_again(*preempted);
    if (preempted == &request) return false;
  }
  request.blocks += blocks;
  return true;
}

/// Returns false if the request, and so those behind it, must wait.
bool Scheduler::admit(Request& request, const CarryOut& carry_out) {
  const RequestNumber number = request.wanted.number;
  request.blocks = blocks_to_acquire(request.known, request.end(), limits_.block_tokens);
  const Answer answer =
      carry_out({.kind = Action::Kind::acquire, .request = number, .blocks = request.blocks, .tokens = {0, request.known}});
  switch (answer.outcome) {
    case Answer::Outcome::done:
      ++in_flight_;
      became_ready(number, answer.hit_blocks);
      compute(request, carry_out);
      return true;
    case Answer::Outcome::pending:
      ++in_flight_;
      request.state = State::pending;
      return true;
    case Answer::Outcome::never_fits: forget(request); return true;
    case Answer::Outcome::no_room: return false;
  }
  return false;
}

void Scheduler::compute(Request& request, const CarryOut& carry_out) {
  const std::uint64_t from = request.computed;
  const std::uint64_t to = from + std::min(request.known - from, tokens_left_);
  tokens_left_ -= to - from;
  ++computing_;
  counts_.add({from, to}, request.furthest, request.wanted.prompt_tokens);
  request.computed = to;
  request.furthest = std::max(request.furthest, to);
  const bool last = to == request.end();
  if (last) request.state = State::ending;
  else if (to == request.known) ++request.known;
  carry_out({.kind = Action::Kind::compute, .request = request.wanted.number, .tokens = {from, to}, .last = last});
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

Scheduler::Request* Scheduler::next_running(RequestNumber after) {
  if (tokens_left_ == 0) return nullptr;
  for (auto at = requests_.upper_bound(after); at != requests_.end(); ++at) {
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

/// The youngest request that holds blocks, unless it is the only one.
Scheduler::Request* Scheduler::next_preempted() {
  Request* oldest = nullptr;
  Request* youngest = nullptr;
  for (auto& [number, request] : requests_) {
    if (request.state != State::running && request.state != State::pending) continue;
    if (oldest == nullptr) oldest = &request;
    youngest = &request;
  }
  return youngest == oldest ? nullptr : youngest;
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
