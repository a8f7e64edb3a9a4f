#pragma once

#include "terrace/export.hpp"

namespace terrace {

/// Tells a consumer that there is something to collect. Producers call wake() after they have pushed. Threads: any.
class TERRACE_API Waker {
 public:
  virtual ~Waker() = default;
  /// Never blocks.
  virtual void wake() noexcept = 0;
};

/// A waker that does nothing, for an owner that polls and never sleeps.
class TERRACE_API NullWaker final : public Waker {
 public:
  void wake() noexcept override {}
};

}  // namespace terrace
