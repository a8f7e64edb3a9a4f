#pragma once

#include "base/thread.hpp"
#include "terrace/clock.hpp"

#include <future>
#include <system_error>
#include <thread>
#include <utility>

namespace terrace {

/// Runs `work` on a new thread, and waits for it until `until`. Returns true if it has ended. If not, the thread continues, and
/// the process may continue or end as usual. Use it to destroy parts that wait for a disk or a device, which may never respond.
/// `work` must own all data that it uses, and must not throw. If no thread can be started, the work is not done, because on this
/// thread it could block forever.
template <class Work>
[[nodiscard]] bool end_within(Work work, TimePoint until) {
  std::promise<void> promise;
  const std::future<void> ended = promise.get_future();
  std::thread thread;
  try {
    thread = start_thread("terrace-close", [work = std::move(work), promise = std::move(promise)]() mutable {
      work();
      promise.set_value();
    });
  } catch (const std::system_error&) {
    return false;
  }
  if (until == never) ended.wait();
  const bool is_over = until == never || ended.wait_until(until) == std::future_status::ready;
  if (is_over) thread.join();
  else thread.detach();
  return is_over;
}

}  // namespace terrace
