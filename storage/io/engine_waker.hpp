#pragma once

#include "base/waker.hpp"

namespace terrace {

/// Wakes two waiters when a thread of an engine has pushed a completion: the owner of the engine, and the engine's own wait().
/// `owner` must outlive this object. Threads: wake() may be called from any.
struct EngineWaker final : Waker {
  explicit EngineWaker(Waker& owners) : owner{owners} {}
  void wake() noexcept override {
    own.wake();
    owner.wake();
  }
  Waker& owner;
  EventFdWaker own;
};

}  // namespace terrace
