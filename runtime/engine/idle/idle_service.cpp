#include "runtime/engine/idle/idle_service.hpp"

#include "base/thread.hpp"
#include "terrace/turn.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

Turn::Turn(Turns& turns) : turns_{&turns} { turns.begin(); }
Turn::~Turn() {
  if (turns_ != nullptr) turns_->end();
}

void IdleService::start(Work work) {
  work_ = std::move(work);
  thread_ = start_thread("terrace-idle", [this, stop = stop_.get_token()] { run(stop); });
}

void IdleService::stop() {
  stop_.request_stop();
  waker_.wake();
  if (thread_.joinable()) thread_.join();
}

void IdleService::run(const std::stop_token& stop) {
  std::unique_lock lock{mutex_};
  std::uint64_t seen = turns_.taken();
  while (!stop.stop_requested()) {
    stopped_.wait_for(lock, stop, idle_after, [] { return false; });
    const std::uint64_t taken = turns_.taken();
    if (taken == seen) serve(seen, stop);
    seen = turns_.taken();
  }
}

/// Works until the owner's next turn.
void IdleService::serve(std::uint64_t seen, const std::stop_token& stop) {
  while (!stop.stop_requested() && turns_.try_slice(seen)) {
    // Acknowledge before working, so that anything that arrives later wakes the service again.
    waker_.acknowledge();
    const TimePoint begun = clock_.now();
    const bool more = work_.slice(begun + slice_max);
    const TimePoint next = more ? begun : work_.next_deadline();
    turns_.end_slice();
    if (next <= begun) continue;
    constexpr std::chrono::milliseconds longest{std::chrono::minutes{1}};
    const Duration left = next == never ? longest : std::max(next - clock_.now(), Duration::zero());
    waker_.wait(static_cast<int>(std::min(std::chrono::ceil<std::chrono::milliseconds>(left), longest).count()));
  }
}

}  // namespace terrace
