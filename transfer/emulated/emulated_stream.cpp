#include "transfer/emulated/emulated_stream.hpp"

#include "base/thread.hpp"

#include <utility>

namespace terrace {

EmulatedStream::EmulatedStream() : thread_{start_thread("terrace-stream", [this] { work(); })} {}

EmulatedStream::~EmulatedStream() {
  {
    const std::lock_guard lock{mutex_};
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void EmulatedStream::run(std::function<void()> work) {
  {
    const std::lock_guard lock{mutex_};
    items_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void EmulatedStream::synchronize() {
  const auto here = std::make_shared<StreamEvent>();
  run([here] { here->happen(); });
  here->wait();
}

void EmulatedStream::work() {
  for (;;) {
    std::function<void()> item;
    {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [this] { return ending_ || !items_.empty(); });
      if (items_.empty()) return;
      item = std::move(items_.front());
      items_.pop_front();
    }
    item();
  }
}

}  // namespace terrace
