#pragma once

#include "base/waker.hpp"

namespace terrace {

/// What an engine's threads wake when they have pushed a completion: its owner, and the engine's own wait().
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
