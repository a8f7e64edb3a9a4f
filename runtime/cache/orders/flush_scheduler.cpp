#include "runtime/cache/orders/flush_scheduler.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {

void FlushScheduler::on_change() {
  ++changes_;
  if (interval_ > Duration{} && due_ == never) due_ = now_ + interval_;
}

std::uint64_t FlushScheduler::ask() {
  if (under_way()) {
    asked_ = at_begin_.changes == changes_ ? begun_ : begun_ + 1;
  } else {
    // A flush begins even if nothing has changed, because it detects that the files of the store have been removed.
    asked_ = begun_ + 1;
    begin();
  }
  return asked_;
}

void FlushScheduler::begin() {
  TERRACE_CHECK(!under_way());
  ++begun_;
  at_begin_ = {changes_, stored_};
  due_ = never;
  actions_.flushes.push_back(begun_);
}

void FlushScheduler::on_time(TimePoint now) {
  now_ = now;
  if (!under_way() && due_ <= now) begin();
}

void FlushScheduler::on_flushed(ErrorCode error) {
  TERRACE_CHECK(under_way());
  ended_ = begun_;
  error_ = error;
  // A failed flush does not even confirm what earlier ones covered.
  covered_ = error ? 0 : at_begin_.stored;
  if (asked_ > begun_) return begin();
  // The changes that the failed round was for are not durable. So another round follows, even if nothing changes until then.
  if (error && interval_ > Duration{}) due_ = std::min(due_, now_ + interval_);
}

}  // namespace terrace
