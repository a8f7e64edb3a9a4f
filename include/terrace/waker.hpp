#pragma once

namespace terrace {

/// Tells a consumer that there is something to collect. Producers call wake() after they have pushed. Threads: any.
class Waker {
 public:
  virtual ~Waker() = default;
  /// Never blocks.
  virtual void wake() noexcept = 0;
};

/// A waker that does nothing, for an owner that polls and never sleeps.
class NullWaker final : public Waker {
 public:
  void wake() noexcept override {}
};

}  // namespace terrace
