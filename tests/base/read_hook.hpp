#pragma once

#include <functional>

namespace terrace::test {

/// While an object exists, every read() of the program on this thread calls `before` and `after` around it. They stand for what
/// another thread may do at that moment.
class ReadHook {
 public:
  ReadHook(std::function<void()> before, std::function<void()> after);
  ~ReadHook();
  ReadHook(const ReadHook&) = delete;
  ReadHook& operator=(const ReadHook&) = delete;
};

}  // namespace terrace::test
