#include "storage/dirty_pages.hpp"

#include "base/check.hpp"

namespace terrace {

void DirtyPages::queue(std::uint32_t page) {
  failed_ -= states_[page] == State::failed;
  states_[page] = State::waiting;
  waiting_.push_back(page);
}

void DirtyPages::mark(std::uint32_t page) {
  switch (states_[page]) {
    case State::clean:
    case State::failed: queue(page); break;
    case State::writing: states_[page] = State::writing_old; break;
    case State::waiting:
    case State::writing_old: break;
  }
}

std::optional<std::uint32_t> DirtyPages::take() {
  if (waiting_.empty() || under_way_ >= writes_max_) return std::nullopt;
  const std::uint32_t page = waiting_.front();
  waiting_.pop_front();
  TERRACE_CHECK(states_[page] == State::waiting);
  states_[page] = State::writing;
  ++under_way_;
  return page;
}

void DirtyPages::ended(std::uint32_t page, Outcome outcome) {
  TERRACE_CHECK(states_[page] == State::writing || states_[page] == State::writing_old);
  --under_way_;
  if (states_[page] == State::writing_old) {
    queue(page);
  } else {
    states_[page] = outcome == Outcome::written ? State::clean : State::failed;
    failed_ += outcome == Outcome::failed;
  }
}

void DirtyPages::retry_failed() {
  for (std::uint32_t page = 0; failed_ > 0 && page < states_.size(); ++page) {
    if (states_[page] == State::failed) queue(page);
  }
}

}  // namespace terrace
