#include "terrace/emulated_stream.hpp"

#include "base/thread.hpp"
#include "transfer/emulated/stream_event.hpp"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace terrace {

struct EmulatedStream::State {
  void work() {
    for (;;) {
      std::function<void()> item;
      {
        std::unique_lock lock{mutex};
        changed.wait(lock, [this] { return ending || !items.empty(); });
        if (items.empty()) return;
        item = std::move(items.front());
        items.pop_front();
      }
      item();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> items;
  bool ending = false;
  std::thread thread{start_thread("terrace-stream", [this] { work(); })};
};

EmulatedStream::EmulatedStream() : state_{std::make_unique<State>()} {}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock{state_->mutex};
    state_->ending = true;
  }
  state_->changed.notify_one();
  state_->thread.join();
}

void EmulatedStream::run(std::function<void()> work) {
  {
    const std::lock_guard lock{state_->mutex};
    state_->items.push_back(std::move(work));
  }
  state_->changed.notify_one();
}

void EmulatedStream::synchronize() {
  const auto here = std::make_shared<StreamEvent>();
  run([here] { here->happen(); });
  here->wait();
}

}  // namespace terrace
