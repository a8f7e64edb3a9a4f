#pragma once

#include "terrace.h"
#include "terrace/clock.hpp"
#include "terrace/result.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// The parts that all functions of the C interface share: status numbers, the sentence of the last failure, extensible
/// structures.
namespace terrace::capi {

/// Returns the status of an error: the positive code for an error of Terrace, the negative errno for an error of the system.
[[nodiscard]] terrace_status status_of(const ErrorCode& error) noexcept;

/// Stores the sentence for terrace_last_error(), and returns the status. A sentence that is too long is truncated.
terrace_status fail(terrace_status status, std::string_view sentence) noexcept;
/// Does the same for a call that failed with an error code: "FUNCTION: message of the code".
terrace_status fail(std::string_view function, const ErrorCode& error) noexcept;
/// Does the same for the exception that is being handled.
terrace_status fail_with_exception(std::string_view function) noexcept;

/// A call that is refused. A call with wrong arguments throws std::invalid_argument instead.
struct Refusal : std::runtime_error {
  Refusal(terrace_status why, const std::string& sentence) : std::runtime_error{sentence}, status{why} {}
  explicit Refusal(const ErrorCode& error) : Refusal{status_of(error), error.message()} {}
  terrace_status status;
};

/// Makes a call, and turns its result and every exception into a status. `call` returns nothing, a status, or a Result.
template <class Call>
terrace_status guarded(std::string_view function, const Call& call) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<const Call&>>) {
      call();
      return TERRACE_OK;
    } else {
      const auto result = call();
      if constexpr (std::is_same_v<decltype(result), const terrace_status>) return result;
      else return result ? TERRACE_OK : fail(function, result.error());
    }
  } catch (...) {
    return fail_with_exception(function);
  }
}

/// Throws if a pointer that must be given is null.
inline void need(const void* pointer, const char* name) {
  if (pointer == nullptr) throw std::invalid_argument{std::string{name} + " is null"};
}

/// Throws if a handle is null, or belongs to the parent of this forked process.
template <class Handle>
void check_handle(const Handle* handle) {
  need(handle, Handle::name);
  if (handle->is_here()) return;
  throw Refusal{TERRACE_STOPPED, "the handle belongs to the parent of this process, which was forked; open one in this process"};
}
/// Makes a call on a handle, in a turn of its own if it has turns.
template <class Handle, class Call>
terrace_status on(const Handle* handle, std::string_view function, const Call& call) noexcept {
  return guarded(function, [&] {
    check_handle(handle);
    [[maybe_unused]] const auto turn = handle->take_turn();
    return call();
  });
}

/// Returns the value, or throws the error.
template <class T>
T value_of(Result<T> result) {
  if (!result) throw Refusal{result.error()};
  return std::move(*result);
}

inline void value_of(const Result<void>& result) {
  if (!result) throw Refusal{result.error()};
}

/// Makes the list that `fill()` returns the result of a call. If it throws, the result is an empty list.
template <class T, class Fill>
void give(const char* name, const T** first, std::size_t* count, const Fill& fill) {
  need(first, name);
  need(count, "count");
  *first = nullptr;
  *count = 0;
  const std::vector<T>& list = fill();
  *first = list.data();
  *count = list.size();
}

/// Checks the struct_size of a caller's structure. `first` is its size in version 0.1. A size larger than this library's is
/// refused: it comes from a later header or from uninitialised memory, so the memory may not exist.
template <class T>
void check_struct(const char* name, const T* given, std::size_t first = sizeof(T)) {
  need(given, name);
  const std::size_t size = given->struct_size;
  if (size >= first && size <= sizeof(T)) return;
  throw std::invalid_argument{"struct_size of " + std::string{name} + " is " + std::to_string(size) +
                              "; set it to the sizeof of the structure, " + std::to_string(first) + " to " +
                              std::to_string(sizeof(T)) + " for this library (" + terrace_version() +
                              "); a program with a later header needs a later library"};
}

/// Reads a structure of the caller, which may come from an earlier header. Fields that it does not have are 0.
template <class T>
[[nodiscard]] T read_struct(const char* name, const T* in, std::size_t first = sizeof(T)) {
  check_struct(name, in, first);
  T out{};
  std::memcpy(&out, in, in->struct_size);
  return out;
}

/// Writes the fields of a structure that the caller knows.
template <class T>
void write_struct(const char* name, T value, T* out, std::size_t first = sizeof(T)) {
  check_struct(name, out, first);
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, out->struct_size);
}

/// Converts a caller's nanoseconds from now to a point in time. Negative times are in the past.
[[nodiscard]] TimePoint time_from_now(int64_t nanoseconds) noexcept;
/// Does the same for the deadline in a structure, where 0 means none.
[[nodiscard]] TimePoint deadline_of(int64_t nanoseconds) noexcept;
/// Converts the time of an expected use, where TERRACE_NEVER means that there is none. Throws if it is negative.
[[nodiscard]] Duration expected_after(int64_t nanoseconds);
/// Returns the nanoseconds from now until `when`, at least 0; TERRACE_NEVER for `never`.
[[nodiscard]] int64_t until(TimePoint when) noexcept;
/// Waits until the descriptor is readable, or one of the two times has come.
[[nodiscard]] Result<void> wait_for(int descriptor, int64_t next_poll, int64_t timeout) noexcept;

}  // namespace terrace::capi
