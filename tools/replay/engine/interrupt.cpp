#include "tools/replay/engine/interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

namespace terrace::tools {
namespace {

std::atomic<bool> requested_{false};
std::atomic<Waker*> waker_{nullptr};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<Waker*>::is_always_lock_free, "used in a signal handler");

constexpr std::chrono::seconds patience{30};
std::atomic<unsigned> alarm_seconds_{0};

void on_alarm(int) {
  constexpr std::string_view line = "terrace: interrupted, but the run did not end in time\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(130);
}

/// An EventFdWaker only does an atomic exchange and a write(2). Both are allowed in a signal handler.
void on_signal(int) {
  ::alarm(alarm_seconds_.load(std::memory_order_acquire));
  requested_.store(true, std::memory_order_release);
  if (Waker* const waker = waker_.load(std::memory_order_acquire)) waker->wake();
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt(Waker* waker, std::chrono::seconds work_left) {
  requested_ = false;
  alarm_seconds_ = static_cast<unsigned>((patience + work_left).count());
  waker_ = waker;
  handle(SIGALRM, on_alarm, 0);
  handle(SIGINT, on_signal, SA_RESETHAND | SA_RESTART);
  handle(SIGTERM, on_signal, SA_RESETHAND | SA_RESTART);
}

Interrupt::~Interrupt() {
  ::alarm(0);
  for (const int signal : {SIGALRM, SIGINT, SIGTERM}) handle(signal, SIG_DFL, 0);
  waker_ = nullptr;
}

bool Interrupt::requested() const { return requested_.load(std::memory_order_acquire); }

}  // namespace terrace::tools
