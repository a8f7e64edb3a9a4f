#pragma once

#include "terrace/result.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include <memory>
#include <tuple>
#include <type_traits>
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
  /// Used by complete().
  virtual void post(ErrorCode error, T... values) = 0;
};

template <class... T>
void complete(std::unique_ptr<Wait<T...>> wait, ErrorCode error, std::type_identity_t<T>... values) {
  wait->post(error, std::move(values)...);
}
/// Completes with default values.
template <class... T>
void fail(std::unique_ptr<Wait<T...>> wait, ErrorCode error) {
  complete(std::move(wait), error, T{}...);
}
/// Completes with the value or the error of a result.
template <class T>
void finish(std::unique_ptr<Wait<T>> wait, T value) {
  complete(std::move(wait), {}, std::move(value));
}
template <class T>
void finish(std::unique_ptr<Wait<T>> wait, Result<T> result) {
  if (!result) return fail(std::move(wait), result.error());
  complete(std::move(wait), {}, std::move(*result));
}
inline void finish(std::unique_ptr<Wait<>> wait, const Result<void>& result) {
  complete(std::move(wait), result ? ErrorCode{} : result.error());
}

template <class Handler, class... T>
class WaitFor final : public Wait<T...> {
 public:
  /// `fallback`: the executor for handlers that have none.
  WaitFor(Handler handler, const asio::any_io_executor& fallback)
      : handler_{std::move(handler)}, work_{asio::get_associated_executor(handler_, fallback)} {}

  void post(ErrorCode error, T... values) override {
    const auto executor = work_.get_executor();
    asio::post(executor, [handler = std::move(handler_), error, all = std::tuple<T...>{std::move(values)...}]() mutable {
      if (auto slot = asio::get_associated_cancellation_slot(handler); slot.is_connected()) slot.clear();
      std::apply([&](T&... each) { std::move(handler)(error, std::move(each)...); }, all);
    });
  }

 private:
  Handler handler_;
  asio::executor_work_guard<asio::associated_executor_t<Handler, asio::any_io_executor>> work_;
};

}  // namespace detail
}  // namespace terrace
