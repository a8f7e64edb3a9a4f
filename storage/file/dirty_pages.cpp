#include "storage/file/dirty_pages.hpp"

#include "base/check.hpp"

namespace terrace {

void DirtyPages::queue(std::uint32_t page) {
  failed_ -= pages_[page].state == State::failed;
  pages_[page].state = State::waiting;
  waiting_.push_back(page);
}

void DirtyPages::mark(std::uint32_t page) {
  State& state = pages_[page].state;
  if (state == State::clean || state == State::failed) queue(page);
  else if (state == State::writing) state = State::writing_old;
}

std::optional<std::uint32_t> DirtyPages::take() {
  if (waiting_.empty() || under_way() >= writes_max_) return std::nullopt;
  const std::uint32_t page = waiting_.front();
  waiting_.pop_front();
  TERRACE_CHECK(pages_[page].state == State::waiting);
  pages_[page].state = State::writing;
  writing_.push_back(page);
  return page;
}

void DirtyPages::ended(std::uint32_t number, Outcome outcome) {
  Page& page = pages_[number];
  TERRACE_CHECK(page.state == State::writing || page.state == State::writing_old);
  std::erase(writing_, number);
  const bool again = page.state == State::writing_old;
  if (page.writes_owed > 0) {
    // The next image is newer than the one that failed, and replaces it.
    page.writes_owed = outcome == Outcome::written ? page.writes_owed - 1 : again ? 1 : 0;
    if (page.writes_owed == 0) --owed_;
    owed_failed_ |= outcome == Outcome::failed && !again;
  }
  if (again) {
    queue(number);
  } else {
    page.state = outcome == Outcome::written ? State::clean : State::failed;
    failed_ += outcome == Outcome::failed;
  }
}

void DirtyPages::retry_failed() {
  for (std::uint32_t page = 0; failed_ > 0 && page < pages_.size(); ++page) {
    if (pages_[page].state == State::failed) queue(page);
  }
}

void DirtyPages::owe(std::uint32_t page, unsigned char writes) {
  pages_[page].writes_owed = writes;
  ++owed_;
}

void DirtyPages::begin_owing() {
  TERRACE_CHECK(owed_ == 0);
  owed_failed_ = false;
  for (const std::uint32_t page : waiting_) owe(page, 1);
  for (const std::uint32_t page : writing_) owe(page, pages_[page].state == State::writing_old ? 2 : 1);
}

}  // namespace terrace
