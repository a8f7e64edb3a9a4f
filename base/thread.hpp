#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace terrace {

/// Blocks all signals while it exists, so that threads started meanwhile do not receive any. Signals are for the program's own
/// threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// Starts a thread of the library. It has this name, of at most 15 characters, and receives no signals, because signals are for
/// the program's own threads. `name` is a literal. Throws std::system_error if no thread can be started.
template <class Thread = std::thread, class Work>
[[nodiscard]] Thread start_thread(const char* name, Work work) {
  const SignalsBlocked blocked;
  return Thread{[name, work = std::move(work)]() mutable {
    ::pthread_setname_np(::pthread_self(), name);
    work();
  }};
}

}  // namespace terrace
