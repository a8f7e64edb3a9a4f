#pragma once

#include "terrace/result.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include <memory>
#include <tuple>
#include <utility>

namespace terrace {

namespace asio = boost::asio;

namespace detail {

/// A type-erased completion handler void(ErrorCode, T...). It is called once, on its own executor, which has outstanding work
/// until then. It can be completed from any thread. If it is never completed, it is destroyed without a call. Its cancellation
/// slot is cleared before the call.
template <class... T>
class Wait {
 public:
  virtual ~Wait() = default;

  static void complete(std::unique_ptr<Wait> wait, ErrorCode error, T... values) {
    Wait* const w = wait.get();
    w->post(std::move(wait), error, std::move(values)...);
  }
  /// Completes with default values.
  static void fail(std::unique_ptr<Wait> wait, ErrorCode error) { complete(std::move(wait), error, T{}...); }

 private:
  virtual void post(std::unique_ptr<Wait> self, ErrorCode error, T... values) = 0;
};

template <class Handler, class... T>
class WaitFor final : public Wait<T...> {
 public:
  /// `fallback`: the executor for handlers that have none.
  WaitFor(Handler handler, const asio::any_io_executor& fallback)
      : handler_{std::move(handler)}, work_{asio::get_associated_executor(handler_, fallback)} {}

 private:
  void post(std::unique_ptr<Wait<T...>>, ErrorCode error, T... values) override {
    const auto executor = work_.get_executor();
    asio::post(executor, [handler = std::move(handler_), error, all = std::tuple<T...>{std::move(values)...}]() mutable {
      if (auto slot = asio::get_associated_cancellation_slot(handler); slot.is_connected()) slot.clear();
      std::apply([&](T&... each) { std::move(handler)(error, std::move(each)...); }, all);
    });
  }

  Handler handler_;
  asio::executor_work_guard<asio::associated_executor_t<Handler, asio::any_io_executor>> work_;
};

}  // namespace detail
}  // namespace terrace
