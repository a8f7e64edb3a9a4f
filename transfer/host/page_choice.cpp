#include "transfer/host/page_choice.hpp"

#include <algorithm>
#include <chrono>

namespace terrace {

HugePages PageChoice::next() const {
  const bool huge = state_ == State::huge || state_ == State::trying_huge;
  return wish_ == HugePages::yes && huge ? HugePages::yes : HugePages::no;
}

void PageChoice::touched(Bytes bytes, Duration took) {
  if (wish_ == HugePages::no || count(bytes) == 0) return;
  const double seconds = std::chrono::duration<double>(took).count() / static_cast<double>(count(bytes));
  const bool slow = seconds * static_cast<double>(count(slow_per_second)) > 1;
  switch (state_) {
    case State::huge:
    case State::trying_huge:
      huge_seconds_ = seconds;
      if (!slow) {
        state_ = State::huge;
        stay_ = stay_first;
      } else if (state_ == State::huge) {
        state_ = State::trying_small;
      } else {
        constexpr std::uint32_t stay_most = 1024;
        stay_ = std::min(2 * stay_, stay_most);
        left_ = stay_;
        state_ = State::small;
      }
      break;
    case State::trying_small:
      // If small pages are as slow, compaction is not the reason.
      state_ = 2 * seconds <= huge_seconds_ ? State::small : State::huge;
      left_ = stay_;
      break;
    case State::small:
      if (--left_ == 0) state_ = State::trying_huge;
      break;
  }
}

}  // namespace terrace
