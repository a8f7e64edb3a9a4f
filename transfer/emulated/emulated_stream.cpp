#include "terrace/emulated_stream.hpp"

#include "base/thread.hpp"
#include "transfer/emulated/stream_event.hpp"
#include "transfer/host/work_queue.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace terrace {

struct EmulatedStream::State {
  using Item = std::function<void()>;  ///< empty: the end of the stream

  WorkQueue<Item> items;
  std::jthread thread{start_thread<std::jthread>("terrace-stream", [this] {
    for (std::optional<Item> item = items.pop(); *item; item = items.pop()) (*item)();
  })};
};

EmulatedStream::EmulatedStream() : state_{std::make_unique<State>()} {}

EmulatedStream::~EmulatedStream() { state_->items.push(nullptr); }

void EmulatedStream::run(std::function<void()> work) { state_->items.push(std::move(work)); }

void EmulatedStream::synchronize() {
  const auto here = std::make_shared<StreamEvent>();
  run([here] { here->happen(); });
  here->wait();
}

}  // namespace terrace
