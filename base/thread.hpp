#pragma once

#include "base/signals_blocked.hpp"

#include <pthread.h>

#include <thread>
#include <utility>

namespace terrace {

/// Starts a thread of the library. It has this name, of at most 15 characters, and receives no signals: those are for the
/// program's own threads. `name` is a literal. Throws std::system_error if no thread can be started.
template <class Thread = std::thread, class Work>
[[nodiscard]] Thread start_thread(const char* name, Work work) {
  const SignalsBlocked blocked;
  return Thread{[name, work = std::move(work)]() mutable {
    ::pthread_setname_np(::pthread_self(), name);
    work();
  }};
}

}  // namespace terrace
